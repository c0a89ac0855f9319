/* Buckets and the communication thread.
 *
 *   training thread                    communication thread
 *   start: IDLE -> QUEUED, link  --->  asleep until the queue is not empty
 *   ... backward of what is left       take the first, all-reduce it, keep its status
 *   wait:  asleep until DONE     <---  QUEUED -> DONE
 *   DONE -> IDLE, status
 *
 * The thread holds no lock while it communicates. A broken net fails each queued bucket at once. */
#include "autodp/group/gloo_group.h"
#include "autodp/net/tag.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/flight.h"
#include "device/thread_priority.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void run_bucket(gloo_group *g, gloo_bucket *b)
{
    int64_t start_us = fl_now_us();
    fl_flight_enter(FL_FLIGHT_REDUCE, -1, (int)b->base.id,
                    (int64_t)sizeof *b->base.data * b->base.n);
    bool done = false;
    b->status = b->near != NULL ? fl__shm_bucket_reduce(g, b, &done) : FL_OK;
    if (b->status == FL_OK && !done) {
        b->status = fl__gloo_reduce(g, b);
    }
    if (b->status != FL_OK) {
        snprintf(b->message, sizeof b->message, "%s", fl_errmsg());
    } else {
        fl_flight_leave();
    }
    atomic_fetch_add(&g->reduce_us, fl_now_us() - start_us);
}

static void *communicate(void *argument)
{
    gloo_group *g = argument;
    gloo_queue *q = &g->queue;
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
        gloo_bucket *b = q->first;
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

fl_status fl__gloo_queue_init(gloo_group *g)
{
    gloo_queue *q = &g->queue;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return FL_OK;
}

/* The thread and its scratch exist from the first bucket that needs them; what a failed attempt has
 * made stays for the next, or for fini. */
static fl_status ensure_thread(gloo_group *g)
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
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&g->queue.thread, NULL, communicate, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        return fl_fail(FL_ENOMEM, "communication thread: %s", strerror(rc));
    }
    g->queue.has_thread = true;
    return FL_OK;
}

void fl__gloo_queue_fini(gloo_group *g)
{
    gloo_queue *q = &g->queue;
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

fl_status fl__gloo_bucket_create(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                 float *data, int64_t n, fl_bucket **out)
{
    gloo_group *g = (gloo_group *)group;
    gloo_bucket *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->base = (fl_bucket){group, id, data, n};
    b->n_owners = n_owners;
    for (int i = 0; i < n_owners; i++) {
        if (owners[i] == group->index) {
            b->my_place = i;
            b->right = owners[(i + 1) % n_owners];
            b->left = owners[(i + n_owners - 1) % n_owners];
        }
    }
    fl_status status = FL_OK;
    if (n_owners > 1 && n > 0) {
        status = ensure_thread(g);
        if (status == FL_OK) {
            status = fl_net_buffer_create(g->net, data, (size_t)n * sizeof *data, &b->buffer);
        }
        if (status == FL_OK) {
            status = fl__shm_bucket_create(g, b, owners);
        }
    }
    if (status != FL_OK) {
        fl_net_buffer_destroy(&b->buffer);
        fl_free(b);
        return status;
    }
    *out = &b->base;
    return FL_OK;
}

/* Waits without a deadline, but only after an abort, which wakes the thread at once. */
static void wait_released(gloo_queue *q, const gloo_bucket *b)
{
    while (b->state == BUCKET_QUEUED) {
        pthread_cond_wait(&q->done, &q->mutex);
    }
}

void fl__gloo_bucket_destroy(fl_bucket *bucket)
{
    gloo_bucket *b = (gloo_bucket *)bucket;
    gloo_group *g = (gloo_group *)bucket->group;
    if (b->buffer != NULL) {
        pthread_mutex_lock(&g->queue.mutex);
        if (b->state == BUCKET_QUEUED) {
            fl_net_abort(g->net, FL_ESTALE);
            wait_released(&g->queue, b);
        }
        pthread_mutex_unlock(&g->queue.mutex);
        fl__shm_bucket_destroy(b);
        fl_net_buffer_destroy(&b->buffer);
    }
    fl_free(b);
}

fl_status fl__gloo_bucket_start(fl_bucket *bucket)
{
    gloo_bucket *b = (gloo_bucket *)bucket;
    gloo_group *g = (gloo_group *)bucket->group;
    gloo_queue *q = &g->queue;
    if (b->buffer == NULL) {
        return FL_OK;
    }
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

static struct timespec at(int64_t deadline_us)
{
    return (struct timespec){.tv_sec = deadline_us / 1000000,
                             .tv_nsec = deadline_us % 1000000 * 1000};
}

fl_status fl__gloo_bucket_wait(fl_bucket *bucket, int64_t deadline_us)
{
    gloo_bucket *b = (gloo_bucket *)bucket;
    gloo_group *g = (gloo_group *)bucket->group;
    gloo_queue *q = &g->queue;
    if (b->buffer == NULL) {
        return FL_OK;
    }
    int64_t start_us = fl_now_us();
    struct timespec deadline = at(deadline_us);
    pthread_mutex_lock(&q->mutex);
    bool started = b->state != BUCKET_IDLE;
    int rc = 0;
    while (b->state == BUCKET_QUEUED && rc == 0) {
        rc = pthread_cond_timedwait(&q->done, &q->mutex, &deadline);
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
