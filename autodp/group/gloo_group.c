/* The training group over Gloo: one net, scalar sums as exchanges, broadcasts along a chain, and
 * the table that group.c calls through. */
#include "autodp/group/gloo_group.h"

#include "autodp/net/tag.h"
#include "device/alloc.h"
#include "device/clock.h"

#include <stdio.h>

enum { BROADCAST_CHUNK_BYTES = 1 << 20, BROADCAST_WINDOW = 4 };

/* Members that add up their scalars directly. */
enum { SUM_DIRECT = 4 };

static void group_close(fl_group *group)
{
    gloo_group *g = (gloo_group *)group;
    if (g->net != NULL) {
        fl__gloo_queue_fini(g);
    }
    fl_shm_segment_close(&g->segment);
    fl_all_gather_destroy(&g->sums);
    fl_net_close(&g->net);
    fl_free(g->sum_rows);
    fl_free(g);
}

static fl_status set_up(gloo_group *g)
{
    size_t sum_bytes = FL_GROUP_ALL_REDUCE_MAX * sizeof(double);
    FL_TRY(fl_alloc_array((size_t)g->base.size, sum_bytes, (void **)&g->sum_rows));
    return fl_all_gather_create(g->net, g->base.index, g->base.size, SUM_DIRECT,
                                fl_tag(FL_TAG_GROUP_ALL_REDUCE, 0), sum_bytes, &g->sums);
}

static fl_status look_around(gloo_group *g)
{
    int64_t deadline_us = fl_deadline_us(g->wait_timeout_ms);
    int size = g->base.size;
    const fl_shm_segment_options segment = {.net = g->net,
                                            .exchange = g->sums,
                                            .index = g->base.index,
                                            .size = size,
                                            .generation = g->base.generation,
                                            .wait_timeout_ms = g->wait_timeout_ms,
                                            .extra_bytes = fl_shm_sum_bytes()};
    FL_TRY(fl_shm_segment_open(&segment, deadline_us, &g->segment));
    for (int i = 0; i < size * size; i++) {
        if (!fl_shm_segment_is_shared(g->segment, i / size, i % size)) {
            return FL_OK;
        }
    }
    g->near_sum = (fl_shm_sum){.segment = g->segment, .index = g->base.index, .size = size};
    return FL_OK;
}

static fl_status group_open(const fl_group_options *options, fl_group **out)
{
    char name[64];
    snprintf(name, sizeof name, "group/%u", options->generation);
    gloo_group *g = NULL;
    FL_TRY(fl_alloc(sizeof *g, (void **)&g));
    g->base.index = options->index;
    g->base.size = options->size;
    g->base.generation = options->generation;
    g->wait_timeout_ms = options->wait_timeout_ms;
    const fl_net_options net = {
        .rank = options->index,
        .size = options->size,
        .name = name,
        .kv = options->kv,
        .host = options->host,
        .open_timeout_ms = options->open_timeout_ms,
        .wait_timeout_ms = options->wait_timeout_ms,
        .abort_set = options->abort_set,
        .generation = options->generation,
    };
    fl_status status = fl_net_open(&net, &g->net);
    if (status == FL_OK) {
        fl__gloo_queue_init(g);
        status = set_up(g);
    }
    if (status == FL_OK && options->size > 1 && !options->sockets_only) {
        status = look_around(g);
    }
    if (status != FL_OK) {
        group_close(&g->base);
        return status;
    }
    *out = &g->base;
    return FL_OK;
}

static void group_abort(fl_group *group, fl_status why)
{
    fl_net_abort(((gloo_group *)group)->net, why);
}

static fl_status group_state(fl_group *group)
{
    return fl_net_state(((gloo_group *)group)->net);
}

static fl_status sum_by_exchange(gloo_group *g, double *values, int n, int64_t deadline_us)
{
    FL_TRY(fl_all_gather_run(g->sums, g->base.generation, values, (size_t)n * sizeof *values,
                             g->sum_rows, deadline_us));
    for (int i = 0; i < n; i++) {
        double sum = 0.0;
        for (int member = 0; member < g->base.size; member++) {
            sum += g->sum_rows[(int64_t)member * n + i];
        }
        values[i] = sum;
    }
    return FL_OK;
}

static fl_status group_sum(fl_group *group, double *values, int n, int64_t deadline_us)
{
    gloo_group *g = (gloo_group *)group;
    size_t size_bytes = (size_t)n * sizeof *values;
    FL_TRY(fl_net_state(g->net));
    FL_TRY(g->near_sum.segment != NULL ? fl_shm_sum_run(&g->near_sum, values, n, deadline_us)
                                       : sum_by_exchange(g, values, n, deadline_us));
    int64_t others = (int64_t)size_bytes * (group->size - 1);
    atomic_fetch_add(&g->sent_bytes, others);
    atomic_fetch_add(&g->received_bytes, others);
    return FL_OK;
}

/* Root -> root + 1 -> ... -> root - 1, in chunks, so that all links work at once. */
typedef struct chain {
    gloo_group *group;
    fl_net_buffer *buffer;
    int from, to; /* -1: nobody */
    size_t size_bytes, n_chunks;
    int64_t deadline_us;
} chain;

static size_t chunk_bytes(const chain *c, size_t i)
{
    size_t left = c->size_bytes - i * BROADCAST_CHUNK_BYTES;
    return left < BROADCAST_CHUNK_BYTES ? left : BROADCAST_CHUNK_BYTES;
}

static fl_status pass_on(const chain *c)
{
    uint64_t tag = fl_tag(FL_TAG_BROADCAST, 0);
    size_t n_posted = 0;
    for (size_t i = 0; i < c->n_chunks; i++) {
        int64_t n_bytes = (int64_t)chunk_bytes(c, i);
        if (c->from >= 0) {
            for (; n_posted < c->n_chunks && n_posted < i + BROADCAST_WINDOW; n_posted++) {
                FL_TRY(fl_net_recv(c->buffer, c->from, tag, n_posted * BROADCAST_CHUNK_BYTES,
                                   chunk_bytes(c, n_posted)));
            }
            FL_TRY(fl_net_wait_recv(c->buffer, c->deadline_us));
            atomic_fetch_add(&c->group->received_bytes, n_bytes);
        }
        if (c->to >= 0) {
            atomic_fetch_add(&c->group->sent_bytes, n_bytes);
            FL_TRY(
                fl_net_send(c->buffer, c->to, tag, i * BROADCAST_CHUNK_BYTES, chunk_bytes(c, i)));
        }
    }
    for (size_t i = 0; i < c->n_chunks && c->to >= 0; i++) {
        FL_TRY(fl_net_wait_send(c->buffer, c->deadline_us));
    }
    return FL_OK;
}

static fl_status channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                              size_t max_bytes, int depth, fl_channel **out)
{
    bool near = fl_shm_segment_is_shared(((gloo_group *)group)->segment, group->index, peer);
    return (near ? fl__shm_channel_open : fl__gloo_channel_open)(group, sending, peer, id,
                                                                 max_bytes, depth, out);
}

static fl_status group_broadcast(fl_group *group, int root, void *data, size_t size_bytes,
                                 int64_t deadline_us)
{
    gloo_group *g = (gloo_group *)group;
    int place = (group->index - root + group->size) % group->size;
    chain c = {
        .group = g,
        .from = place == 0 ? -1 : (group->index + group->size - 1) % group->size,
        .to = place == group->size - 1 ? -1 : (group->index + 1) % group->size,
        .size_bytes = size_bytes,
        .n_chunks = (size_bytes + BROADCAST_CHUNK_BYTES - 1) / BROADCAST_CHUNK_BYTES,
        .deadline_us = deadline_us,
    };
    FL_TRY(fl_net_buffer_create(g->net, data, size_bytes, &c.buffer));
    fl_status status = pass_on(&c);
    fl_net_buffer_destroy(&c.buffer);
    return status;
}

static void group_stats(const fl_group *group, fl_group_stats *out)
{
    const gloo_group *g = (const gloo_group *)group;
    *out = (fl_group_stats){
        .sent_bytes = atomic_load(&g->sent_bytes),
        .received_bytes = atomic_load(&g->received_bytes),
        .reduce_us = atomic_load(&g->reduce_us),
        .reduce_wait_us = atomic_load(&g->reduce_wait_us),
    };
}

const fl_group_ops fl_gloo_ops = {
    .kind = "gloo",
    .group_open = group_open,
    .group_close = group_close,
    .group_abort = group_abort,
    .group_state = group_state,
    .group_sum = group_sum,
    .group_broadcast = group_broadcast,
    .group_stats = group_stats,
    .channel_open = channel_open,
    .bucket_create = fl__gloo_bucket_create,
    .bucket_destroy = fl__gloo_bucket_destroy,
    .bucket_share = fl__shm_bucket_share,
    .bucket_start = fl__gloo_bucket_start,
    .bucket_wait = fl__gloo_bucket_wait,
};
