#include "device/mirror.h"

#include "device/alloc.h"

#include <string.h>

size_t fl_mirror_device_bytes(const fl_device *device, size_t size_bytes)
{
    return device->ops->host_memory ? 0 : size_bytes;
}

fl_status fl_mirror_init(fl_mirror *m, fl_device *device, fl_stream *stream, void *on_device,
                         size_t size_bytes)
{
    void *memory = NULL;
    *m = (fl_mirror){.device = device, .stream = stream, .size_bytes = size_bytes};
    if (size_bytes == 0) {
        return FL_OK;
    }
    if (device->ops->host_memory) {
        FL_TRY(fl_alloc(size_bytes, &memory));
        m->host = m->on_device = memory;
        return FL_OK;
    }
    FL_TRY(device->ops->host_take(device, size_bytes, &memory));
    m->host = memory;
    m->on_device = on_device;
    return device->ops->event_create(device, &m->sent);
}

void fl_mirror_fini(fl_mirror *m)
{
    if (m->host != NULL && m->device->ops->host_memory) {
        fl_free(m->host);
    } else if (m->host != NULL) {
        fl_device_event_destroy(m->device, &m->sent);
        m->device->ops->host_give(m->device, m->host, m->size_bytes);
    }
    memset(m, 0, sizeof *m);
}

fl_status fl_mirror_begin(fl_mirror *m)
{
    return m->sent == NULL ? FL_OK : m->device->ops->event_wait(m->device, m->sent);
}

fl_status fl_mirror_send(fl_mirror *m, size_t size_bytes)
{
    fl_device *d = m->device;
    if (m->sent == NULL || size_bytes == 0) {
        return FL_OK;
    }
    FL_TRY(d->ops->copy_in(d, m->stream, m->on_device, m->host, size_bytes));
    return d->ops->event_record(d, m->sent, m->stream);
}

fl_status fl_mirror_fetch(fl_mirror *m, size_t size_bytes)
{
    fl_device *d = m->device;
    if (d->ops->host_memory || size_bytes == 0) {
        return FL_OK;
    }
    return d->ops->copy_out(d, m->stream, m->host, m->on_device, size_bytes);
}
