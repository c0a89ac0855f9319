/* A channel through sockets: `depth` buffers in a row of memory, each registered by itself, so that
 * the states of the messages in them are independent. */
#include "autodp/gloo_group.h"
#include "autodp/tag.h"
#include "device/alloc.h"

typedef struct gloo_channel {
    fl_channel base;
    size_t stride_bytes;
    unsigned char *memory;   /* [depth][stride_bytes] */
    fl_net_buffer **buffers; /* [depth] */
    bool *busy;              /* [depth]: an operation was started and not waited for */
    size_t *posted_bytes;    /* [depth] */
} gloo_channel;

enum { ALIGNMENT = 64 };

static fl_status set_up(gloo_channel *c, fl_net *net)
{
    size_t depth = (size_t)c->base.depth;
    if (c->stride_bytes > SIZE_MAX / depth) {
        return fl_fail(FL_ENOMEM, "%zu messages of %zu bytes", depth, c->stride_bytes);
    }
    FL_TRY(fl_alloc_untouched(depth * c->stride_bytes, (void **)&c->memory));
    FL_TRY(fl_alloc_array(depth, sizeof *c->buffers, (void **)&c->buffers));
    FL_TRY(fl_alloc_array(depth, sizeof *c->busy, (void **)&c->busy));
    FL_TRY(fl_alloc_array(depth, sizeof *c->posted_bytes, (void **)&c->posted_bytes));
    for (size_t i = 0; i < depth; i++) {
        FL_TRY(fl_net_buffer_create(net, c->memory + i * c->stride_bytes, c->base.max_bytes,
                                    &c->buffers[i]));
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
    fl_free(c->busy);
    fl_free(c->posted_bytes);
    fl_free(c->memory);
    fl_free(c);
}

fl_status fl__gloo_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                                size_t max_bytes, int depth, fl_channel **out)
{
    gloo_channel *c = NULL;
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    c->base = (fl_channel){&fl__gloo_channel_ops, group, sending, peer, id, max_bytes, depth};
    c->stride_bytes = (max_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    fl_status status = set_up(c, ((gloo_group *)group)->net);
    if (status != FL_OK) {
        channel_close(&c->base);
        return status;
    }
    *out = &c->base;
    return FL_OK;
}

static size_t slot_of(const gloo_channel *c, int64_t n)
{
    return (size_t)(n % c->base.depth);
}

static void *channel_buffer(fl_channel *channel, int64_t n)
{
    gloo_channel *c = (gloo_channel *)channel;
    return c->memory + slot_of(c, n) * c->stride_bytes;
}

static fl_status take_slot(gloo_channel *c, int64_t n, size_t *slot)
{
    *slot = slot_of(c, n);
    if (c->busy[*slot]) {
        return fl_fail(FL_EINVAL, "its buffer is still under way (depth %d)", c->base.depth);
    }
    return FL_OK;
}

static fl_status channel_send(fl_channel *channel, int64_t n, size_t size_bytes)
{
    gloo_channel *c = (gloo_channel *)channel;
    gloo_group *g = (gloo_group *)channel->group;
    size_t slot;
    FL_TRY(take_slot(c, n, &slot));
    FL_TRY(fl_net_send(c->buffers[slot], channel->peer, fl_tag(FL_TAG_CHANNEL, channel->id), 0,
                       size_bytes));
    c->busy[slot] = true;
    atomic_fetch_add(&g->sent_bytes, (int64_t)size_bytes);
    return FL_OK;
}

static fl_status channel_reuse(fl_channel *channel, int64_t n, int64_t deadline_us)
{
    gloo_channel *c = (gloo_channel *)channel;
    size_t slot = slot_of(c, n);
    if (c->busy[slot]) {
        FL_TRY(fl_net_wait_send(c->buffers[slot], deadline_us));
        c->busy[slot] = false;
    }
    return FL_OK;
}

static fl_status channel_post(fl_channel *channel, int64_t n, size_t size_bytes)
{
    gloo_channel *c = (gloo_channel *)channel;
    size_t slot;
    FL_TRY(take_slot(c, n, &slot));
    FL_TRY(fl_net_recv(c->buffers[slot], channel->peer, fl_tag(FL_TAG_CHANNEL, channel->id), 0,
                       size_bytes));
    c->busy[slot] = true;
    c->posted_bytes[slot] = size_bytes;
    return FL_OK;
}

static fl_status channel_wait(fl_channel *channel, int64_t n, int64_t deadline_us)
{
    gloo_channel *c = (gloo_channel *)channel;
    size_t slot = slot_of(c, n);
    if (!c->busy[slot]) {
        return fl_fail(FL_EINVAL, "it was not posted");
    }
    FL_TRY(fl_net_wait_recv(c->buffers[slot], deadline_us));
    c->busy[slot] = false;
    atomic_fetch_add(&((gloo_group *)channel->group)->received_bytes,
                     (int64_t)c->posted_bytes[slot]);
    return FL_OK;
}

static void channel_release(fl_channel *channel, int64_t n)
{
    (void)channel; /* the next post is what lets another message into the buffer */
    (void)n;
}

const fl_channel_ops fl__gloo_channel_ops = {
    .close = channel_close,
    .buffer = channel_buffer,
    .send = channel_send,
    .reuse = channel_reuse,
    .post = channel_post,
    .wait = channel_wait,
    .release = channel_release,
};
