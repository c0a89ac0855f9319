/* Buckets, and the communication thread, which runs them in the order in which they were started.
 *
 *   training thread                    communication thread
 *   start: IDLE -> QUEUED, link  --->  asleep until the queue is not empty
 *                                      take the first; wait until its stream has come so far
 *                                      staged: copy what is needed from the device
 *   ... backward of what is left       run it through its transport, keep its status
 *                                      staged: copy the result to the device
 *   wait:  asleep until DONE     <---  QUEUED -> DONE
 *   DONE -> IDLE, status; its stream waits for the last copy
 *
 * The thread holds no lock while it communicates. A broken net fails each queued bucket at once. */
#include "autodp/group/host_group.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"

#include <stdio.h>

static host_group *group_of(const host_bucket *b)
{
    return (host_group *)b->base.group;
}

void fl__host_add(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

span fl__span_part(span whole, int part, int n_parts)
{
    int64_t at = part % n_parts, begin = whole.n * at / n_parts;
    return (span){whole.first + begin, whole.n * (at + 1) / n_parts - begin};
}

void fl__host_bucket_part(const fl_bucket *bucket, int place, int64_t *first, int64_t *n)
{
    const host_bucket *b = (const host_bucket *)bucket;
    span part = b->ops != NULL ? b->ops->part(b, place)
                               : fl__span_part((span){0, bucket->n}, place, bucket->n_owners);
    *first = part.first;
    *n = part.n;
}

/* ---- the communication thread ---- */

static span whole_of(const host_bucket *b)
{
    return (span){0, b->base.n};
}

static span my_part(const host_bucket *b)
{
    return b->ops->part(b, b->base.my_place);
}

/* Copy these elements between the device and where they are staged. */
static fl_status copy_staged(host_bucket *b, span s, bool in)
{
    fl_device *d = group_of(b)->base.device;
    fl_stream *stream = group_of(b)->buckets.stream;
    float *device = (float *)b->base.data + s.first, *staged = b->data + s.first;
    size_t size_bytes = (size_t)s.n * sizeof *staged;
    if (size_bytes == 0) {
        return FL_OK;
    }
    if (b->on_device) {
        return in ? d->ops->copy(d, stream, device, staged, size_bytes)
                  : d->ops->copy(d, stream, staged, device, size_bytes);
    }
    return in ? d->ops->copy_in(d, stream, device, staged, size_bytes)
              : d->ops->copy_out(d, stream, staged, device, size_bytes);
}

static fl_status run_staged(host_bucket *b)
{
    fl_device *d = group_of(b)->base.device;
    fl_stream *stream = group_of(b)->buckets.stream;
    FL_TRY(d->ops->stream_wait(d, stream, b->ready));
    FL_TRY(copy_staged(b, b->op == FL_ALL_GATHER ? my_part(b) : whole_of(b), false));
    FL_TRY(d->ops->sync(d, stream));
    FL_TRY(b->ops->run(b));
    FL_TRY(copy_staged(b, b->op == FL_REDUCE_SCATTER ? my_part(b) : whole_of(b), true));
    return d->ops->event_record(d, b->done, stream);
}

static fl_status run_direct(host_bucket *b)
{
    fl_device *d = group_of(b)->base.device;
    FL_TRY(d->ops->event_wait(d, b->ready));
    return b->ops->run(b);
}

static void run_bucket(host_group *g, host_bucket *b)
{
    int64_t start_us = fl_now_us();
    fl_flight_enter(FL_FLIGHT_REDUCE, -1, (int)b->base.id,
                    (int64_t)fl_dtype_size(b->base.dtype) * b->base.n);
    b->status = b->staged ? run_staged(b) : run_direct(b);
    if (b->status != FL_OK) {
        snprintf(b->message, sizeof b->message, "%s", fl_errmsg());
    } else {
        fl_flight_leave();
    }
    atomic_fetch_add(&g->reduce_us, fl_now_us() - start_us);
}

static void *communicate(void *argument)
{
    host_group *g = argument;
    bucket_queue *q = &g->buckets;
    fl_flight_thread(FL_FLIGHT_REDUCER, g->base.generation);
    fl_thread_raise_priority(true);
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        while (q->first == NULL && !q->stop) {
            pthread_cond_wait(&q->work, &q->mutex);
        }
        if (q->first == NULL) {
            break;
        }
        host_bucket *b = q->first;
        pthread_mutex_unlock(&q->mutex);
        run_bucket(g, b);
        pthread_mutex_lock(&q->mutex);
        q->first = b->next;
        if (q->first == NULL) {
            q->last = NULL;
        }
        b->state = BUCKET_DONE;
        pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->mutex);
    fl_flight_thread_end();
    return NULL;
}

/* ---- the queue ---- */

void fl__bucket_queue_init(host_group *g)
{
    bucket_queue *q = &g->buckets;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->work, NULL);
    fl_condition_init(&q->done);
}

/* The thread exists from the first bucket that needs it. */
static fl_status start_thread(host_group *g)
{
    if (!g->buckets.has_thread) {
        FL_TRY(fl_thread_start(&g->buckets.thread, communicate, g, "the communication thread"));
        g->buckets.has_thread = true;
    }
    return FL_OK;
}

void fl__bucket_queue_fini(host_group *g)
{
    bucket_queue *q = &g->buckets;
    fl_device *d = g->base.device;
    if (q->has_thread) {
        pthread_mutex_lock(&q->mutex);
        q->stop = true;
        bool unfinished = q->first != NULL;
        pthread_cond_signal(&q->work);
        pthread_mutex_unlock(&q->mutex);
        if (unfinished) {
            fl_net_abort(g->net, FL_ESTALE);
        }
        pthread_join(q->thread, NULL);
    }
    if (q->stream != NULL) {
        d->ops->stream_destroy(d, &q->stream);
    }
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->mutex);
    fl_net_buffer_destroy(&g->scratch_buffer);
    fl_free(g->scratch);
}

/* Waits without a deadline, but only after an abort, which ends every wait for a member; the device
 * ends its work by itself. */
static void wait_released(bucket_queue *q, const host_bucket *b)
{
    while (b->state == BUCKET_QUEUED) {
        pthread_cond_wait(&q->done, &q->mutex);
    }
}

/* Breaks the net if the bucket is under way. */
static void remove_bucket(host_bucket *b)
{
    host_group *g = group_of(b);
    pthread_mutex_lock(&g->buckets.mutex);
    if (b->state == BUCKET_QUEUED) {
        fl_net_abort(g->net, FL_ESTALE);
        wait_released(&g->buckets, b);
    }
    pthread_mutex_unlock(&g->buckets.mutex);
}

/* ---- start and wait ---- */

static fl_status queue_bucket(host_bucket *b)
{
    bucket_queue *q = &group_of(b)->buckets;
    pthread_mutex_lock(&q->mutex);
    bool free = b->state == BUCKET_IDLE;
    if (free) {
        b->state = BUCKET_QUEUED;
        b->next = NULL;
        if (q->last != NULL) {
            q->last->next = b;
        } else {
            q->first = b;
        }
        q->last = b;
        pthread_cond_signal(&q->work);
    }
    pthread_mutex_unlock(&q->mutex);
    return free ? FL_OK : fl_fail(FL_EINVAL, "started again before it was waited for");
}

fl_status fl__host_bucket_start(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream)
{
    host_bucket *b = (host_bucket *)bucket;
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    FL_TRY(d->ops->event_record(d, b->ready, stream));
    if (b->ops == NULL) {
        return FL_OK;
    }
    FL_TRY(fl__host_result(g, fl_net_state(g->net)));
    b->op = op;
    return queue_bucket(b);
}

/* Whether it was started; its status is known then. */
static bool wait_for_thread(host_bucket *b, int64_t deadline_us)
{
    host_group *g = group_of(b);
    bucket_queue *q = &g->buckets;
    pthread_mutex_lock(&q->mutex);
    bool started = b->state != BUCKET_IDLE;
    bool in_time = true;
    while (b->state == BUCKET_QUEUED && in_time) {
        in_time = fl_condition_wait_until(&q->done, &q->mutex, deadline_us);
    }
    if (b->state == BUCKET_QUEUED) {
        fl_net_abort(g->net, FL_EDEADLINE);
        wait_released(q, b);
    }
    b->state = BUCKET_IDLE;
    pthread_mutex_unlock(&q->mutex);
    return started;
}

fl_status fl__host_bucket_wait(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us)
{
    host_bucket *b = (host_bucket *)bucket;
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    if (b->ops == NULL) {
        return d->ops->stream_wait(d, stream, b->ready);
    }
    int64_t start_us = fl_now_us();
    bool started = wait_for_thread(b, deadline_us);
    atomic_fetch_add(&g->reduce_wait_us, fl_now_us() - start_us);
    if (!started) {
        return fl_fail(FL_EINVAL, "waited for, but not started");
    }
    if (b->status != FL_OK) {
        return fl__host_result(g, fl_fail(b->status, "%s", b->message));
    }
    return b->staged ? d->ops->stream_wait(d, stream, b->done) : FL_OK;
}

/* ---- create and destroy ---- */

/* The data is the caller's again, also if the last operation was not waited for, or has failed: its
 * status is known where it was waited for. */
static void finish_copies(host_bucket *b)
{
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    if (b->staged) {
        fl_status known = d->ops->sync(d, g->buckets.stream);
        (void)known;
    }
}

void fl__host_bucket_destroy(fl_bucket *bucket)
{
    host_bucket *b = (host_bucket *)bucket;
    fl_device *d = bucket->group->device;
    if (b->ops != NULL) {
        remove_bucket(b);
        finish_copies(b);
        b->ops->close(b);
    }
    if (b->ready != NULL) {
        d->ops->event_destroy(d, &b->ready);
    }
    if (b->done != NULL) {
        d->ops->event_destroy(d, &b->done);
    }
    fl_free(b);
}

/* Whether the devices of all owners read each other's memory. */
static bool devices_share(const host_group *g, const fl_bucket_options *o)
{
    for (int i = 0; i < o->n_owners; i++) {
        for (int j = i + 1; j < o->n_owners; j++) {
            if (!fl_shm_segment_reads_device(g->segment, o->owners[i], o->owners[j])) {
                return false;
            }
        }
    }
    return true;
}

static fl_status stage_data(host_bucket *b, const fl_bucket_options *o)
{
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    const fl_shared *shared;
    b->on_device = b->ops->shares_data && devices_share(g, o);
    staging_kind kind = b->on_device          ? STAGED_ON_DEVICE
                        : b->ops->shares_data ? STAGED_SHARED
                                              : STAGED_ALONE;
    FL_TRY(fl__staging_get(g, (size_t)b->base.n * sizeof *b->data, kind, &b->data, &shared));
    if (shared != NULL) {
        b->key = fl_shared_key_of(shared);
    }
    if (g->buckets.stream == NULL) {
        FL_TRY(d->ops->stream_create(d, &g->buckets.stream));
    }
    b->staged = true;
    return d->ops->event_create(d, &b->done);
}

/* Where the transport finds the data: where the device has it, if all that need it can read it. */
static fl_status locate_data(host_bucket *b, const fl_bucket_options *o)
{
    bool readable = fl__host_is_direct(group_of(b)) && (o->shared != NULL || !b->ops->shares_data);
    if (!readable) {
        return stage_data(b, o);
    }
    b->data = o->data;
    if (o->shared != NULL) {
        b->key = fl_shared_key_of(o->shared);
        b->offset_bytes = o->offset_bytes;
    }
    return FL_OK;
}

static fl_status set_up(host_bucket *b, const fl_bucket_options *o)
{
    host_group *g = group_of(b);
    fl_device *d = g->base.device;
    FL_TRY(d->ops->event_create(d, &b->ready));
    if (b->ops == NULL) {
        return FL_OK;
    }
    FL_TRY(locate_data(b, o));
    FL_TRY(start_thread(g));
    return b->ops->open(b, o->owners);
}

fl_status fl__host_bucket_create(fl_group *group, const fl_bucket_options *o, fl_bucket **out)
{
    const host_transport *transport =
        fl__host_transport_of((host_group *)group, o->owners, o->n_owners);
    bool alone = o->n_owners == 1 || o->n == 0;
    host_bucket *b = NULL;
    FL_TRY(fl_alloc(transport->buckets->size_bytes, (void **)&b));
    b->ops = alone ? NULL : transport->buckets;
    b->base = fl_bucket_common(group, o);
    fl_status status = set_up(b, o);
    if (status != FL_OK) {
        fl__host_bucket_destroy(&b->base);
        return status;
    }
    *out = &b->base;
    return FL_OK;
}
