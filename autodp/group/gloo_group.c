/* The training group over Gloo: one net, scalar sums as exchanges, and the
 * table that group.c calls through. */
#include "autodp/group/gloo_group.h"

#include "autodp/net/tag.h"
#include "device/alloc.h"
#include "device/clock.h"

#include <stdio.h>

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

static fl_status channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                              size_t max_bytes, int depth, fl_channel **out)
{
    bool near = fl_shm_segment_is_shared(((gloo_group *)group)->segment, group->index, peer);
    return (near ? fl__shm_channel_open : fl__gloo_channel_open)(group, sending, peer, id,
                                                                 max_bytes, depth, out);
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
    .group_stats = group_stats,
    .channel_open = channel_open,
    .bucket_create = fl__gloo_bucket_create,
    .bucket_destroy = fl__gloo_bucket_destroy,
    .bucket_share = fl__shm_bucket_share,
    .bucket_start = fl__gloo_bucket_start,
    .bucket_wait = fl__gloo_bucket_wait,
};
