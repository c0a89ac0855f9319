/* The copy thread, for devices that do not compute in host memory: it waits for copies in the order
 * of their start, so that the training thread does not wait for its device, and then
 *
 *     at a sender     sends the message, which lies in the buffer now
 *     at a receiver   releases the buffer, which was read
 *
 * A copy that fails breaks the net, so that no wait goes on, and its failure is what every later
 * call reports. Waits for the device have no deadline: it ends its work, or fails. */
#include "autodp/group/host_group.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"

#include <stdio.h>

static fl_status finish_copy(host_copy *copy)
{
    host_channel *c = copy->channel;
    fl_device *d = c->base.group->device;
    FL_TRY(fl__host_drained(d, copy->stream, d->ops->event_wait(d, copy->event)));
    if (c->base.sending) {
        return c->ops->send(c, copy->n, copy->size_bytes);
    }
    if (c->ops->release != NULL) {
        c->ops->release(c, copy->n);
    }
    return FL_OK;
}

/* A net that is broken already has its own reason. The mutex is held. */
static void note_failure(host_group *g, const host_copy *copy, fl_status status)
{
    if (g->copies.failed != FL_OK || fl_status_is_regroup(status)) {
        return;
    }
    const fl_channel *c = &copy->channel->base;
    snprintf(g->copies.message, sizeof g->copies.message, "copying message %lld %s member %d: %s",
             (long long)copy->n, c->sending ? "to" : "from", c->peer, fl_errmsg());
    g->copies.failed = status;
    fl_net_abort(g->net, FL_ESTALE);
}

static void *watch_copies(void *argument)
{
    host_group *g = argument;
    copy_queue *q = &g->copies;
    fl_thread_raise_priority(true);
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        while (q->first == NULL && !q->stop) {
            pthread_cond_wait(&q->work, &q->mutex);
        }
        if (q->first == NULL) {
            break;
        }
        host_copy *copy = q->first;
        pthread_mutex_unlock(&q->mutex);
        fl_status status = finish_copy(copy);
        pthread_mutex_lock(&q->mutex);
        if (status != FL_OK) {
            note_failure(g, copy, status);
        }
        q->first = copy->next;
        if (q->first == NULL) {
            q->last = NULL;
        }
        copy->under_way = false;
        pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

void fl__copy_queue_init(host_group *g)
{
    pthread_mutex_init(&g->copies.mutex, NULL);
    pthread_cond_init(&g->copies.work, NULL);
    fl_condition_init(&g->copies.done);
}

fl_status fl__copy_queue_start(host_group *g)
{
    if (!g->copies.has_thread) {
        FL_TRY(fl_thread_start(&g->copies.thread, watch_copies, g, "the copy thread"));
        g->copies.has_thread = true;
    }
    return FL_OK;
}

/* All channels are closed, so the queue is empty. */
void fl__copy_queue_fini(host_group *g)
{
    copy_queue *q = &g->copies;
    if (q->has_thread) {
        pthread_mutex_lock(&q->mutex);
        q->stop = true;
        pthread_cond_signal(&q->work);
        pthread_mutex_unlock(&q->mutex);
        pthread_join(q->thread, NULL);
    }
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->mutex);
}

fl_status fl__copy_begin(host_copy *copy, fl_stream *stream)
{
    host_group *g = fl__host_group_of(copy->channel);
    copy_queue *q = &g->copies;
    fl_device *d = g->base.device;
    copy->stream = stream;
    FL_TRY(fl__host_drained(d, stream, d->ops->event_record(d, copy->event, stream)));
    pthread_mutex_lock(&q->mutex);
    copy->under_way = true;
    copy->next = NULL;
    if (q->last != NULL) {
        q->last->next = copy;
    } else {
        q->first = copy;
    }
    q->last = copy;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->mutex);
    return FL_OK;
}

/* Looks at the net now and then: an abort does not ring here. */
fl_status fl__copy_wait(host_copy *copy, int64_t deadline_us)
{
    enum { SLICE_MS = 10 };
    host_group *g = fl__host_group_of(copy->channel);
    copy_queue *q = &g->copies;
    fl_status status = FL_OK;
    deadline_us = fl_net_wait_limit(g->net, deadline_us);
    pthread_mutex_lock(&q->mutex);
    while (copy->under_way && status == FL_OK) {
        int64_t slice_us = fl_deadline_us(SLICE_MS);
        bool in_time = fl_condition_wait_until(&q->done, &q->mutex,
                                               slice_us < deadline_us ? slice_us : deadline_us);
        status = fl_net_state(g->net);
        if (status == FL_OK && !in_time && copy->under_way && fl_now_us() >= deadline_us) {
            fl_net_abort(g->net, FL_EDEADLINE);
            status = fl_fail(FL_EDEADLINE, "the device has not finished a copy in time");
        }
    }
    pthread_mutex_unlock(&q->mutex);
    return status;
}

void fl__copy_fini(host_copy *copy)
{
    host_group *g = fl__host_group_of(copy->channel);
    fl_device *d = g->base.device;
    pthread_mutex_lock(&g->copies.mutex);
    while (copy->under_way) {
        pthread_cond_wait(&g->copies.done, &g->copies.mutex);
    }
    pthread_mutex_unlock(&g->copies.mutex);
    if (copy->event != NULL) {
        d->ops->event_destroy(d, &copy->event);
    }
}
