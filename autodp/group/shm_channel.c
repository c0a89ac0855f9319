/* A channel between members of one host: the messages are in the sender's memory, where the
 * receiver reads them. Two counts synchronize them:
 *
 *     sender    n sent:  messages up to n - 1 are written
 *     receiver  n read:  the buffers of messages up to n - 1 may be written again */
#include "autodp/group/host_group.h"
#include "device/alloc.h"

typedef struct shm_channel {
    fl_channel base;
    fl_shared *memory;   /* [depth][stride_bytes], of the sender; NULL at the receiver */
    fl_shared_view view; /* the same memory, mapped by the receiver; not before the first message */
    fl_entry *mine;      /* the own count */
    fl_look theirs;      /* the other end's count, once found */
} shm_channel;

static size_t memory_bytes(const shm_channel *c)
{
    return (size_t)c->base.depth * c->base.stride_bytes;
}

static fl_shm_segment *segment_of(const shm_channel *c)
{
    return ((host_group *)c->base.group)->segment;
}

static fl_entry_name name_of(bool sending, int peer, uint32_t id)
{
    return (fl_entry_name){sending ? FL_ENTRY_OUT : FL_ENTRY_IN, peer, id};
}

static fl_status set_up(shm_channel *c)
{
    fl_entry_name name = name_of(c->base.sending, c->base.peer, c->base.id);
    fl_entry_data data = {0};
    if (c->base.sending) {
        FL_TRY(fl_shared_create(memory_bytes(c), &c->memory));
        data.key = fl_shared_key_of(c->memory);
    }
    return fl_shm_segment_publish(segment_of(c), &name, &data, &c->mine);
}

static void channel_close(fl_channel *channel)
{
    shm_channel *c = (shm_channel *)channel;
    fl_shared_view_close(&c->view);
    fl_shared_destroy(&c->memory);
    fl__channel_fini(&c->base);
    fl_free(c);
}

/* On the receiver, it exists only once a message has been waited for. */
static void *channel_buffer(fl_channel *channel, int64_t n)
{
    shm_channel *c = (shm_channel *)channel;
    unsigned char *memory =
        c->memory != NULL ? fl_shared_data(c->memory) : (unsigned char *)(uintptr_t)c->view.data;
    return memory == NULL ? NULL : memory + fl__channel_slot(channel, n) * channel->stride_bytes;
}

/* Find the other end's entry; wait until it is published. */
static fl_status look(shm_channel *c, int64_t deadline_us)
{
    fl_shm_segment *segment = segment_of(c);
    if (c->theirs.entry == NULL) {
        fl_entry_name name = name_of(!c->base.sending, c->base.group->index, c->base.id);
        FL_TRY(fl_shm_segment_find(segment, c->base.peer, &name, c->mine, deadline_us, &c->theirs));
    }
    if (!c->base.sending && c->view.data == NULL) {
        FL_TRY(fl_shm_segment_view(segment, &c->theirs, memory_bytes(c), &c->view));
    }
    return FL_OK;
}

static fl_status channel_send(fl_channel *channel, int64_t n, size_t size_bytes)
{
    host_group *g = (host_group *)channel->group;
    (void)n; /* messages are sent in order */
    FL_TRY(fl_net_state(g->net));
    fl_entry_ring(((shm_channel *)channel)->mine);
    atomic_fetch_add(&g->sent_bytes, (int64_t)size_bytes);
    return FL_OK;
}

/* Wait until the other end has counted n. */
static fl_status await(fl_channel *channel, int64_t n, int64_t deadline_us)
{
    shm_channel *c = (shm_channel *)channel;
    FL_TRY(look(c, deadline_us));
    return fl_shm_segment_wait(segment_of(c), &c->theirs, (uint32_t)n, FL_WAIT_AWAKE, deadline_us);
}

static fl_status channel_reuse(fl_channel *channel, int64_t n, int64_t deadline_us)
{
    return await(channel, n - channel->depth + 1, deadline_us);
}

static fl_status channel_post(fl_channel *channel, int64_t n, size_t size_bytes)
{
    (void)n, (void)size_bytes; /* there is no buffer to post */
    return fl_net_state(((host_group *)channel->group)->net);
}

static fl_status channel_wait(fl_channel *channel, int64_t n, size_t size_bytes,
                              int64_t deadline_us)
{
    FL_TRY(await(channel, n + 1, deadline_us));
    atomic_fetch_add(&((host_group *)channel->group)->received_bytes, (int64_t)size_bytes);
    return FL_OK;
}

static void channel_release(fl_channel *channel, int64_t n)
{
    (void)n;
    fl_entry_ring(((shm_channel *)channel)->mine);
}

static const fl_channel_ops shm_channel_ops = {
    .close = channel_close,
    .buffer = channel_buffer,
    .send = channel_send,
    .reuse = channel_reuse,
    .post = channel_post,
    .wait = channel_wait,
    .release = channel_release,
};

fl_status fl__shm_channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                               size_t max_bytes, int depth, fl_channel **out)
{
    shm_channel *c = NULL;
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    fl_status status =
        fl__channel_init(&c->base, &shm_channel_ops, group, sending, peer, id, max_bytes, depth);
    if (status == FL_OK) {
        status = set_up(c);
    }
    if (status != FL_OK) {
        channel_close(&c->base);
        return status;
    }
    *out = &c->base;
    return FL_OK;
}
