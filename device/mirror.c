#include "device/mirror.h"

#include "device/system/alloc.h"

#include <string.h>

enum { PIECE_ALIGNMENT = 64 };

size_t fl_mirror_device_bytes(const fl_device *device, size_t size_bytes)
{
    return device->ops->host_memory ? 0 : size_bytes;
}

size_t fl_mirror_ahead_device_bytes(const fl_device *device, size_t size_bytes)
{
    return 2 * fl_mirror_device_bytes(device, size_bytes);
}

/* ---- creation ---- */

static size_t round_up(size_t size_bytes)
{
    return (size_bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
}

static fl_status create_events(fl_mirror *m)
{
    const fl_device_ops *ops = m->device->ops;
    FL_TRY(fl_alloc_array((size_t)m->n_pieces, sizeof *m->sent, (void **)&m->sent));
    for (int i = 0; i < m->n_pieces; i++) {
        FL_TRY(ops->event_create(m->device, &m->sent[i]));
    }
    return m->copy_stream == NULL ? FL_OK : ops->event_create(m->device, &m->taken);
}

static fl_status take_pieces(fl_mirror *m, void *on_device)
{
    fl_device *d = m->device;
    void *memory = NULL;
    if (d->ops->host_memory) {
        FL_TRY(fl_alloc(m->size_bytes, &memory));
        m->pieces = m->host = m->on_device = memory;
        return FL_OK;
    }
    FL_TRY(d->ops->host_take(d, (size_t)m->n_pieces * m->stride_bytes, &memory));
    m->pieces = m->host = memory;
    m->on_device = on_device;
    return create_events(m);
}

fl_status fl_mirror_init(fl_mirror *m, fl_device *device, fl_stream *stream, void *on_device,
                         size_t size_bytes)
{
    *m = (fl_mirror){.device = device,
                     .stream = stream,
                     .size_bytes = size_bytes,
                     .stride_bytes = round_up(size_bytes),
                     .n_pieces = 1};
    return size_bytes == 0 ? FL_OK : take_pieces(m, on_device);
}

fl_status fl_mirror_init_ahead(fl_mirror *m, fl_device *device, fl_stream *stream,
                               fl_stream *copy_stream, void *on_device, size_t size_bytes,
                               int n_pieces)
{
    *m = (fl_mirror){.device = device,
                     .stream = stream,
                     .copy_stream = copy_stream,
                     .size_bytes = size_bytes,
                     .stride_bytes = round_up(size_bytes),
                     .n_pieces = n_pieces};
    m->staged = on_device == NULL ? NULL : (unsigned char *)on_device + size_bytes;
    return size_bytes == 0 ? FL_OK : take_pieces(m, on_device);
}

void fl_mirror_fini(fl_mirror *m)
{
    if (m->pieces != NULL && m->device->ops->host_memory) {
        fl_free(m->pieces);
    } else if (m->pieces != NULL) {
        for (int i = 0; m->sent != NULL && i < m->n_pieces; i++) {
            fl_device_event_destroy(m->device, &m->sent[i]);
        }
        fl_device_event_destroy(m->device, &m->taken);
        fl_free(m->sent);
        m->device->ops->host_give(m->device, m->pieces, (size_t)m->n_pieces * m->stride_bytes);
    }
    memset(m, 0, sizeof *m);
}

/* ---- to the device ---- */

fl_status fl_mirror_begin(fl_mirror *m)
{
    if (m->sent == NULL) {
        return FL_OK;
    }
    int piece = (int)(m->n_sent % m->n_pieces);
    int64_t before = m->n_sent - m->n_pieces; /* the sending that this piece had last */
    if (before >= m->n_arrived) {
        FL_TRY(m->device->ops->event_wait(m->device, m->sent[piece]));
        m->n_arrived = before + 1;
    }
    m->host = m->pieces + (size_t)piece * m->stride_bytes;
    return FL_OK;
}

static fl_status send_ahead(const fl_mirror *m, fl_event *sent, size_t size_bytes)
{
    fl_device *d = m->device;
    FL_TRY(d->ops->stream_wait(d, m->copy_stream, m->taken));
    FL_TRY(d->ops->copy_in(d, m->copy_stream, m->staged, m->host, size_bytes));
    FL_TRY(d->ops->event_record(d, sent, m->copy_stream));
    FL_TRY(d->ops->stream_wait(d, m->stream, sent));
    FL_TRY(d->ops->copy(d, m->stream, m->on_device, m->staged, size_bytes));
    return d->ops->event_record(d, m->taken, m->stream);
}

fl_status fl_mirror_send(fl_mirror *m, size_t size_bytes)
{
    fl_device *d = m->device;
    if (m->sent == NULL || size_bytes == 0) {
        return FL_OK;
    }
    fl_event *sent = m->sent[m->n_sent % m->n_pieces];
    if (m->copy_stream != NULL) {
        FL_TRY(send_ahead(m, sent, size_bytes));
    } else {
        FL_TRY(d->ops->copy_in(d, m->stream, m->on_device, m->host, size_bytes));
        FL_TRY(d->ops->event_record(d, sent, m->stream));
    }
    m->n_sent++;
    return FL_OK;
}

void fl_mirror_settle(fl_mirror *m)
{
    m->n_arrived = m->n_sent;
}

fl_status fl_mirror_fetch(fl_mirror *m, size_t size_bytes)
{
    fl_device *d = m->device;
    if (d->ops->host_memory || size_bytes == 0) {
        return FL_OK;
    }
    return d->ops->copy_out(d, m->stream, m->host, m->on_device, size_bytes);
}
