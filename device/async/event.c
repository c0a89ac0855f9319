/* Events: a count of the recordings that were asked for, and of those whose turn has come. */
#include "device/async/parts.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

fl_status fl__async_event_create(fl_device *d, fl_event **out)
{
    fl__async *a = fl__async_of(d);
    FL_TRY(fl__async_enter(a, FL__ASYNC_event_create, NULL));
    FL_TRY(fl_alloc(sizeof **out, (void **)out));
    pthread_mutex_lock(&a->lock);
    a->n_events++;
    pthread_mutex_unlock(&a->lock);
    return FL_OK;
}

void fl__async_event_destroy(fl_device *d, fl_event **event)
{
    fl__async *a = fl__async_of(d);
    fl_event *e = *event;
    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->n_events--;
    e->destroyed = true;
    bool idle = e->n_pending == 0;
    pthread_mutex_unlock(&a->lock);
    if (idle) {
        fl_free(e);
    }
    *event = NULL;
}

void fl__event_settle(const fl__async_work *w)
{
    fl_event *e = w->event;
    if (w->entry == FL__ASYNC_event_record && e->reached < w->ticket) {
        e->reached = w->ticket;
        e->reached_us = fl_now_us();
    }
    if (--e->n_pending == 0 && e->destroyed) {
        fl_free(e);
    }
}

/* The stream's thread waits. After a failure nobody waits: the recording may never run. */
static void run_stream_wait(fl__async *a, fl_device *cpu, fl__async_work *w)
{
    (void)cpu;
    pthread_mutex_lock(&a->lock);
    fl__async_wait(
        a, (fl__async_waiter){.event = w->event, .until = w->ticket, .ends_at_failure = true});
    pthread_mutex_unlock(&a->lock);
}

/* Queue work that names the event's recording `ticket`. With the lock. */
static void queue_event(fl__async *a, fl_stream *s, fl__async_entry entry, fl_event *e,
                        uint64_t ticket, bool fails)
{
    e->n_pending++;
    fl__async_work *w = fl__stream_begin(a, s, entry);
    w->run = entry == FL__ASYNC_stream_wait ? run_stream_wait : NULL;
    w->fails = fails;
    w->event = e;
    w->ticket = ticket;
    fl__stream_push(a, s);
}

fl_status fl__async_event_record(fl_device *d, fl_event *e, fl_stream *s)
{
    fl__async *a = fl__async_of(d);
    bool fails = false;
    FL_TRY(fl__async_enter(a, FL__ASYNC_event_record, &fails));
    pthread_mutex_lock(&a->lock);
    queue_event(a, fl__stream_of(a, s), FL__ASYNC_event_record, e, ++e->recorded, fails);
    pthread_mutex_unlock(&a->lock);
    return FL_OK;
}

fl_status fl__async_event_wait(fl_device *d, fl_event *e)
{
    fl__async *a = fl__async_of(d);
    fl_status status = fl__async_enter(a, FL__ASYNC_event_wait, NULL);
    pthread_mutex_lock(&a->lock);
    fl__async_wait(a, (fl__async_waiter){.event = e, .until = e->recorded});
    pthread_mutex_unlock(&a->lock);
    return status == FL_OK ? fl__async_raise(a) : status;
}

fl_status fl__async_stream_wait(fl_device *d, fl_stream *s, fl_event *e)
{
    fl__async *a = fl__async_of(d);
    bool fails = false;
    FL_TRY(fl__async_enter(a, FL__ASYNC_stream_wait, &fails));
    pthread_mutex_lock(&a->lock);
    queue_event(a, fl__stream_of(a, s), FL__ASYNC_stream_wait, e, e->recorded, fails);
    pthread_mutex_unlock(&a->lock);
    return FL_OK;
}

fl_status fl__async_event_elapsed(fl_device *d, const fl_event *from, const fl_event *to,
                                  double *us)
{
    fl__async *a = fl__async_of(d);
    FL_TRY(fl__async_enter(a, FL__ASYNC_event_elapsed, NULL));
    pthread_mutex_lock(&a->lock);
    bool reached = from->recorded > 0 && to->recorded > 0 && from->reached == from->recorded &&
                   to->reached == to->recorded;
    double elapsed = reached ? (double)(to->reached_us - from->reached_us) : 0.0;
    pthread_mutex_unlock(&a->lock);
    if (!reached) {
        return fl_fail(FL_EINVAL,
                       "device async-test: event_elapsed: an event that was not recorded "
                       "and reached");
    }
    *us = elapsed;
    return FL_OK;
}

fl_status fl__async_event_reached(fl_device *d, fl_event *e, bool *reached)
{
    fl__async *a = fl__async_of(d);
    FL_TRY(fl__async_enter(a, FL__ASYNC_event_reached, NULL));
    pthread_mutex_lock(&a->lock);
    *reached = e->reached == e->recorded;
    if (!*reached) {
        fl__streams_start(a);
    }
    pthread_mutex_unlock(&a->lock);
    return FL_OK;
}
