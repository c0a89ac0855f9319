/* The worker's side of the control link: it opens, closes, and waits for the controller.
 * control/link/link_thread.c owns the socket, control/link/link_reports.c has what a worker
 * reports. */
#include "control/link/link.h"

#include "control/link/keys/zmq_socket.h"
#include "control/link/link_thread.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

#define EVENTS_ENDPOINT "inproc://link-events"

enum {
    SILENT_HEARTBEATS = 5, /* the controller sends a sign of life at least once in two */
    PATIENCE_US = 250 * 1000,
    HEARTBEAT_MAX_MS = 1000, /* it also shows which messages were lost */
};

enum { QUEUE_START_BYTES = 256 * 1024, RECONNECT_MS = 10 };

/* ---- opening and closing ---- */

/* The link thread hears of each connection, and of its end. */
static bool watch_connection(fl_link *link)
{
    int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED;
    link->events = zmq_socket(link->zmq, ZMQ_PAIR);
    return link->events != NULL && zmq_socket_monitor(link->socket, EVENTS_ENDPOINT, events) == 0 &&
           zmq_connect(link->events, EVENTS_ENDPOINT) == 0;
}

static fl_status connect_socket(fl_link *link, const char *endpoint, const fl_curve_keys *keys)
{
    char identity[32];
    int n = snprintf(identity, sizeof identity, FL_WIRE_IDENTITY, link->rank, link->incarnation);
    link->zmq = zmq_ctx_new();
    link->socket = link->zmq == NULL ? NULL : zmq_socket(link->zmq, ZMQ_DEALER);
    if (link->socket == NULL ||
        zmq_setsockopt(link->socket, ZMQ_ROUTING_ID, identity, (size_t)n) != 0 ||
        !fl_zmq_set(link->socket, ZMQ_LINGER, FL_LINK_FLUSH_MS) ||
        !fl_zmq_set(link->socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) || !watch_connection(link) ||
        !fl_curve_client(keys, link->socket) || zmq_connect(link->socket, endpoint) != 0) {
        return fl_fail(FL_EIO, "cannot connect to the controller at %s: %s", endpoint,
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

/* Its first report. */
static fl_status greet(fl_link *link)
{
    fl_wire_message hello = fl_link_frame(link, FL_WIRE_HELLO);
    hello.pid = getpid();
    return fl_queue_put(&link->queue, &hello);
}

static fl_status start_thread(fl_link *link)
{
    FL_TRY(greet(link));
    FL_TRY(fl_thread_start(&link->thread, fl_link_main, link, "the link's thread"));
    pthread_setname_np(link->thread, "fl-link");
    return FL_OK;
}

/* Everything but the thread. */
static void release_link(fl_link *link)
{
    fl_store_disconnect(&link->store);
    if (link->socket != NULL) {
        zmq_close(link->socket);
    }
    if (link->events != NULL) {
        zmq_close(link->events);
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
    fl_resend_fini(&link->resend);
    pthread_cond_destroy(&link->woken);
    pthread_mutex_destroy(&link->lock);
    fl_free(link);
}

static void set_times(fl_link *link, int64_t detect_ms)
{
    int64_t tenth_ms = detect_ms / 10;
    int64_t heartbeat_ms = tenth_ms < HEARTBEAT_MAX_MS ? tenth_ms : HEARTBEAT_MAX_MS;
    link->heartbeat_us = heartbeat_ms * 1000;
    link->patience_us = detect_ms * 1000;
    link->slice_ms = heartbeat_ms < FL_LINK_SLICE_MS ? heartbeat_ms : FL_LINK_SLICE_MS;
}

fl_status fl_link_open(const fl_link_options *options, fl_link **out)
{
    fl_link *link = NULL;
    FL_TRY(fl_alloc(sizeof *link, (void **)&link));
    fl_status status = fl_queue_init(&link->queue, QUEUE_START_BYTES, FL_LINK_LIMIT_BYTES);
    if (status != FL_OK) {
        fl_free(link);
        return status;
    }
    link->rank = options->rank;
    link->incarnation = options->incarnation;
    set_times(link, options->detect_ms);
    link->on_abort = options->on_abort;
    link->on_break = options->on_break;
    link->look = options->look;
    link->has_keys = options->keys != NULL;
    link->context = options->context;
    link->agent = getppid();
    link->wake_fd = link->signal_fd = -1;
    atomic_init(&link->heard_us, fl_now_us());
    pthread_mutex_init(&link->lock, NULL);
    fl_condition_init(&link->woken);
    atomic_init(&link->operation, "starting");
    atomic_init(&link->generation, options->generation);
    status = open_descriptors(link);
    if (status == FL_OK) {
        status = connect_socket(link, options->endpoint, options->keys);
    }
    if (status == FL_OK) {
        status = fl_store_connect(link->zmq, options->endpoint, options->keys, &link->store);
    }
    if (status == FL_OK) {
        link->kv = fl_store_kv(link->store);
        status = start_thread(link);
    }
    if (status != FL_OK) {
        release_link(link);
        return status;
    }
    *out = link;
    return FL_OK;
}

void fl_link_wake(fl_link *link)
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
    fl_link_wake(*link);
    pthread_join((*link)->thread, NULL);
    release_link(*link);
    *link = NULL;
}

const fl_kv *fl_link_kv(fl_link *link)
{
    return &link->kv;
}

fl_status fl_link_await_store(fl_link *link, int64_t deadline_us)
{
    char key[32];
    snprintf(key, sizeof key, "link/%d", link->rank);
    return link->kv.set(link->kv.self, key, deadline_us, NULL, 0);
}

/* ---- waits of the training thread ---- */

int64_t fl_link_counted(fl_link *link)
{
    return atomic_load(&link->n_counted);
}

/* Wait under the lock until the link thread has something to say or the time is over. */
static bool wait_woken(fl_link *link, int64_t deadline_us)
{
    return fl_condition_wait_until(&link->woken, &link->lock, deadline_us);
}

bool fl_link_wait_wake(fl_link *link, int64_t timeout_ms)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    pthread_mutex_lock(&link->lock);
    while (link->n_wakes == 0 && wait_woken(link, deadline_us)) {
    }
    bool woken = link->n_wakes > 0;
    link->n_wakes -= woken;
    pthread_mutex_unlock(&link->lock);
    return woken;
}

uint32_t fl_link_break_serial(fl_link *link)
{
    pthread_mutex_lock(&link->lock);
    uint32_t serial = link->break_serial;
    pthread_mutex_unlock(&link->lock);
    return serial;
}

bool fl_link_wait_regroup(fl_link *link, uint32_t serial, uint32_t obeyed, int64_t timeout_ms,
                          fl_regroup_order *out)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    bool came = false;
    pthread_mutex_lock(&link->lock);
    do {
        came = link->break_serial == serial && serial != obeyed && link->regroup.serial == serial;
    } while (!came && link->break_serial == serial && wait_woken(link, deadline_us));
    if (came) {
        *out = link->regroup;
    }
    pthread_mutex_unlock(&link->lock);
    return came;
}

bool fl_link_is_late(fl_link *link, fl_link_patience *patience, int64_t timeout_ms)
{
    int64_t now_us = fl_now_us();
    int64_t passed_us = now_us - patience->looked_us;
    bool silent = now_us - atomic_load(&link->heard_us) > SILENT_HEARTBEATS * link->heartbeat_us;
    if (patience->looked_us != 0 && !silent) {
        patience->counted_us += passed_us < PATIENCE_US ? passed_us : PATIENCE_US;
    }
    patience->looked_us = now_us;
    return patience->counted_us >= timeout_ms * 1000;
}

/* ---- commands ---- */

static bool saves(const fl_command *command)
{
    return command->kind == FL_COMMAND_CHECKPOINT || command->kind == FL_COMMAND_SNAPSHOT;
}

/* Under the lock: which command is next for the control point of `step`; -1: none. After a commit
 * another worker may lead, and a command to save that is still in this list would be lost: it comes
 * before the commit. */
static int find_command(const fl_link *link, int64_t step)
{
    int n = atomic_load(&link->n_commands), oldest = -1;
    for (int i = n - 1; i >= 0; i--) {
        const fl_command *command = &link->command[i];
        oldest = saves(command) ? oldest : i;
    }
    bool commits = oldest >= 0 && link->command[oldest].kind == FL_COMMAND_COMMIT;
    for (int i = 0; i < n; i++) {
        const fl_command *command = &link->command[i];
        if (saves(command) && (command->due_step <= step || commits)) {
            return i;
        }
    }
    return oldest;
}

static bool take_locked(fl_link *link, int64_t step, fl_command *out)
{
    int i = find_command(link, step);
    if (i < 0) {
        return false;
    }
    int left = atomic_load(&link->n_commands) - 1;
    *out = link->command[i];
    memmove(&link->command[i], &link->command[i + 1], (size_t)(left - i) * sizeof *out);
    atomic_store(&link->n_commands, left);
    return true;
}

bool fl_link_take_command(fl_link *link, int64_t step, fl_command *out)
{
    if (atomic_load_explicit(&link->n_commands, memory_order_acquire) == 0) {
        return false;
    }
    pthread_mutex_lock(&link->lock);
    bool taken = take_locked(link, step, out);
    pthread_mutex_unlock(&link->lock);
    return taken;
}

bool fl_link_wait_command(fl_link *link, int64_t step, int64_t timeout_ms, fl_command *out)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    pthread_mutex_lock(&link->lock);
    bool taken = take_locked(link, step, out);
    while (!taken && wait_woken(link, deadline_us)) {
        taken = take_locked(link, step, out);
    }
    pthread_mutex_unlock(&link->lock);
    return taken;
}
