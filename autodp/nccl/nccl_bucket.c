/* Buckets over NCCL: an operation in the lane's stream, behind the work that the data comes from,
 * and before the work that needs its result. The host waits for neither.
 *
 *     start   event on the caller's stream   the lane's stream waits for it, then ncclAllReduce
 *     wait    the caller's stream waits      for the event behind it
 *
 *     capture   the same, while the caller's stream is captured: both streams' work is one graph's
 *     launched  event on the caller's stream, behind the graph: only the watch thread looks at it
 *
 * A bucket has two jobs in turn: it may be started again while the device still works on what it
 * was started for before. Buckets of the same owners share a lane. */
#include "autodp/nccl/nccl_group.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <string.h>

enum { N_JOBS = 2 };

typedef struct nccl_bucket {
    fl_bucket base;
    nccl_lane *lane; /* NULL: of one owner, or of no values */
    nccl_job job[N_JOBS];
    fl_event *ready[N_JOBS];
    fl_bucket_op op[N_JOBS];
    int64_t n_started;
    bool under_way; /* started, and not waited for */
    bool launched;  /* it is under way as part of a graph */
    nccl_job capture, launch;
    fl_event *fork; /* in captured work: behind what the data comes from */
    nccl_registration registration;
} nccl_bucket;

static nccl_group *group_of(const nccl_bucket *b)
{
    return (nccl_group *)b->base.group;
}

void fl__nccl_bucket_part(const fl_bucket *bucket, int place, int64_t *first, int64_t *n)
{
    int64_t places = bucket->n_owners, begin = bucket->n * place / places;
    *first = begin;
    *n = bucket->n * (place + 1) / places - begin;
}

/* ---- on the caller thread ---- */

/* Each owner's part comes from that owner. */
static fl_nccl_result gather_parts(const nccl_bucket *b)
{
    const nccl_lane *lane = b->lane;
    const fl_nccl *nccl = &lane->group->nccl;
    fl_nccl_result result = nccl->GroupStart();
    for (int place = 0; place < lane->n_members && result == FL_NCCL_SUCCESS; place++) {
        int64_t first, n;
        fl__nccl_bucket_part(&b->base, place, &first, &n);
        float *part = (float *)b->base.data + first;
        if (n > 0) {
            result = nccl->Broadcast(part, part, (size_t)n, FL_NCCL_FLOAT32, place, lane->comm,
                                     lane->native);
        }
    }
    fl_nccl_result ended = nccl->GroupEnd(); /* in any case: groups count */
    return result == FL_NCCL_SUCCESS ? ended : result;
}

static fl_nccl_result begin_sum(nccl_job *job)
{
    const nccl_bucket *b = job->owner;
    const nccl_lane *lane = job->lane;
    if (b->op[job - b->job] == FL_ALL_GATHER) {
        return gather_parts(b);
    }
    return lane->group->nccl.AllReduce(b->base.data, b->base.data, (size_t)b->base.n,
                                       FL_NCCL_FLOAT32, FL_NCCL_SUM, lane->comm, lane->native);
}

static fl_nccl_result begin_captured_sum(nccl_job *job)
{
    const nccl_bucket *b = job->owner;
    const nccl_lane *lane = job->lane;
    return lane->group->nccl.AllReduce(b->base.data, b->base.data, (size_t)b->base.n,
                                       FL_NCCL_FLOAT32, FL_NCCL_SUM, lane->comm, lane->native);
}

/* ---- start and wait ---- */

static void count_bytes(nccl_group *g, const nccl_bucket *b, fl_bucket_op op)
{
    int64_t bytes = b->base.n * (int64_t)sizeof(float);
    int64_t others = bytes / b->base.n_owners * (b->base.n_owners - 1);
    int64_t travelled = op == FL_ALL_GATHER ? others : 2 * others;
    atomic_fetch_add(&g->sent_bytes, travelled);
    atomic_fetch_add(&g->received_bytes, travelled);
}

fl_status fl__nccl_bucket_start(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream)
{
    nccl_bucket *b = (nccl_bucket *)bucket;
    nccl_group *g = group_of(b);
    fl_device *d = g->base.device;
    int at = (int)(b->n_started % N_JOBS);
    nccl_job *job = &b->job[at];
    if (b->lane == NULL) {
        return d->ops->event_record(d, b->ready[0], stream);
    }
    if (b->under_way) {
        return fl_fail(FL_EINVAL, "started again before it was waited for");
    }
    FL_TRY(fl__nccl_state(g));
    FL_TRY(fl__nccl_lane_begin(b->lane, fl_deadline_us(g->open_timeout_ms)));
    FL_TRY(fl__nccl_job_done(job, fl_deadline_us(g->wait_timeout_ms)));
    FL_TRY(fl__nccl_device_result(g, d->ops->event_record(d, b->ready[at], stream)));
    b->op[at] = op;
    FL_TRY(fl__nccl_job_queue(job, g->wait_timeout_ms));
    count_bytes(g, b, op);
    b->n_started++;
    b->under_way = true;
    return FL_OK;
}

fl_status fl__nccl_bucket_wait(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us)
{
    nccl_bucket *b = (nccl_bucket *)bucket;
    nccl_group *g = group_of(b);
    fl_device *d = g->base.device;
    if (b->lane == NULL) {
        return d->ops->stream_wait(d, stream, b->ready[0]);
    }
    if (!b->under_way) {
        return fl_fail(FL_EINVAL, "waited for, but not started");
    }
    if (b->launched) {
        b->launched = b->under_way = false; /* it is work of the caller's stream */
        fl__nccl_job_await(&b->launch);
        return fl__nccl_state(g);
    }
    nccl_job *job = &b->job[(b->n_started - 1) % N_JOBS];
    int64_t start_us = fl_now_us();
    fl_status status = fl__nccl_job_issued(job, fl__nccl_wait_limit(g, deadline_us));
    atomic_fetch_add(&g->reduce_wait_us, fl_now_us() - start_us);
    b->under_way = false;
    FL_TRY(status);
    fl__nccl_job_await(job);
    return fl__nccl_device_result(g, d->ops->stream_wait(d, stream, job->done));
}

/* ---- in captured work ---- */

bool fl__nccl_bucket_can_capture(const fl_bucket *bucket)
{
    return bucket->group->device->ops->has_graphs;
}

fl_status fl__nccl_bucket_capture(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us)
{
    nccl_bucket *b = (nccl_bucket *)bucket;
    nccl_group *g = group_of(b);
    fl_device *d = g->base.device;
    if (b->lane == NULL) {
        return FL_OK;
    }
    FL_TRY(fl__nccl_state(g));
    FL_TRY(fl__nccl_device_result(g, d->ops->event_record(d, b->fork, stream)));
    FL_TRY(fl__nccl_job_queue(&b->capture, g->wait_timeout_ms));
    return fl__nccl_job_issued(&b->capture, fl__nccl_wait_limit(g, deadline_us));
}

fl_status fl__nccl_bucket_capture_join(fl_bucket *bucket, fl_stream *stream)
{
    nccl_bucket *b = (nccl_bucket *)bucket;
    fl_device *d = bucket->group->device;
    return b->lane == NULL ? FL_OK
                           : fl__nccl_device_result(
                                 group_of(b), d->ops->stream_wait(d, stream, b->capture.done));
}

fl_status fl__nccl_bucket_launched(fl_bucket *bucket, fl_stream *stream)
{
    nccl_bucket *b = (nccl_bucket *)bucket;
    nccl_group *g = group_of(b);
    fl_device *d = g->base.device;
    if (b->lane == NULL) {
        return d->ops->event_record(d, b->ready[0], stream);
    }
    if (b->under_way) {
        return fl_fail(FL_EINVAL, "started again before it was waited for");
    }
    FL_TRY(fl__nccl_job_done(&b->launch, fl_deadline_us(g->wait_timeout_ms)));
    FL_TRY(fl__nccl_device_result(g, d->ops->event_record(d, b->launch.done, stream)));
    FL_TRY(fl__nccl_job_note_issued(&b->launch, g->wait_timeout_ms));
    count_bytes(g, b, FL_ALL_REDUCE);
    b->under_way = b->launched = true;
    return FL_OK;
}

/* ---- create and destroy ---- */

static bool has_owners(const nccl_lane *lane, const fl_bucket_options *o)
{
    return lane->kind == NCCL_BUCKETS && lane->n_members == o->n_owners &&
           memcmp(lane->members, o->owners, (size_t)o->n_owners * sizeof *o->owners) == 0;
}

static fl_status find_lane(nccl_group *g, const fl_bucket_options *o, nccl_lane **out)
{
    nccl_lane *lane = g->lanes;
    while (lane != NULL && !has_owners(lane, o)) {
        lane = lane->next;
    }
    *out = lane;
    return lane != NULL ? FL_OK
                        : fl__nccl_lane_create(g, o->id, NCCL_BUCKETS, o->owners, o->n_owners, out);
}

static fl_status set_up(nccl_bucket *b, const fl_bucket_options *o)
{
    fl_device *d = b->base.group->device;
    for (int i = 0; i < N_JOBS; i++) {
        FL_TRY(d->ops->event_create(d, &b->ready[i]));
    }
    if (o->n_owners == 1 || o->n == 0) {
        return FL_OK;
    }
    FL_TRY(d->ops->event_create(d, &b->fork));
    FL_TRY(d->ops->event_create(d, &b->capture.done));
    FL_TRY(d->ops->event_create(d, &b->launch.done));
    nccl_lane *lane = NULL;
    FL_TRY(fl__nccl_result(group_of(b), find_lane(group_of(b), o, &lane)));
    for (int i = 0; i < N_JOBS; i++) {
        b->job[i] = (nccl_job){.lane = lane,
                               .call = "ncclAllReduce",
                               .begin = begin_sum,
                               .after = b->ready[i],
                               .owner = b};
        FL_TRY(d->ops->event_create(d, &b->job[i].done));
    }
    b->capture = (nccl_job){.lane = lane,
                            .call = "ncclAllReduce, captured",
                            .begin = begin_captured_sum,
                            .after = b->fork,
                            .done = b->capture.done,
                            .captured = true,
                            .owner = b};
    b->launch =
        (nccl_job){.lane = lane, .call = "ncclAllReduce, in a graph", .done = b->launch.done};
    b->lane = lane;
    fl__nccl_register_note(&b->registration, lane, o->data, (size_t)o->n * sizeof(float));
    return FL_OK;
}

/* An operation that is under way is given up, and the group with it. */
static bool leave_lane(nccl_bucket *b)
{
    nccl_group *g = group_of(b);
    if (b->lane == NULL) {
        return true;
    }
    if (b->under_way) {
        pthread_mutex_lock(&g->mutex);
        fl__nccl_break(g, FL_ESTALE, "a bucket was destroyed while it was under way");
        pthread_mutex_unlock(&g->mutex);
    }
    for (int i = 0; i <= N_JOBS; i++) {
        nccl_job *job = i < N_JOBS ? &b->job[i] : &b->launch;
        fl_status status = fl__nccl_job_done(job, fl_deadline_us(g->wait_timeout_ms));
        if (status != FL_OK) {
            return fl__nccl_lane_quiet(b->lane) && fl__nccl_unregister(&b->registration);
        }
    }
    return fl__nccl_unregister(&b->registration);
}

void fl__nccl_bucket_destroy(fl_bucket *bucket)
{
    nccl_bucket *b = (nccl_bucket *)bucket;
    fl_device *d = bucket->group->device;
    if (!leave_lane(b)) {
        return; /* a thread that does not come back uses it */
    }
    for (int i = 0; i < N_JOBS; i++) {
        fl_device_event_destroy(d, &b->ready[i]);
        fl_device_event_destroy(d, &b->job[i].done);
    }
    fl_device_event_destroy(d, &b->fork);
    fl_device_event_destroy(d, &b->capture.done);
    fl_device_event_destroy(d, &b->launch.done);
    fl_free(b);
}

fl_status fl__nccl_bucket_create(fl_group *group, const fl_bucket_options *o, fl_bucket **out)
{
    nccl_group *g = (nccl_group *)group;
    if (!fl_nccl_survey_all(&g->survey, o->owners, o->n_owners)) {
        return g->host->ops->bucket_create(g->host, o, out);
    }
    nccl_bucket *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->base = fl_bucket_common(group, o);
    fl_status status = set_up(b, o);
    if (status != FL_OK) {
        fl__nccl_bucket_destroy(&b->base);
        return status;
    }
    *out = &b->base;
    return FL_OK;
}
