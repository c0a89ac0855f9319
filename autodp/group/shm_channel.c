/* Messages between members of one host: the buffers are in the sender's memory, where the receiver
 * reads them; in its device's, if the other device reads that. Two counts synchronize them:
 *
 *     sender    n sent:  messages up to n - 1 are written
 *     receiver  n read:  the buffers of messages up to n - 1 may be written again */
#include "autodp/group/host_group.h"
#include "device/system/alloc.h"

typedef struct shm_channel {
    host_channel base;
    unsigned char *data; /* of the sender, here or as the receiver sees it */
    fl_shared *memory;   /* of the sender, or what names its device's; NULL at the receiver */
    fl_shared_view view; /* the same memory, mapped by the receiver; not before the first message */
    bool pinned;         /* data is host memory, with its pages locked for the device's copies */
    fl_entry *mine;      /* the own count */
    fl_look theirs;      /* the other end's count, once found */
} shm_channel;

/* The sender's, on both ends. */
static int64_t buffers_of_sender(const host_channel *c)
{
    return c->base.depth + 1;
}

static size_t memory_bytes(const host_channel *c)
{
    return (size_t)buffers_of_sender(c) * c->stride_bytes;
}

static fl_shm_segment *segment_of(const host_channel *c)
{
    return fl__host_group_of(c)->segment;
}

static fl_entry_name name_of(bool sending, int peer, uint32_t id)
{
    return (fl_entry_name){sending ? FL_ENTRY_OUT : FL_ENTRY_IN, peer, id};
}

/* Host memory that the device copies from or to. */
static void pin_memory(shm_channel *c, bool read_only)
{
    const host_group *g = fl__host_group_of(&c->base);
    if (!c->base.on_device && !fl__host_is_direct(g)) {
        c->pinned = fl__host_pin(g, c->data, memory_bytes(&c->base), read_only);
    }
}

/* Of this device, if the other one reads it; else of the host. */
static fl_status create_memory(shm_channel *c)
{
    fl_device *d = c->base.base.group->device;
    size_t size_bytes = memory_bytes(&c->base);
    if (c->base.on_device) {
        return d->ops->memory_export(d, size_bytes, (void **)&c->data, &c->memory);
    }
    FL_TRY(fl_shared_create(size_bytes, &c->memory));
    c->data = fl_shared_data(c->memory);
    pin_memory(c, false);
    return FL_OK;
}

static fl_status open_channel(host_channel *channel)
{
    shm_channel *c = (shm_channel *)channel;
    const fl_channel *base = &channel->base;
    fl_entry_name name = name_of(base->sending, base->peer, base->id);
    fl_entry_data data = {0};
    channel->on_device =
        fl_shm_segment_reads_device(segment_of(channel), base->group->index, base->peer);
    if (base->sending) {
        FL_TRY(create_memory(c));
        data.key = fl_shared_key_of(c->memory);
    }
    return fl_shm_segment_publish(segment_of(channel), &name, &data, &c->mine);
}

static void close_channel(host_channel *channel)
{
    shm_channel *c = (shm_channel *)channel;
    fl_device *d = channel->base.group->device;
    fl__host_unpin(fl__host_group_of(channel), c->data, c->pinned);
    if (!channel->on_device) {
        fl_shared_view_close(&c->view);
    } else {
        d->ops->view_close(d, &c->view);
        if (c->memory != NULL) {
            d->ops->memory_give(d, c->data, memory_bytes(channel));
        }
    }
    fl_shared_destroy(&c->memory);
}

static void *buffer_of(host_channel *channel, int64_t n)
{
    shm_channel *c = (shm_channel *)channel;
    return c->data + (size_t)(n % buffers_of_sender(channel)) * channel->stride_bytes;
}

/* Find the other end's entry; wait until it is published. */
static fl_status find_peer(shm_channel *c, int64_t deadline_us)
{
    const fl_channel *base = &c->base.base;
    fl_shm_segment *segment = segment_of(&c->base);
    if (c->theirs.entry == NULL) {
        fl_entry_name name = name_of(!base->sending, base->group->index, base->id);
        FL_TRY(fl_shm_segment_find(segment, base->peer, &name, c->mine, deadline_us, &c->theirs));
    }
    if (!base->sending && c->view.data == NULL) {
        FL_TRY(fl_shm_segment_view(segment, &c->theirs, memory_bytes(&c->base), c->base.on_device,
                                   &c->view));
        c->data = (unsigned char *)(uintptr_t)c->view.data;
        pin_memory(c, true);
    }
    return FL_OK;
}

/* Messages are sent in order, so their numbers need not be told. */
static fl_status send_message(host_channel *c, int64_t n, size_t size_bytes)
{
    (void)n, (void)size_bytes;
    FL_TRY(fl_net_state(fl__host_group_of(c)->net));
    fl_entry_ring(((shm_channel *)c)->mine);
    return FL_OK;
}

/* Wait until the other end has counted message n. */
static fl_status wait_count(host_channel *channel, int64_t n, int64_t deadline_us)
{
    shm_channel *c = (shm_channel *)channel;
    FL_TRY(find_peer(c, deadline_us));
    return fl_shm_segment_wait(segment_of(channel), &c->theirs, (uint32_t)n + 1, FL_WAIT_AWAKE,
                               deadline_us);
}

static void release_message(host_channel *c, int64_t n)
{
    (void)n;
    fl_entry_ring(((shm_channel *)c)->mine);
}

/* A message needs no buffer at the receiver, so nothing is posted. */
const host_channel_ops fl__shm_channels = {.size_bytes = sizeof(shm_channel),
                                           .open = open_channel,
                                           .close = close_channel,
                                           .buffer = buffer_of,
                                           .send = send_message,
                                           .wait_sent = wait_count,
                                           .post = NULL,
                                           .wait_arrived = wait_count,
                                           .release = release_message};
