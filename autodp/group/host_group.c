/* The training group through host memory: one net, the choice of a transport, sums of a few
 * scalars, and the table through which group.c calls. */
#include "autodp/group/host_group.h"

#include "autodp/net/open/net_open.h"
#include "autodp/net/tag.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>

/* With at most this many members, scalar sums are exchanged directly. */
enum { SUM_DIRECT = 4 };

static void group_close(fl_group *group)
{
    host_group *g = (host_group *)group;
    if (g->net != NULL) {
        fl__copy_queue_fini(g);
        fl__bucket_queue_fini(g);
    }
    fl__staging_fini(g);
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
    int root = g->base.size <= SUM_DIRECT ? FL_ALL_GATHER_DIRECT : 0;
    return fl_all_gather_create(g->net, g->base.index, g->base.size, root,
                                fl_tag(FL_TAG_GROUP_ALL_REDUCE, 0), sum_bytes, &g->sums);
}

/* How many pairs of these members share their segments. members NULL: 0 .. n - 1. */
static int count_shared(const host_group *g, const int *members, int n)
{
    int n_shared = 0;
    for (int i = 1; i < n; i++) {
        for (int j = 0; j < i; j++) {
            n_shared += fl_shm_segment_is_shared(g->segment, members == NULL ? i : members[i],
                                                 members == NULL ? j : members[j]);
        }
    }
    return n_shared;
}

static bool all_shared(const host_group *g, const int *members, int n)
{
    return g->segment != NULL && count_shared(g, members, n) == n * (n - 1) / 2;
}

const host_transport *fl__host_transport_of(const host_group *g, const int *members, int n)
{
    static const host_transport gloo = {&fl__gloo_channels, &fl__gloo_buckets};
    static const host_transport shm = {&fl__shm_channels, &fl__shm_buckets};
    static const host_transport two_levels = {&fl__gloo_channels, &fl__two_level_buckets};
    return all_shared(g, members, n)          ? &shm
           : count_shared(g, members, n) == 0 ? &gloo
                                              : &two_levels;
}

static fl_status open_segment(host_group *g, const char *host)
{
    int64_t deadline_us = fl_deadline_us(g->wait_timeout_ms);
    int size = g->base.size;
    const fl_shm_segment_options segment = {.net = g->net,
                                            .exchange = g->sums,
                                            .index = g->base.index,
                                            .size = size,
                                            .generation = g->base.generation,
                                            .host = host,
                                            .wait_timeout_ms = g->wait_timeout_ms,
                                            .extra_bytes = fl_shm_sum_bytes(),
                                            .device = g->base.device};
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
    g->base.device = options->device;
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
        .sockets_only = options->sockets_only,
        .open_timeout_ms = options->open_timeout_ms,
        .wait_timeout_ms = options->wait_timeout_ms,
        .abort_set = options->abort_set,
        .generation = options->generation,
        .transport = options->transport,
    };
    fl_status status = fl_net_open(&net, &g->net);
    if (status == FL_OK) {
        fl__bucket_queue_init(g);
        fl__copy_queue_init(g);
        status = open_sums(g);
    }
    if (status == FL_OK && options->size > 1 && !options->sockets_only) {
        status = open_segment(g, options->host);
    }
    if (status != FL_OK) {
        group_close(&g->base);
        return status;
    }
    *out = &g->base;
    return FL_OK;
}

/* Channels and buckets are connected by the net, which is. */
static fl_status group_connect(fl_group *group, int64_t deadline_us)
{
    (void)deadline_us;
    return fl_net_state(((host_group *)group)->net);
}

fl_net *fl_host_group_net(fl_group *group)
{
    return ((host_group *)group)->net;
}

static void group_abort(fl_group *group, fl_status why)
{
    fl_net_abort(((host_group *)group)->net, why);
}

static fl_status group_state(fl_group *group)
{
    host_group *g = (host_group *)group;
    return fl__host_result(g, fl_net_state(g->net));
}

bool fl__host_is_direct(const host_group *g)
{
    return g->base.device->ops->host_memory;
}

fl_status fl__host_drained(fl_device *device, fl_stream *stream, fl_status status)
{
    fl_failure failure;
    if (status == FL_OK) {
        return FL_OK;
    }
    fl_failure_keep(&failure, status);
    fl_status same = device->ops->sync(device, stream);
    (void)same; /* a device that has failed goes on failing */
    return fl_failure_raise(&failure);
}

fl_status fl__host_result(host_group *g, fl_status status)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    pthread_mutex_lock(&g->copies.mutex);
    fl_status failed = g->copies.failed;
    pthread_mutex_unlock(&g->copies.mutex);
    return failed == FL_OK ? status : fl_fail(failed, "%s", g->copies.message);
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

static fl_status sum_over_all(host_group *g, double *values, int n, int64_t deadline_us)
{
    size_t size_bytes = (size_t)n * sizeof *values;
    FL_TRY(fl_net_state(g->net));
    FL_TRY(g->shm_sum.segment != NULL ? fl_shm_sum_run(&g->shm_sum, values, n, deadline_us)
                                      : sum_over_net(g, values, n, deadline_us));
    int64_t others = (int64_t)size_bytes * (g->base.size - 1);
    atomic_fetch_add(&g->sent_bytes, others);
    atomic_fetch_add(&g->received_bytes, others);
    return FL_OK;
}

static fl_status group_all_reduce(fl_group *group, double *values, int n, int64_t deadline_us)
{
    host_group *g = (host_group *)group;
    return fl__host_result(g, sum_over_all(g, values, n, deadline_us));
}

static void group_stats_get(const fl_group *group, fl_group_stats *out)
{
    const host_group *g = (const host_group *)group;
    *out = (fl_group_stats){
        .sent_bytes = atomic_load(&g->sent_bytes),
        .device_bytes = atomic_load(&g->device_bytes),
        .received_bytes = atomic_load(&g->received_bytes),
        .reduce_us = atomic_load(&g->reduce_us),
        .reduce_wait_us = atomic_load(&g->reduce_wait_us),
    };
}

/* State goes through the message group, or between devices that read each other (transfer.h). */
static fl_status mover_open(const fl_mover *common, fl_mover **out)
{
    (void)common;
    *out = NULL;
    return FL_OK;
}

static void mover_close(fl_mover *mover)
{
    (void)mover;
}

static fl_status mover_start(fl_mover *mover, void *data, size_t size_bytes)
{
    (void)mover, (void)data, (void)size_bytes;
    return fl_fail(FL_ENOTSUP, "this group moves no state");
}

static fl_status mover_wait(fl_mover *mover, int64_t deadline_us)
{
    (void)mover, (void)deadline_us;
    return fl_fail(FL_ENOTSUP, "this group moves no state");
}

/* ---- captured work: the host takes part in every sum ---- */

static fl_status refuse_capture(void)
{
    return fl_fail(FL_ENOTSUP, "what goes through host memory cannot be captured");
}

static bool bucket_can_capture(const fl_bucket *bucket)
{
    (void)bucket;
    return false;
}

static fl_status bucket_capture(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us)
{
    (void)bucket;
    (void)stream;
    (void)deadline_us;
    return refuse_capture();
}

static fl_status bucket_capture_join(fl_bucket *bucket, fl_stream *stream)
{
    (void)bucket;
    (void)stream;
    return refuse_capture();
}

static fl_status captured_create(fl_group *group, fl_graph *graph, fl_captured **out)
{
    group->device->ops->graph_destroy(group->device, &graph);
    *out = NULL;
    return refuse_capture();
}

static void captured_destroy(fl_captured *captured)
{
    (void)captured;
}

static fl_status captured_launch(fl_captured *captured, fl_stream *stream)
{
    (void)captured;
    (void)stream;
    return refuse_capture();
}

const fl_group_ops fl_host_group_ops = {
    .version = FL_GROUP_OPS_VERSION,
    .size_bytes = sizeof(fl_group_ops),
    .kind = "host",
    .group_open = group_open,
    .group_connect = group_connect,
    .group_close = group_close,
    .group_abort = group_abort,
    .group_state = group_state,
    .group_all_reduce = group_all_reduce,
    .group_stats_get = group_stats_get,
    .channel_open = fl__host_channel_open,
    .channel_close = fl__host_channel_close,
    .channel_send_from = fl__host_channel_send_from,
    .channel_place = fl__host_channel_place,
    .channel_flush = fl__host_channel_flush,
    .channel_post = fl__host_channel_post,
    .channel_receive_to = fl__host_channel_receive_to,
    .mover_open = mover_open,
    .mover_close = mover_close,
    .mover_start = mover_start,
    .mover_wait = mover_wait,
    .bucket_create = fl__host_bucket_create,
    .bucket_destroy = fl__host_bucket_destroy,
    .bucket_part = fl__host_bucket_part,
    .bucket_start = fl__host_bucket_start,
    .bucket_wait = fl__host_bucket_wait,
    .bucket_can_capture = bucket_can_capture,
    .bucket_capture = bucket_capture,
    .bucket_capture_join = bucket_capture_join,
    .bucket_launched = bucket_capture_join,
    .captured_create = captured_create,
    .captured_destroy = captured_destroy,
    .captured_launch = captured_launch,
};
