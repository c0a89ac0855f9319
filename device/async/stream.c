/* Streams: a thread each, with a queue of work. */
#include "device/async/parts.h"

#include "device/async/touch.h"
#include "device/cpu/cpu.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/system/thread.h"

#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { ONE_IN = 4, TIMER_SLACK_NS = 1000, BATCH = 8 };

/* ---- waits ----
 *
 * A wake-up costs more than most pieces of work. So each thread that waits has a condition of its
 * own, and is woken once: when what it waits for has come. And a stream without work sleeps on
 * until BATCH pieces are queued, or until somebody waits, or asks whether an event was reached. */

/* Let all streams begin what they have. With the lock. */
void fl__streams_start(fl__async *a)
{
    for (fl_stream *s = a->streams; s != NULL; s = s->next) {
        if (s->n_done < s->n_queued) {
            s->started = true;
            pthread_cond_signal(&s->wake);
        }
    }
}

static bool is_over(const fl__async *a, const fl__async_waiter *w)
{
    if (w->ends_at_failure && a->failure.status != FL_OK) {
        return true;
    }
    return w->stream != NULL  ? w->stream->n_done >= w->until
           : w->event != NULL ? w->event->reached >= w->until
                              : false;
}

void fl__async_wait(fl__async *a, fl__async_waiter how)
{
    if (is_over(a, &how)) {
        return;
    }
    fl__streams_start(a);
    pthread_cond_init(&how.wake, NULL);
    how.next = a->waiters;
    a->waiters = &how;
    while (!how.woken) {
        pthread_cond_wait(&how.wake, &a->lock);
    }
    pthread_cond_destroy(&how.wake);
}

/* A piece of work is done. With the lock. */
static void wake_waiters(fl__async *a)
{
    for (fl__async_waiter **at = &a->waiters; *at != NULL;) {
        fl__async_waiter *w = *at;
        bool any_piece = w->stream == NULL && w->event == NULL;
        if (!any_piece && !is_over(a, w)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->woken = true;
        pthread_cond_signal(&w->wake);
    }
}

/* ---- the stream's thread ---- */

/* Before one piece in four, up to the most that the options allow: a function of the seed alone.
 * With the lock, which it leaves meanwhile. */
static void pause_before(const fl_stream *s, uint64_t number)
{
    fl__async *a = s->device;
    uint64_t bits = fl_mix64(s->seed, number);
    if (a->o.max_delay_us > 0 && bits % ONE_IN == 0) {
        int64_t us = (int64_t)((bits >> 8) % (uint64_t)(a->o.max_delay_us + 1));
        pthread_mutex_unlock(&a->lock);
        nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
        pthread_mutex_lock(&a->lock);
    }
}

/* With the lock. */
static void keep_failure(fl__async *a, fl_status status)
{
    if (status != FL_OK && a->failure.status == FL_OK) {
        fl_failure_keep(&a->failure, status);
    }
}

/* Whether it is to be run: not if it fails on request, and not after a failure. With the lock. */
static bool check_turn(fl__async *a, const fl__async_work *w)
{
    if (w->fails) {
        keep_failure(a, fl_fail(FL_EIO,
                                "device async-test: the work of call %llu of %s failed, on "
                                "request",
                                (unsigned long long)w->number, fl__async_entry_name(w->entry)));
    }
    return a->failure.status == FL_OK;
}

/* With the lock. */
static void finish_work(fl_stream *s, fl__async_work *w)
{
    fl__async *a = s->device;
    keep_failure(a, w->status);
    if (w->event != NULL) {
        fl__event_settle(w);
    }
    s->n_done++;
    wake_waiters(a);
}

/* With the lock, which it leaves while the work runs. */
static void run_work(fl_stream *s, fl__async_work *w)
{
    fl__async *a = s->device;
    pause_before(s, s->n_done);
    if (check_turn(a, w) && w->run != NULL) {
        pthread_mutex_unlock(&a->lock);
        fl__touch_running(fl__async_entry_name(w->entry));
        w->run(a, s->cpu, w);
        fl__touch_running(NULL);
        pthread_mutex_lock(&a->lock);
    }
    finish_work(s, w);
}

/* A CPU device belongs to the thread that made it: its compute threads are set up for that one. */
static fl_status open_cpu(fl_stream *s, fl_device **out)
{
    const fl_async_options *o = &s->device->o;
    FL_TRY(fl_device_cpu_create(o->n_threads, o->cpu_ids, SIZE_MAX, out));
    fl_status status = o->isa == NULL ? FL_OK : fl__cpu_isa_set(*out, o->isa);
    if (status != FL_OK) {
        fl_device_destroy(out);
    }
    return status;
}

/* The next piece of work, or NULL at the end. With the lock. */
static fl__async_work *next_work(fl_stream *s)
{
    fl__async *a = s->device;
    s->started = s->started && s->n_done < s->n_queued;
    while ((!s->started || a->held) && !s->closing) {
        pthread_cond_wait(&s->wake, &a->lock);
    }
    return s->n_done == s->n_queued ? NULL : &s->queue[s->n_done % FL__ASYNC_QUEUE];
}

static void *run_stream(void *argument)
{
    fl_stream *s = argument;
    fl__async_work *w;
    fl_device *cpu = NULL;
    fl_status status = open_cpu(s, &cpu);
    fl__touch_watch_thread();
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    pthread_mutex_lock(&s->device->lock);
    fl_failure_keep(&s->failure, status);
    s->cpu = cpu;
    s->opened = true;
    pthread_cond_signal(&s->wake);
    while (status == FL_OK && (w = next_work(s)) != NULL) {
        run_work(s, w);
    }
    pthread_mutex_unlock(&s->device->lock);
    fl_device_destroy(&cpu);
    return NULL;
}

/* ---- opening and closing ---- */

static void add_to_list(fl__async *a, fl_stream *s)
{
    pthread_mutex_lock(&a->lock);
    s->next = a->streams;
    a->streams = s;
    pthread_mutex_unlock(&a->lock);
}

static void take_from_list(fl__async *a, fl_stream *s)
{
    pthread_mutex_lock(&a->lock);
    fl_stream **at = &a->streams;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    pthread_mutex_unlock(&a->lock);
}

static fl_status wait_until_open(fl_stream *s)
{
    fl__async *a = s->device;
    pthread_mutex_lock(&a->lock);
    while (!s->opened) {
        pthread_cond_wait(&s->wake, &a->lock);
    }
    fl_status status = fl_failure_raise(&s->failure);
    pthread_mutex_unlock(&a->lock);
    return status;
}

fl_status fl__stream_open(fl__async *a, fl_stream **out)
{
    fl_stream *s = NULL;
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    pthread_cond_init(&s->wake, NULL);
    pthread_mutex_lock(&a->lock);
    s->device = a;
    s->seed = fl_mix64(a->o.seed, a->n_streams_made++);
    pthread_mutex_unlock(&a->lock);
    fl_status status = fl_thread_start(&s->thread, run_stream, s, "a stream's thread");
    if (status != FL_OK) {
        pthread_cond_destroy(&s->wake);
        fl_free(s);
        return status;
    }
    add_to_list(a, s);
    status = wait_until_open(s);
    if (status != FL_OK) {
        fl__stream_close(&s);
        return status;
    }
    *out = s;
    return FL_OK;
}

void fl__stream_close(fl_stream **stream)
{
    fl_stream *s = *stream;
    fl__async *a = s->device;
    pthread_mutex_lock(&a->lock);
    s->closing = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(s->thread, NULL);
    take_from_list(a, s);
    pthread_cond_destroy(&s->wake);
    fl_free(s);
    *stream = NULL;
}

fl_status fl__async_stream_create(fl_device *d, fl_stream **out)
{
    fl__async *a = fl__async_of(d);
    FL_TRY(fl__async_enter(a, FL__ASYNC_stream_create, NULL));
    return fl__stream_open(a, out);
}

void fl__async_stream_destroy(fl_device *d, fl_stream **s)
{
    (void)d;
    if (*s != NULL) {
        fl__stream_close(s);
    }
}

/* It waits even after a failure: what the work used may be given back after this. */
fl_status fl__async_sync(fl_device *d, fl_stream *stream)
{
    fl__async *a = fl__async_of(d);
    fl_stream *s = fl__stream_of(a, stream);
    fl_status status = fl__async_enter(a, FL__ASYNC_sync, NULL);
    pthread_mutex_lock(&a->lock);
    fl__async_wait(a, (fl__async_waiter){.stream = s, .until = s->n_queued});
    pthread_mutex_unlock(&a->lock);
    return status == FL_OK ? fl__async_raise(a) : status;
}

void fl_device_async_hold(fl_device *device, bool held)
{
    fl__async *a = fl__async_of(device);
    pthread_mutex_lock(&a->lock);
    a->held = held;
    for (fl_stream *s = a->streams; s != NULL; s = s->next) {
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- the queue ---- */

fl__async_work *fl__stream_begin(fl__async *a, fl_stream *s, fl__async_entry entry)
{
    while (s->n_queued - s->n_done == FL__ASYNC_QUEUE) {
        fl__async_wait(a, (fl__async_waiter){.stream = s, .until = s->n_done + 1});
    }
    fl__async_work *w = &s->queue[s->n_queued % FL__ASYNC_QUEUE];
    *w = (fl__async_work){.entry = entry, .number = atomic_load(&a->n_calls[entry])};
    return w;
}

void fl__stream_push(fl__async *a, fl_stream *s)
{
    s->n_queued++;
    if (!s->started && (a->waiters != NULL || s->n_queued - s->n_done >= BATCH)) {
        s->started = true;
        pthread_cond_signal(&s->wake);
    }
}

/* Whether [a, a + n) and [b, b + m) have a byte in common. */
static bool overlap(const void *a, size_t n, const void *b, size_t m)
{
    const char *p = a, *q = b;
    return n > 0 && m > 0 && p < q + m && q < p + n;
}

bool fl__async_host_busy(const fl__async *a, const void *memory, size_t size_bytes, bool written)
{
    for (const fl_stream *s = a->streams; memory != NULL && s != NULL; s = s->next) {
        for (uint64_t i = s->n_done; i < s->n_queued; i++) {
            const fl__async_host_range *h = &s->queue[i % FL__ASYNC_QUEUE].host;
            if ((h->written || !written) && overlap(h->memory, h->size_bytes, memory, size_bytes)) {
                return true;
            }
        }
    }
    return false;
}

static bool uses(const fl__async_work *w, const void *bytes, size_t size_bytes)
{
    if (w->kernel != NULL) {
        return fl__async_kernel_uses(w, bytes, size_bytes);
    }
    return overlap(w->to, w->size_bytes, bytes, size_bytes) ||
           overlap(w->from, w->size_bytes, bytes, size_bytes);
}

const fl__async_work *fl__async_user_of(const fl__async *a, const void *bytes, size_t size_bytes)
{
    for (const fl_stream *s = a->streams; s != NULL; s = s->next) {
        for (uint64_t i = s->n_done; i < s->n_queued; i++) {
            if (uses(&s->queue[i % FL__ASYNC_QUEUE], bytes, size_bytes)) {
                return &s->queue[i % FL__ASYNC_QUEUE];
            }
        }
    }
    return NULL;
}
