/* The worker's side of the control link.
 *
 *     training thread ① report ──> queue ② ──> link thread ③ ──> head
 *                     ④ verdict <── word  <── link thread    <── head
 *                     on_abort ⑤          <── link thread    <── head's order, or the head is gone
 *
 * The link thread sleeps in one poll. It wakes when an order comes, and every slice of at most
 * 20 ms, when it sends all that was reported since as one message; a report costs the training
 * thread a copy of some hundred bytes and never a system call. Only what the head waits for
 * (ready, failed, done) wakes the link thread at once. */
#include "control/link.h"

#include "autodp/store.h"
#include "control/queue.h"
#include "control/wire.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum {
    QUEUE_START_BYTES = 256 * 1024,
    QUEUE_LIMIT_BYTES = 64 * 1024 * 1024,
    SMALL_FRAME_BYTES = FL_WIRE_HEADER_BYTES + 64,
    SLICE_MS = 20, /* what a killed worker may have left unsaid */
    FLUSH_MS = 1000,
    ORPHAN_MS = 2000,  /* from the head's death to this process's own */
    TERMINATE_MS = 500 /* for the head to say that a SIGTERM is for the whole run */
};

struct fl_link {
    int rank;
    int64_t heartbeat_us, slice_ms;
    void (*on_abort)(void *context, uint32_t generation, fl_status why);
    void *context;
    pid_t head;
    void *zmq, *socket;
    int wake_fd, signal_fd;
    pthread_t thread;
    fl_queue queue;
    fl_store_client *store;
    fl_kv kv;

    /* from the training thread */
    _Atomic uint32_t generation;
    _Atomic int64_t steps;
    _Atomic(const char *) operation;
    atomic_bool closing;
    /* to it, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    fl_verdict verdict;      /* kind NONE: there is none */
    atomic_bool has_verdict; /* looked at first, so that a step takes no lock */
    int n_wakes;             /* not yet taken by fl_link_wait_wake */

    /* the link thread's own */
    const unsigned char *unsent; /* taken from the queue, not yet accepted by the socket */
    size_t n_unsent;
    int64_t heartbeat_sent_us, heard_us;
    int64_t orphaned_us, terminated_us; /* when the head died, when a SIGTERM came; 0: not yet */
    bool aborted, run_is_stopping, told_of_silence;
};

/* ---- link thread ---- */

/* One part of a message; the transport takes a message whole or not at all. */
static bool send_part(fl_link *link, const void *bytes, size_t n, bool more)
{
    return zmq_send(link->socket, bytes, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

static bool send_topic(fl_link *link)
{
    return send_part(link, FL_WIRE_TOPIC, strlen(FL_WIRE_TOPIC), true);
}

static fl_frame frame_of(const fl_link *link, fl_frame_type type)
{
    return (fl_frame){.type = type,
                      .rank = link->rank,
                      .generation = atomic_load(&link->generation),
                      .at_us = fl_now_us()};
}

static void send_hello(fl_link *link)
{
    unsigned char bytes[SMALL_FRAME_BYTES];
    fl_frame frame = frame_of(link, FL_FRAME_HELLO);
    frame.pid = getpid();
    fl_wire_put(&frame, bytes);
    if (!send_topic(link) || !send_part(link, bytes, fl_wire_size(&frame), false)) {
        fl_log(FL_LOG_ERROR, "cannot greet the head: %s", zmq_strerror(zmq_errno()));
    }
}

static size_t put_heartbeat(fl_link *link, unsigned char *bytes)
{
    fl_frame frame = frame_of(link, FL_FRAME_HEARTBEAT);
    frame.heartbeat.steps = atomic_load(&link->steps);
    snprintf(frame.heartbeat.operation, sizeof frame.heartbeat.operation, "%s",
             atomic_load(&link->operation));
    link->heartbeat_sent_us = frame.at_us;
    fl_wire_put(&frame, bytes);
    return fl_wire_size(&frame);
}

/* ② to ③: what was reported, if anything, and with it or when its time has come a heartbeat.
 * True when reports went out; n_unsent tells whether some are left. */
static bool send_what_is_due(fl_link *link)
{
    unsigned char heartbeat[SMALL_FRAME_BYTES];
    if (link->n_unsent == 0) {
        link->unsent = fl_queue_take(&link->queue, &link->n_unsent);
    }
    bool reports = link->n_unsent > 0;
    if (!reports && fl_now_us() - link->heartbeat_sent_us < link->heartbeat_us) {
        return false;
    }
    if (!send_topic(link) || (reports && !send_part(link, link->unsent, link->n_unsent, true)) ||
        !send_part(link, heartbeat, put_heartbeat(link, heartbeat), false)) {
        return false; /* the socket's queue is full: the head does not read just now */
    }
    link->n_unsent = 0;
    return reports;
}

/* ⑤ */
static void abort_once(fl_link *link, uint32_t generation, fl_status why)
{
    if (link->aborted) {
        return;
    }
    link->aborted = true;
    fl_log(FL_LOG_INFO, "generation %u is over: %s", generation, fl_status_text(why));
    if (link->on_abort != NULL) {
        link->on_abort(link->context, generation, why);
    }
}

/* The user's wish to stop is not overwritten by a transition that was under way. */
static void take_order(fl_link *link, const fl_verdict *verdict)
{
    pthread_mutex_lock(&link->lock);
    if (link->verdict.kind != FL_VERDICT_STOP) {
        link->verdict = *verdict;
        atomic_store(&link->has_verdict, true);
        pthread_cond_signal(&link->woken);
    }
    pthread_mutex_unlock(&link->lock);
}

static void obey(fl_link *link, const fl_frame *frame)
{
    switch (frame->type) {
    case FL_FRAME_VERDICT:
        take_order(link, &frame->verdict);
        break;
    case FL_FRAME_WAKE:
        pthread_mutex_lock(&link->lock);
        link->n_wakes++;
        pthread_cond_signal(&link->woken);
        pthread_mutex_unlock(&link->lock);
        break;
    case FL_FRAME_STOPPING:
        link->run_is_stopping = true;
        break;
    case FL_FRAME_ABORT:
        abort_once(link, frame->generation, frame->why);
        break;
    default: /* FL_FRAME_ALIVE, and whatever a later head may say */
        break;
    }
}

static void receive_message(fl_link *link, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        fl_frame frame;
        if (fl_wire_next(&bytes, &n, &frame) != FL_OK) {
            fl_log(FL_LOG_WARN, "dropped an order: %s", fl_errmsg());
            return;
        }
        obey(link, &frame);
    }
}

static void receive_orders(fl_link *link)
{
    zmq_msg_t part;
    zmq_msg_init(&part);
    while (zmq_msg_recv(&part, link->socket, ZMQ_DONTWAIT) >= 0) {
        link->heard_us = fl_now_us();
        link->told_of_silence = false;
        if (!zmq_msg_more(&part)) { /* the first part is the topic */
            receive_message(link, (const unsigned char *)zmq_msg_data(&part), zmq_msg_size(&part));
        }
    }
    zmq_msg_close(&part);
}

static void die_of(int signal_number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    signal(signal_number, SIG_DFL);
    kill(getpid(), signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* A SIGTERM for this worker alone kills it. One for the whole process group, as batch systems and
 * timeout(1) send it, has reached the head too, which will say that the run is being stopped. */
static void watch_signals(fl_link *link, int64_t now_us)
{
    struct signalfd_siginfo info;
    while (read(link->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (link->terminated_us == 0) {
            link->terminated_us = now_us;
        }
    }
    if (link->terminated_us != 0 && !link->run_is_stopping &&
        now_us - link->terminated_us > TERMINATE_MS * 1000) {
        fl_log(FL_LOG_WARN, "terminated by a signal");
        die_of(SIGTERM);
    }
}

/* The kernel kills this process when its parent dies (PR_SET_PDEATHSIG); this is for what is left
 * over should it have been switched off, and for a stopped head, for which workers just wait. */
static void watch_head(fl_link *link, int64_t now_us)
{
    if (link->orphaned_us == 0 && getppid() != link->head) {
        fl_log(FL_LOG_ERROR, "the head (process %d) is gone", (int)link->head);
        link->orphaned_us = now_us;
        fl_queue_close(&link->queue);
        abort_once(link, atomic_load(&link->generation), FL_EPEER);
    }
    if (link->orphaned_us != 0 && now_us - link->orphaned_us > ORPHAN_MS * 1000) {
        die_of(SIGKILL);
    }
    if (now_us - link->heard_us > 10 * link->heartbeat_us && !link->told_of_silence) {
        fl_log(FL_LOG_WARN, "the head has been silent for %.1f s; waiting for it",
               (double)(now_us - link->heard_us) * 1e-6);
        link->told_of_silence = true;
    }
}

static void flush(fl_link *link)
{
    int64_t deadline_us = fl_deadline_us(FLUSH_MS);
    while (fl_left_ms(deadline_us) > 0 && link->orphaned_us == 0) {
        if (!send_what_is_due(link)) {
            if (link->n_unsent == 0) {
                return;
            }
            zmq_pollitem_t writable = {link->socket, 0, ZMQ_POLLOUT, 0};
            zmq_poll(&writable, 1, fl_left_ms(deadline_us));
        }
    }
}

static void *link_main(void *argument)
{
    fl_link *link = (fl_link *)argument;
    send_hello(link);
    zmq_pollitem_t items[] = {{link->socket, 0, ZMQ_POLLIN, 0},
                              {NULL, link->wake_fd, ZMQ_POLLIN, 0},
                              {NULL, link->signal_fd, ZMQ_POLLIN, 0}};
    while (!atomic_load(&link->closing)) {
        zmq_poll(items, 3, link->slice_ms);
        uint64_t count;
        if ((items[1].revents & ZMQ_POLLIN) && read(link->wake_fd, &count, sizeof count) < 0) {
            fl_log(FL_LOG_DEBUG, "nothing to read from the wake-up");
        }
        receive_orders(link);
        (void)send_what_is_due(link);
        int64_t now_us = fl_now_us();
        watch_signals(link, now_us);
        watch_head(link, now_us);
    }
    flush(link);
    fl_queue_close(&link->queue);
    return NULL;
}

/* ---- opening and closing ---- */

static fl_status connect_socket(fl_link *link, const char *endpoint)
{
    char identity[32];
    int n = snprintf(identity, sizeof identity, FL_WIRE_IDENTITY, link->rank);
    int linger_ms = FLUSH_MS, reconnect_ms = 10;
    link->zmq = zmq_ctx_new();
    link->socket = link->zmq == NULL ? NULL : zmq_socket(link->zmq, ZMQ_DEALER);
    if (link->socket == NULL ||
        zmq_setsockopt(link->socket, ZMQ_ROUTING_ID, identity, (size_t)n) != 0 ||
        zmq_setsockopt(link->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms) != 0 ||
        zmq_setsockopt(link->socket, ZMQ_RECONNECT_IVL, &reconnect_ms, sizeof reconnect_ms) != 0 ||
        zmq_connect(link->socket, endpoint) != 0) {
        return fl_fail(FL_EIO, "cannot connect to the head at %s: %s", endpoint,
                       zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

static fl_status open_descriptors(fl_link *link)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    link->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    link->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (link->wake_fd < 0 || link->signal_fd < 0) {
        return fl_fail(FL_EIO, "cannot make the link's descriptors: %s", strerror(errno));
    }
    return FL_OK;
}

static fl_status start_thread(fl_link *link)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&link->thread, NULL, link_main, link);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return fl_fail(FL_EIO, "cannot start the link's thread: %s", strerror(error));
    }
    pthread_setname_np(link->thread, "fl-link");
    return FL_OK;
}

/* Everything but the thread. */
static void release(fl_link *link)
{
    fl_store_disconnect(&link->store);
    if (link->socket != NULL) {
        zmq_close(link->socket);
    }
    if (link->zmq != NULL) {
        zmq_ctx_term(link->zmq);
    }
    if (link->wake_fd >= 0) {
        close(link->wake_fd);
    }
    if (link->signal_fd >= 0) {
        close(link->signal_fd);
    }
    fl_queue_fini(&link->queue);
    pthread_cond_destroy(&link->woken);
    pthread_mutex_destroy(&link->lock);
    fl_free(link);
}

fl_status fl_link_open(const fl_link_options *options, fl_link **out)
{
    fl_link *link = NULL;
    FL_TRY(fl_alloc(sizeof *link, (void **)&link));
    fl_status status = fl_queue_init(&link->queue, QUEUE_START_BYTES, QUEUE_LIMIT_BYTES);
    if (status != FL_OK) {
        fl_free(link);
        return status;
    }
    link->rank = options->rank;
    link->heartbeat_us = options->heartbeat_ms * 1000;
    link->slice_ms = options->heartbeat_ms < SLICE_MS ? options->heartbeat_ms : SLICE_MS;
    link->on_abort = options->on_abort;
    link->context = options->context;
    link->head = getppid();
    link->wake_fd = link->signal_fd = -1;
    link->heard_us = fl_now_us();
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->woken, &clock);
    pthread_condattr_destroy(&clock);
    atomic_init(&link->operation, "starting");
    atomic_init(&link->generation, options->generation);
    status = open_descriptors(link);
    if (status == FL_OK) {
        status = connect_socket(link, options->endpoint);
    }
    if (status == FL_OK) {
        status = fl_store_connect(link->zmq, options->endpoint, &link->store);
    }
    if (status == FL_OK) {
        link->kv = fl_store_kv(link->store);
        status = start_thread(link);
    }
    if (status != FL_OK) {
        release(link);
        return status;
    }
    *out = link;
    return FL_OK;
}

static void wake(fl_link *link)
{
    uint64_t one = 1;
    ssize_t written = write(link->wake_fd, &one, sizeof one);
    (void)written; /* a full counter wakes as well */
}

void fl_link_close(fl_link **link)
{
    if (*link == NULL) {
        return;
    }
    atomic_store(&(*link)->closing, true);
    wake(*link);
    pthread_join((*link)->thread, NULL);
    release(*link);
    *link = NULL;
}

const fl_kv *fl_link_kv(fl_link *link)
{
    return &link->kv;
}

/* ---- training thread ---- */

static void report(fl_link *link, const fl_frame *frame)
{
    if (fl_queue_put(&link->queue, frame) != FL_OK) {
        fl_log(FL_LOG_ERROR, "lost a report (%s): %s", fl_wire_type_text(frame->type), fl_errmsg());
    }
}

static void finished_step(fl_link *link, int64_t step)
{
    if (step + 1 > atomic_load_explicit(&link->steps, memory_order_relaxed)) {
        atomic_store_explicit(&link->steps, step + 1, memory_order_relaxed);
    }
}

void fl_link_generation(fl_link *link, uint32_t generation)
{
    atomic_store(&link->generation, generation);
}

void fl_link_doing(fl_link *link, const char *operation)
{
    atomic_store_explicit(&link->operation, operation, memory_order_relaxed);
}

void fl_link_ready(fl_link *link, int64_t memory_peak_bytes)
{
    fl_frame frame = frame_of(link, FL_FRAME_READY);
    frame.memory_peak_bytes = memory_peak_bytes;
    report(link, &frame);
    wake(link);
}

void fl_link_step(fl_link *link, const fl_step_report *step)
{
    fl_frame frame = frame_of(link, FL_FRAME_STEP);
    frame.generation = step->generation;
    frame.step = *step;
    finished_step(link, step->step);
    report(link, &frame);
}

void fl_link_time(fl_link *link, const fl_time_report *time)
{
    fl_frame frame = frame_of(link, FL_FRAME_TIME);
    frame.time = *time;
    finished_step(link, time->step);
    report(link, &frame);
}

void fl_link_eval(fl_link *link, const fl_eval_report *eval)
{
    fl_frame frame = frame_of(link, FL_FRAME_EVAL);
    frame.eval = *eval;
    report(link, &frame);
}

void fl_link_ledger(fl_link *link, int64_t epoch, int64_t step, uint32_t generation, int replica,
                    const int64_t *ids, int64_t n)
{
    fl_frame frame = frame_of(link, FL_FRAME_LEDGER);
    frame.generation = generation;
    frame.ledger = (fl_frame_ledger){
        .epoch = epoch, .step = step, .replica = replica, .n = (uint32_t)n, .ids = ids};
    report(link, &frame);
}

void fl_link_failed(fl_link *link, fl_status status, const char *message)
{
    fl_frame frame = frame_of(link, FL_FRAME_FAILED);
    frame.failed.status = status;
    snprintf(frame.failed.text, sizeof frame.failed.text, "%s", message);
    report(link, &frame);
    wake(link);
}

void fl_link_prepared(fl_link *link, const fl_prepared_report *prepared)
{
    fl_frame frame = frame_of(link, FL_FRAME_PREPARED);
    frame.generation = prepared->generation;
    frame.prepared = *prepared;
    report(link, &frame);
    wake(link);
}

void fl_link_transition(fl_link *link, const fl_transition_parts *parts)
{
    fl_frame frame = frame_of(link, FL_FRAME_TRANSITION);
    frame.generation = parts->generation;
    frame.transition = *parts;
    report(link, &frame);
    wake(link);
}

/* Wait under the lock until the link thread has something to say or the time is over. */
static bool wait_woken(fl_link *link, const struct timespec *until)
{
    return pthread_cond_timedwait(&link->woken, &link->lock, until) == 0;
}

static struct timespec until_ms(int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return until;
}

bool fl_link_wait_wake(fl_link *link, int64_t timeout_ms)
{
    struct timespec until = until_ms(timeout_ms);
    pthread_mutex_lock(&link->lock);
    while (link->n_wakes == 0 && wait_woken(link, &until)) {
    }
    bool woken = link->n_wakes > 0;
    link->n_wakes -= woken;
    pthread_mutex_unlock(&link->lock);
    return woken;
}

bool fl_link_wait_verdict(fl_link *link, int64_t timeout_ms, fl_verdict *out)
{
    struct timespec until = until_ms(timeout_ms);
    pthread_mutex_lock(&link->lock);
    while (!atomic_load(&link->has_verdict) && wait_woken(link, &until)) {
    }
    pthread_mutex_unlock(&link->lock);
    return fl_link_take_verdict(link, out);
}

void fl_link_done(fl_link *link)
{
    fl_frame frame = frame_of(link, FL_FRAME_DONE);
    report(link, &frame);
    wake(link);
}

bool fl_link_take_verdict(fl_link *link, fl_verdict *out)
{
    if (!atomic_load_explicit(&link->has_verdict, memory_order_acquire)) {
        return false;
    }
    pthread_mutex_lock(&link->lock);
    *out = link->verdict;
    link->verdict.kind = FL_VERDICT_NONE;
    atomic_store(&link->has_verdict, false);
    pthread_mutex_unlock(&link->lock);
    return true;
}
