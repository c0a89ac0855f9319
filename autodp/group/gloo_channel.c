/* Messages through sockets: a row of buffers, each registered by itself, so that the states of the
 * messages in them are independent. */
#include "autodp/group/host_group.h"
#include "autodp/net/tag.h"
#include "device/system/alloc.h"

typedef struct gloo_channel {
    host_channel base;
    unsigned char *memory;   /* [n_buffers][stride_bytes] */
    fl_net_buffer **buffers; /* [n_buffers] */
} gloo_channel;

static size_t memory_bytes(const host_channel *c)
{
    return (size_t)c->n_buffers * c->stride_bytes;
}

/* Copies to and from the device are fastest with memory that the device provides; where there is
 * nothing to copy, memory that no message has used yet takes nothing. */
static fl_status take_memory(gloo_channel *c)
{
    host_group *g = fl__host_group_of(&c->base);
    fl_device *d = g->base.device;
    return fl__host_is_direct(g)
               ? fl_alloc_untouched(memory_bytes(&c->base), (void **)&c->memory)
               : d->ops->host_take(d, memory_bytes(&c->base), (void **)&c->memory);
}

static void give_memory(gloo_channel *c)
{
    host_group *g = fl__host_group_of(&c->base);
    fl_device *d = g->base.device;
    if (fl__host_is_direct(g)) {
        fl_free(c->memory);
    } else if (c->memory != NULL) {
        d->ops->host_give(d, c->memory, memory_bytes(&c->base));
    }
}

static fl_status open_channel(host_channel *channel)
{
    gloo_channel *c = (gloo_channel *)channel;
    size_t n = (size_t)channel->n_buffers;
    FL_TRY(take_memory(c));
    FL_TRY(fl_alloc_array(n, sizeof *c->buffers, (void **)&c->buffers));
    for (size_t i = 0; i < n; i++) {
        FL_TRY(fl_net_buffer_create(fl__host_group_of(channel)->net,
                                    c->memory + i * channel->stride_bytes, channel->base.max_bytes,
                                    &c->buffers[i]));
    }
    return FL_OK;
}

static void close_channel(host_channel *channel)
{
    gloo_channel *c = (gloo_channel *)channel;
    for (int i = 0; c->buffers != NULL && i < channel->n_buffers; i++) {
        fl_net_buffer_destroy(&c->buffers[i]);
    }
    fl_free(c->buffers);
    give_memory(c);
}

static void *buffer_of(host_channel *c, int64_t n)
{
    return ((gloo_channel *)c)->memory + fl__host_slot(c, n) * c->stride_bytes;
}

static fl_net_buffer *registered(host_channel *c, int64_t n)
{
    return ((gloo_channel *)c)->buffers[fl__host_slot(c, n)];
}

static uint64_t tag_of(const host_channel *c)
{
    return fl_tag(FL_TAG_CHANNEL, c->base.id);
}

static fl_status send_message(host_channel *c, int64_t n, size_t size_bytes)
{
    return fl_net_send(registered(c, n), c->base.peer, tag_of(c), 0, size_bytes);
}

static fl_status wait_sent(host_channel *c, int64_t n, int64_t deadline_us)
{
    return fl_net_wait_send(registered(c, n), deadline_us);
}

static fl_status post_message(host_channel *c, int64_t n, size_t size_bytes)
{
    return fl_net_recv(registered(c, n), c->base.peer, tag_of(c), 0, size_bytes);
}

static fl_status wait_arrived(host_channel *c, int64_t n, int64_t deadline_us)
{
    return fl_net_wait_recv(registered(c, n), deadline_us);
}

/* The next post opens a buffer for another message, so nothing releases it. */
const host_channel_ops fl__gloo_channels = {.size_bytes = sizeof(gloo_channel),
                                            .open = open_channel,
                                            .close = close_channel,
                                            .buffer = buffer_of,
                                            .send = send_message,
                                            .wait_sent = wait_sent,
                                            .post = post_message,
                                            .wait_arrived = wait_arrived,
                                            .release = NULL};
