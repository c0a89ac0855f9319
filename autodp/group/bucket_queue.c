/* The communication thread, which runs the all-reduces of all buckets in the order in which they
 * were started.
 *
 *   training thread                    communication thread
 *   start: IDLE -> QUEUED, link  --->  asleep until the queue is not empty
 *   ... backward of what is left       take the first, all-reduce it, keep its status
 *   wait:  asleep until DONE     <---  QUEUED -> DONE
 *   DONE -> IDLE, status
 *
 * The thread holds no lock while it communicates. A broken net fails each queued bucket at once. */
#include "autodp/group/host_group.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/flight.h"
#include "device/thread.h"
#include "device/thread_priority.h"

#include <stdio.h>

static void run_bucket(host_group *g, host_bucket *b)
{
    int64_t start_us = fl_now_us();
    fl_flight_enter(FL_FLIGHT_REDUCE, -1, (int)b->base.id,
                    (int64_t)sizeof *b->base.data * b->base.n);
    b->status = b->reduce(b);
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
    bucket_queue *q = &g->queue;
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

void fl__bucket_queue_init(host_group *g)
{
    bucket_queue *q = &g->queue;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->work, NULL);
    fl_condition_init(&q->done);
}

/* The thread and its scratch memory exist from the first bucket that needs them. After a failed
 * attempt, the part that was created stays for the next one, or for fini. */
fl_status fl__bucket_queue_start(host_group *g)
{
    size_t n = (size_t)FL_GLOO_WINDOW * FL_GLOO_CHUNK;
    if (g->queue.has_thread) {
        return FL_OK;
    }
    if (g->scratch == NULL) {
        FL_TRY(fl_alloc_array(n, sizeof(float), (void **)&g->scratch));
    }
    if (g->scratch_buffer == NULL) {
        FL_TRY(fl_net_buffer_create(g->net, g->scratch, n * sizeof(float), &g->scratch_buffer));
    }
    FL_TRY(fl_thread_start(&g->queue.thread, communicate, g, "the communication thread"));
    g->queue.has_thread = true;
    return FL_OK;
}

void fl__bucket_queue_fini(host_group *g)
{
    bucket_queue *q = &g->queue;
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
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->mutex);
    fl_net_buffer_destroy(&g->scratch_buffer);
    fl_free(g->scratch);
}

/* Waits without a deadline, but only after an abort, which wakes the thread at once. */
static void wait_released(bucket_queue *q, const host_bucket *b)
{
    while (b->state == BUCKET_QUEUED) {
        pthread_cond_wait(&q->done, &q->mutex);
    }
}

void fl__bucket_queue_remove(host_bucket *b)
{
    host_group *g = fl__host_group_of(b);
    pthread_mutex_lock(&g->queue.mutex);
    if (b->state == BUCKET_QUEUED) {
        fl_net_abort(g->net, FL_ESTALE);
        wait_released(&g->queue, b);
    }
    pthread_mutex_unlock(&g->queue.mutex);
}

fl_status fl__host_bucket_start(fl_bucket *bucket)
{
    host_bucket *b = (host_bucket *)bucket;
    host_group *g = (host_group *)bucket->group;
    bucket_queue *q = &g->queue;
    FL_TRY(fl_net_state(g->net));
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

fl_status fl__host_bucket_wait(fl_bucket *bucket, int64_t deadline_us)
{
    host_bucket *b = (host_bucket *)bucket;
    host_group *g = (host_group *)bucket->group;
    bucket_queue *q = &g->queue;
    int64_t start_us = fl_now_us();
    pthread_mutex_lock(&q->mutex);
    bool started = b->state != BUCKET_IDLE;
    bool in_time = true;
    while (b->state == BUCKET_QUEUED && in_time) {
        in_time = fl_condition_wait_until(&q->done, &q->mutex, deadline_us);
    }
    bool late = b->state == BUCKET_QUEUED;
    if (late) {
        fl_net_abort(g->net, FL_EDEADLINE);
        wait_released(q, b);
    }
    b->state = BUCKET_IDLE;
    pthread_mutex_unlock(&q->mutex);
    atomic_fetch_add(&g->reduce_wait_us, fl_now_us() - start_us);
    if (!started) {
        return fl_fail(FL_EINVAL, "waited for, but not started");
    }
    return b->status == FL_OK ? FL_OK : fl_fail(b->status, "%s", b->message);
}
