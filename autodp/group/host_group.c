/* The training group for host memory: one net, the choice of a transport for each pair, sums of a
 * few scalars, and the table through which group.c calls. */
#include "autodp/group/host_group.h"

#include "autodp/net/tag.h"
#include "device/alloc.h"
#include "device/clock.h"

#include <stdio.h>

/* With at most this many members, scalar sums are exchanged directly. */
enum { SUM_DIRECT = 4 };

static void group_close(fl_group *group)
{
    host_group *g = (host_group *)group;
    if (g->net != NULL) {
        fl__bucket_queue_fini(g);
    }
    fl_shm_segment_close(&g->segment);
    fl_all_gather_destroy(&g->sums);
    fl_net_close(&g->net);
    fl_free(g->sum_rows);
    fl_free(g);
}

static fl_status open_sums(host_group *g)
{
    size_t sum_bytes = FL_GROUP_ALL_REDUCE_MAX * sizeof(double);
    FL_TRY(fl_alloc_array((size_t)g->base.size, sum_bytes, (void **)&g->sum_rows));
    return fl_all_gather_create(g->net, g->base.index, g->base.size, SUM_DIRECT,
                                fl_tag(FL_TAG_GROUP_ALL_REDUCE, 0), sum_bytes, &g->sums);
}

/* Whether these members all share their segments with each other. members NULL: 0 .. n - 1. */
static bool all_shared(const host_group *g, const int *members, int n)
{
    for (int i = 0; i < n * n; i++) {
        int a = members == NULL ? i / n : members[i / n],
            b = members == NULL ? i % n : members[i % n];
        if (!fl_shm_segment_is_shared(g->segment, a, b)) {
            return false;
        }
    }
    return true;
}

static fl_status open_segment(host_group *g)
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
    if (all_shared(g, NULL, size)) {
        g->shm_sum = (fl_shm_sum){.segment = g->segment, .index = g->base.index, .size = size};
    }
    return FL_OK;
}

static fl_status group_open(const fl_group_options *options, fl_group **out)
{
    char name[64];
    snprintf(name, sizeof name, "group/%u", options->generation);
    host_group *g = NULL;
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
        fl__bucket_queue_init(g);
        status = open_sums(g);
    }
    if (status == FL_OK && options->size > 1 && !options->sockets_only) {
        status = open_segment(g);
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
    fl_net_abort(((host_group *)group)->net, why);
}

static fl_status group_state(fl_group *group)
{
    return fl_net_state(((host_group *)group)->net);
}

static fl_status sum_over_net(host_group *g, double *values, int n, int64_t deadline_us)
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

static fl_status group_all_reduce(fl_group *group, double *values, int n, int64_t deadline_us)
{
    host_group *g = (host_group *)group;
    size_t size_bytes = (size_t)n * sizeof *values;
    FL_TRY(fl_net_state(g->net));
    FL_TRY(g->shm_sum.segment != NULL ? fl_shm_sum_run(&g->shm_sum, values, n, deadline_us)
                                      : sum_over_net(g, values, n, deadline_us));
    int64_t others = (int64_t)size_bytes * (group->size - 1);
    atomic_fetch_add(&g->sent_bytes, others);
    atomic_fetch_add(&g->received_bytes, others);
    return FL_OK;
}

static fl_status channel_open(fl_group *group, bool sending, int peer, uint32_t id,
                              size_t max_bytes, int depth, fl_channel **out)
{
    bool shared = fl_shm_segment_is_shared(((host_group *)group)->segment, group->index, peer);
    return (shared ? fl__shm_channel_open : fl__gloo_channel_open)(group, sending, peer, id,
                                                                   max_bytes, depth, out);
}

/* ---- a bucket with one owner ---- */

static void lone_destroy(fl_bucket *bucket)
{
    fl_free(bucket);
}

static void lone_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes)
{
    (void)bucket, (void)shared, (void)offset_bytes;
}

static fl_status lone_start(fl_bucket *bucket)
{
    (void)bucket;
    return FL_OK;
}

static fl_status lone_wait(fl_bucket *bucket, int64_t deadline_us)
{
    (void)bucket, (void)deadline_us;
    return FL_OK;
}

static const fl_bucket_ops lone_bucket_ops = {
    .destroy = lone_destroy, .share = lone_share, .start = lone_start, .wait = lone_wait};

static fl_status bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                               float *data, int64_t n, fl_bucket **out)
{
    host_group *g = (host_group *)group;
    if (n_owners == 1 || n == 0) {
        FL_TRY(fl_alloc(sizeof **out, (void **)out));
        **out = (fl_bucket){&lone_bucket_ops, group, id, data, n};
        return FL_OK;
    }
    FL_TRY(fl__bucket_queue_start(g));
    bool shared = all_shared(g, owners, n_owners);
    return (shared ? fl__shm_bucket_create : fl__gloo_bucket_create)(group, id, owners, n_owners,
                                                                     data, n, out);
}

static void group_stats(const fl_group *group, fl_group_stats *out)
{
    const host_group *g = (const host_group *)group;
    *out = (fl_group_stats){
        .sent_bytes = atomic_load(&g->sent_bytes),
        .received_bytes = atomic_load(&g->received_bytes),
        .reduce_us = atomic_load(&g->reduce_us),
        .reduce_wait_us = atomic_load(&g->reduce_wait_us),
    };
}

const fl_group_ops fl_host_group_ops = {
    .kind = "host",
    .group_open = group_open,
    .group_close = group_close,
    .group_abort = group_abort,
    .group_state = group_state,
    .group_all_reduce = group_all_reduce,
    .group_stats = group_stats,
    .channel_open = channel_open,
    .bucket_create = bucket_create,
};
