/* A channel through sockets: `depth` buffers in a row of memory, each registered by itself, so that
 * the states of the messages in them are independent. */
#include "autodp/group/host_group.h"
#include "autodp/net/tag.h"
#include "device/alloc.h"

typedef struct gloo_channel {
    fl_channel base;
    unsigned char *memory;   /* [depth][stride_bytes] */
    fl_net_buffer **buffers; /* [depth] */
} gloo_channel;

static fl_status set_up(gloo_channel *c, fl_net *net)
{
    size_t depth = (size_t)c->base.depth, stride = c->base.stride_bytes;
    FL_TRY(fl_alloc_untouched(depth * stride, (void **)&c->memory));
    FL_TRY(fl_alloc_array(depth, sizeof *c->buffers, (void **)&c->buffers));
    for (size_t i = 0; i < depth; i++) {
        FL_TRY(
            fl_net_buffer_create(net, c->memory + i * stride, c->base.max_bytes, &c->buffers[i]));
    }
    return FL_OK;
}

static void channel_close(fl_channel *channel)
{
    gloo_channel *c = (gloo_channel *)channel;
    for (int i = 0; c->buffers != NULL && i < c->base.depth; i++) {
        fl_net_buffer_destroy(&c->buffers[i]);
    }
    fl_free(c->buffers);
    fl_free(c->memory);
    fl__channel_fini(&c->base);
    fl_free(c);
}

static void *channel_buffer(fl_channel *channel, int64_t n)
{
    gloo_channel *c = (gloo_channel *)channel;
    return c->memory + fl__channel_slot(channel, n) * channel->stride_bytes;
}

static fl_net_buffer *buffer_of(fl_channel *channel, int64_t n)
{
    return ((gloo_channel *)channel)->buffers[fl__channel_slot(channel, n)];
}

static fl_status channel_send(fl_channel *channel, int64_t n, size_t size_bytes)
{
    FL_TRY(fl_net_send(buffer_of(channel, n), channel->peer, fl_tag(FL_TAG_CHANNEL, channel->id), 0,
                       size_bytes));
    atomic_fetch_add(&((host_group *)channel->group)->sent_bytes, (int64_t)size_bytes);
    return FL_OK;
}

static fl_status channel_reuse(fl_channel *channel, int64_t n, int64_t deadline_us)
{
    return fl_net_wait_send(buffer_of(channel, n), deadline_us);
}

static fl_status channel_post(fl_channel *channel, int64_t n, size_t size_bytes)
{
    return fl_net_recv(buffer_of(channel, n), channel->peer, fl_tag(FL_TAG_CHANNEL, channel->id), 0,
                       size_bytes);
}

static fl_status channel_wait(fl_channel *channel, int64_t n, size_t size_bytes,
                              int64_t deadline_us)
{
    FL_TRY(fl_net_wait_recv(buffer_of(channel, n), deadline_us));
    atomic_fetch_add(&((host_group *)channel->group)->received_bytes, (int64_t)size_bytes);
    return FL_OK;
}

static void channel_release(fl_channel *channel, int64_t n)
{
    (void)channel; /* the next post opens the buffer for another message */
    (void)n;
}

static const fl_channel_ops gloo_channel_ops = {
    .close = channel_close,
    .buffer = channel_buffer,
    .send = channel_send,
    .reuse = channel_reuse,
    .post = channel_post,
    .wait = channel_wait,
    .release = channel_release,
};

fl_status fl__gloo_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                                size_t max_bytes, int depth, fl_channel **out)
{
    gloo_channel *c = NULL;
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    fl_status status =
        fl__channel_init(&c->base, &gloo_channel_ops, group, sending, peer, id, max_bytes, depth);
    if (status == FL_OK) {
        status = set_up(c, ((host_group *)group)->net);
    }
    if (status != FL_OK) {
        channel_close(&c->base);
        return status;
    }
    *out = &c->base;
    return FL_OK;
}
