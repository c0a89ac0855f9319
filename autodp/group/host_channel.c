/* A channel between the device's memory and the buffers of a transport.
 *
 *     message n   sender                                receiver
 *                 device -- copy --> buffer             buffer -- copy --> device
 *                 buffer -- transport --> peer          buffer <-- transport -- peer
 *
 * Where the device computes in host memory, the copies are done when their calls return, and a
 * message that the device wrote into the buffer itself needs none. Elsewhere each copy is work of
 * the caller's stream, and the copy thread sends the message, or releases the buffer, after it.
 *
 * After message n was started, a sender waits until message n - depth has left its buffer, so the
 * buffer of message n + 1 is free whenever the caller wants to write into it. */
#include "autodp/group/host_group.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

static host_copy *copy_of(host_channel *c, int64_t n)
{
    return &c->copies[fl__host_slot(c, n)];
}

/* ---- open and close ---- */

static fl_status create_copies(host_channel *c)
{
    host_group *g = fl__host_group_of(c);
    fl_device *d = g->base.device;
    FL_TRY(fl__copy_queue_start(g));
    FL_TRY(fl_alloc_array((size_t)c->n_buffers, sizeof *c->copies, (void **)&c->copies));
    for (int i = 0; i < c->n_buffers; i++) {
        c->copies[i].channel = c;
    }
    for (int i = 0; i < c->n_buffers; i++) {
        FL_TRY(d->ops->event_create(d, &c->copies[i].event));
    }
    return FL_OK;
}

static fl_status set_up(host_channel *c)
{
    enum { ALIGNMENT = 64 };
    c->stride_bytes = (c->base.max_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    c->n_buffers = c->base.sending ? c->base.depth + 1 : c->base.depth;
    if (c->stride_bytes > SIZE_MAX / (size_t)c->n_buffers) {
        return fl_fail(FL_ENOMEM, "%d messages of %zu bytes", c->n_buffers, c->stride_bytes);
    }
    FL_TRY(fl__host_is_direct(fl__host_group_of(c)) ? FL_OK : create_copies(c));
    return c->ops->open(c);
}

void fl__host_channel_close(fl_channel *channel)
{
    host_channel *c = (host_channel *)channel;
    for (int i = 0; c->copies != NULL && i < c->n_buffers; i++) {
        fl__copy_fini(&c->copies[i]);
    }
    c->ops->close(c);
    fl_free(c->copies);
    fl_free(c);
}

fl_status fl__host_channel_open(const fl_channel *common, fl_channel **out)
{
    const int members[] = {common->group->index, common->peer};
    const host_channel_ops *ops =
        fl__host_transport_of((host_group *)common->group, members, 2)->channels;
    host_channel *c = NULL;
    FL_TRY(fl_alloc(ops->size_bytes, (void **)&c));
    c->base = *common;
    c->ops = ops;
    fl_status status = set_up(c);
    if (status != FL_OK) {
        fl__host_channel_close(&c->base);
        return status;
    }
    *out = &c->base;
    return FL_OK;
}

/* ---- sender ---- */

/* Wait until the buffers of all messages before `end` may be written again. */
static fl_status finish_sent(host_channel *c, int64_t end, int64_t deadline_us)
{
    for (; c->n_finished < end; c->n_finished++) {
        if (c->copies != NULL) {
            FL_TRY(fl__copy_wait(copy_of(c, c->n_finished), deadline_us));
        }
        FL_TRY(c->ops->wait_sent(c, c->n_finished, deadline_us));
    }
    return FL_OK;
}

/* Let message n leave its buffer once the stream's work so far is done. */
static fl_status start_send(host_channel *c, int64_t n, size_t size_bytes, fl_stream *stream)
{
    fl_device *d = c->base.group->device;
    if (c->copies != NULL) {
        host_copy *copy = copy_of(c, n);
        copy->n = n;
        copy->size_bytes = size_bytes;
        return fl__copy_begin(copy, stream);
    }
    FL_TRY(d->ops->sync(d, stream));
    return c->ops->send(c, n, size_bytes);
}

static fl_status send_from(host_channel *c, const void *from, size_t size_bytes, fl_stream *stream,
                           int64_t deadline_us)
{
    host_group *g = fl__host_group_of(c);
    fl_device *d = g->base.device;
    int64_t n = c->base.n_started;
    void *buffer = c->ops->buffer(c, n);
    FL_TRY(fl_net_state(g->net));
    if (from != buffer && size_bytes > 0) {
        FL_TRY(
            (c->on_device ? d->ops->copy : d->ops->copy_out)(d, stream, buffer, from, size_bytes));
    }
    FL_TRY(start_send(c, n, size_bytes, stream));
    atomic_fetch_add(&g->sent_bytes, (int64_t)size_bytes);
    atomic_fetch_add(&g->device_bytes, c->on_device ? (int64_t)size_bytes : 0);
    return finish_sent(c, n + 1 - c->base.depth, deadline_us);
}

fl_status fl__host_channel_send_from(fl_channel *channel, const void *from, size_t size_bytes,
                                     fl_stream *stream, int64_t deadline_us)
{
    host_channel *c = (host_channel *)channel;
    return fl__host_result(fl__host_group_of(c),
                           send_from(c, from, size_bytes, stream, deadline_us));
}

void *fl__host_channel_place(fl_channel *channel)
{
    host_channel *c = (host_channel *)channel;
    return c->copies != NULL ? NULL : c->ops->buffer(c, channel->n_started);
}

fl_status fl__host_channel_flush(fl_channel *channel, int64_t deadline_us)
{
    host_channel *c = (host_channel *)channel;
    return fl__host_result(fl__host_group_of(c), finish_sent(c, channel->n_started, deadline_us));
}

/* ---- receiver ---- */

static fl_status post(host_channel *c, size_t size_bytes)
{
    host_group *g = fl__host_group_of(c);
    int64_t n = c->base.n_started;
    FL_TRY(fl_net_state(g->net));
    if (c->ops->post == NULL) {
        return FL_OK;
    }
    if (c->copies != NULL) {
        FL_TRY(fl__copy_wait(copy_of(c, n), fl_deadline_us(g->wait_timeout_ms)));
    }
    return c->ops->post(c, n, size_bytes);
}

fl_status fl__host_channel_post(fl_channel *channel, size_t size_bytes)
{
    host_channel *c = (host_channel *)channel;
    return fl__host_result(fl__host_group_of(c), post(c, size_bytes));
}

/* Let the buffer of message n go once the stream's work so far is done. */
static fl_status start_release(host_channel *c, int64_t n, fl_stream *stream, int64_t deadline_us)
{
    fl_device *d = c->base.group->device;
    if (c->copies != NULL) {
        host_copy *copy = copy_of(c, n);
        FL_TRY(fl__copy_wait(copy, deadline_us)); /* of the message that was in the buffer before */
        copy->n = n;
        return fl__copy_begin(copy, stream);
    }
    FL_TRY(d->ops->sync(d, stream));
    if (c->ops->release != NULL) {
        c->ops->release(c, n);
    }
    return FL_OK;
}

static fl_status receive_to(host_channel *c, void *to, size_t size_bytes, fl_stream *stream,
                            int64_t deadline_us)
{
    host_group *g = fl__host_group_of(c);
    fl_device *d = g->base.device;
    int64_t n = c->base.n_taken;
    FL_TRY(c->ops->wait_arrived(c, n, deadline_us));
    atomic_fetch_add(&g->received_bytes, (int64_t)size_bytes);
    if (size_bytes > 0) {
        FL_TRY((c->on_device ? d->ops->copy : d->ops->copy_in)(d, stream, to, c->ops->buffer(c, n),
                                                               size_bytes));
    }
    return start_release(c, n, stream, deadline_us);
}

fl_status fl__host_channel_receive_to(fl_channel *channel, void *to, size_t size_bytes,
                                      fl_stream *stream, int64_t deadline_us)
{
    host_channel *c = (host_channel *)channel;
    return fl__host_result(fl__host_group_of(c),
                           receive_to(c, to, size_bytes, stream, deadline_us));
}
