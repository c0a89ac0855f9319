/* What comes to the head over its ROUTER, and what it answers.
 *
 *     [identity]["link"][frames]... ──> heard(): each frame by its type
 *     [identity]["store"][request]  ──> fl_store_handle ──> [identity]["store"][answer]
 *
 * Whoever can open the socket is this user, yet nothing that comes is trusted: a message of another
 * form, a frame that does not decode or a rank that is not its sender's is dropped with a line in
 * the log. */
#include "control/controller.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { PARTS_MAX = 8, MESSAGES_A_TURN = 256, ENDPOINT_BYTES = 64 };

#define SOCKET_NAME "link"

/* ---- opening ---- */

void fl_inbox_endpoint(int dir_fd, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, "ipc:///proc/self/fd/%d/" SOCKET_NAME, dir_fd);
}

static bool set_option(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

fl_status fl_inbox_open(fl_head *head)
{
    char endpoint[ENDPOINT_BYTES];
    int64_t largest = FL_WIRE_BODY_MAX + 1024 * 1024;
    fl_inbox_endpoint(head->options->dir_fd, endpoint, sizeof endpoint);
    head->zmq = zmq_ctx_new();
    head->socket = head->zmq == NULL ? NULL : zmq_socket(head->zmq, ZMQ_ROUTER);
    bool bound = head->socket != NULL && set_option(head->socket, ZMQ_LINGER, 0) &&
                 set_option(head->socket, ZMQ_ROUTER_MANDATORY, 1) &&
                 zmq_setsockopt(head->socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0;
    if (bound) {
        mode_t before = umask(0177);
        bound = zmq_bind(head->socket, endpoint) == 0;
        umask(before);
    }
    if (!bound) {
        return fl_fail(FL_EIO, "cannot open the control link in %s: %s", head->options->run_dir,
                       zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

void fl_inbox_hide(fl_head *head)
{
    if (unlinkat(head->options->dir_fd, SOCKET_NAME, 0) != 0 && errno != ENOENT) {
        fl_log(FL_LOG_WARN, "cannot remove the control link's socket: %s", strerror(errno));
    }
}

void fl_inbox_close(fl_head *head)
{
    if (head->socket != NULL) {
        zmq_close(head->socket);
        fl_inbox_hide(head);
    }
    if (head->zmq != NULL) {
        zmq_ctx_term(head->zmq);
    }
    head->socket = head->zmq = NULL;
}

/* ---- out ---- */

fl_frame fl_inbox_order(const fl_head *head, fl_frame_type type)
{
    return (fl_frame){.type = type, .generation = head->plan.generation, .at_us = fl_now_us()};
}

static bool send_parts(fl_head *head, const void *to, size_t to_bytes, const char *topic,
                       const void *bytes, size_t n)
{
    return zmq_send(head->socket, to, to_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(head->socket, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(head->socket, bytes, n, ZMQ_DONTWAIT) >= 0;
}

void fl_inbox_tell(fl_head *head, int rank, const fl_frame *order)
{
    char identity[32];
    unsigned char bytes[FL_WIRE_ORDER_MAX];
    fl_frame frame = *order;
    frame.rank = rank;
    if (!head->workers[rank].linked || head->workers[rank].exited_us != 0) {
        return;
    }
    int n = snprintf(identity, sizeof identity, FL_WIRE_IDENTITY, rank);
    fl_wire_put(&frame, bytes);
    if (!send_parts(head, identity, (size_t)n, FL_WIRE_TOPIC, bytes, fl_wire_size(&frame))) {
        /* It is leaving, or so stuck that its orders pile up: the watch will see to it. */
        fl_log(FL_LOG_DEBUG, "worker %d does not take an order (%s): %s", rank,
               fl_wire_type_text(order->type), zmq_strerror(zmq_errno()));
    }
}

void fl_inbox_tell_all(fl_head *head, const fl_frame *order)
{
    for (int rank = 0; rank < head->n_workers; rank++) {
        fl_inbox_tell(head, rank, order);
    }
}

void fl_inbox_wake_standby(fl_head *head)
{
    fl_frame order = fl_inbox_order(head, FL_FRAME_WAKE);
    for (int rank = 0; rank < head->n_workers; rank++) {
        if (!fl_plan_place(&head->plan, rank).active && !head->plan.departed[rank]) {
            fl_inbox_tell(head, rank, &order);
        }
    }
}

void fl_inbox_verdict(fl_head *head, const fl_verdict *verdict)
{
    fl_frame order = fl_inbox_order(head, FL_FRAME_VERDICT);
    order.verdict = *verdict;
    fl_inbox_tell(head, head->plan.rank_of[0], &order);
    fl_inbox_wake_standby(head);
}

static void answer_store(void *context, const void *to, size_t to_bytes, const void *message,
                         size_t size_bytes)
{
    if (!send_parts((fl_head *)context, to, to_bytes, "store", message, size_bytes)) {
        fl_log(FL_LOG_DEBUG, "an answer of the store finds nobody");
    }
}

/* ---- in ---- */

/* A worker that comes late learns what the others were told. */
static void heard_hello(fl_head *head, fl_worker *worker)
{
    worker->linked = true;
    if (head->state == FL_HEAD_ENDING) {
        fl_frame order = fl_inbox_order(head, FL_FRAME_ABORT);
        order.why = FL_EPEER;
        fl_inbox_tell(head, worker->rank, &order);
    } else if (head->n_stops > 0) {
        fl_frame order = fl_inbox_order(head, FL_FRAME_STOPPING);
        fl_inbox_tell(head, worker->rank, &order);
        if (worker->rank == head->plan.rank_of[0]) {
            order.type = FL_FRAME_VERDICT;
            order.verdict = (fl_verdict){.kind = FL_VERDICT_STOP};
            fl_inbox_tell(head, worker->rank, &order);
        }
    }
}

static void heard_ledger(fl_head *head, const fl_frame *frame)
{
    const fl_frame_ledger *l = &frame->ledger;
    if (l->n > head->ids_capacity) {
        void *larger = head->ids;
        if (fl_realloc(&larger, 0, (size_t)l->n * sizeof *head->ids) != FL_OK) {
            fl_log(FL_LOG_ERROR, "a ledger record is lost: %s", fl_errmsg());
            return;
        }
        head->ids = (int64_t *)larger;
        head->ids_capacity = l->n;
    }
    fl_wire_ids(frame, head->ids);
    if (fl_ledger_add(head->ledger, l->epoch, l->step, frame->generation, l->replica, head->ids,
                      l->n) != FL_OK &&
        !head->ledger_broken) {
        head->ledger_broken = true;
        fl_log(FL_LOG_WARN, "the ledger cannot be written: %s", fl_errmsg());
    }
}

static void add_times(fl_time_sums *sums, const fl_time_report *report)
{
    sums->compute_us += report->compute_us;
    sums->wait_us += report->wait_us;
    sums->reduce_wait_us += report->reduce_wait_us;
    sums->optimizer_us += report->optimizer_us;
    sums->data_us += report->data_us;
}

/* A worker that does not train yet says nothing of it. */
static void remember_memory(fl_worker *worker, const fl_frame_heartbeat *heartbeat)
{
    if (heartbeat->memory_peak_bytes > 0) {
        worker->memory_used_bytes = heartbeat->memory_used_bytes;
        worker->memory_peak_bytes = heartbeat->memory_peak_bytes;
    }
}

static void moved(fl_worker *worker, int64_t steps)
{
    worker->steps = steps > worker->steps ? steps : worker->steps;
}

/* A report of a step says so sooner than the next heartbeat does. */
static void stepped(fl_worker *worker, int64_t step)
{
    moved(worker, step + 1);
    snprintf(worker->operation, sizeof worker->operation, "step");
}

static bool is_stale(const fl_head *head, const fl_frame *frame)
{
    bool bears_one = frame->type == FL_FRAME_STEP || frame->type == FL_FRAME_LEDGER;
    /* A worker may have gone over while another's last reports of the generation before are still
     * on their way; it is ready for the generation after only when they have come. */
    return bears_one && frame->generation != head->plan.generation &&
           frame->generation != head->generation_before;
}

static void heard(fl_head *head, fl_worker *worker, const fl_frame *frame)
{
    if (is_stale(head, frame)) {
        fl_log(FL_LOG_WARN, "dropped a %s of generation %u from worker %d",
               fl_wire_type_text(frame->type), frame->generation, worker->rank);
        return;
    }
    switch (frame->type) {
    case FL_FRAME_HELLO:
        heard_hello(head, worker);
        break;
    case FL_FRAME_HEARTBEAT:
        moved(worker, frame->heartbeat.steps);
        remember_memory(worker, &frame->heartbeat);
        memcpy(worker->operation, frame->heartbeat.operation, sizeof worker->operation);
        break;
    case FL_FRAME_READY:
        worker->ready = true;
        worker->memory_peak_bytes = frame->memory_peak_bytes;
        fl_story_ready(head, worker);
        break;
    case FL_FRAME_STEP:
        stepped(worker, frame->step.step);
        if (fl_tally_step(&head->tally, &frame->step, frame->at_us)) {
            fl_runfiles_step(&head->files, &frame->step);
            if (head->tally.steps == head->tally.n_steps) {
                fl_inbox_wake_standby(head); /* the speaker tells them that this was the last */
            }
        }
        break;
    case FL_FRAME_PREPARED:
        fl_elastic_prepared(head, worker, &frame->prepared);
        break;
    case FL_FRAME_TRANSITION:
        fl_elastic_moved(head, worker, &frame->transition);
        break;
    case FL_FRAME_NORMS:
        fl_decide_norms(head, &frame->norms);
        break;
    case FL_FRAME_STEERED:
        fl_ctl_steered(head, &frame->steered);
        break;
    case FL_FRAME_CACHE:
        fl_story_cache(head, worker, &frame->cache);
        break;
    case FL_FRAME_TIME:
        stepped(worker, frame->time.step);
        add_times(&head->times[worker->rank], &frame->time);
        add_times(&head->all_times[worker->rank], &frame->time);
        fl_learn_time(head, worker->rank, frame->generation, &frame->time);
        fl_stragglers_add(head, worker->rank, &frame->time);
        break;
    case FL_FRAME_EVAL:
        fl_tally_eval(&head->tally, &frame->eval);
        break;
    case FL_FRAME_LEDGER:
        heard_ledger(head, frame);
        break;
    case FL_FRAME_FAILED:
        worker->failed_us = fl_now_us();
        worker->failure = frame->failed.status;
        memcpy(worker->failure_text, frame->failed.text, sizeof worker->failure_text);
        break;
    case FL_FRAME_DONE:
        worker->done = true;
        break;
    default:
        fl_log(FL_LOG_WARN, "dropped a frame from worker %d: %s is not for the head to hear",
               worker->rank, fl_wire_type_text(frame->type));
    }
    if (fl_tally_epoch_over(&head->tally, false)) {
        fl_story_epoch(head);
    }
}

/* The rank behind an identity, -1 if it is no worker's. */
static int rank_of(const fl_head *head, const char *identity, size_t n)
{
    char text[32], again[32];
    int rank = -1;
    if (n >= sizeof text) {
        return -1;
    }
    memcpy(text, identity, n);
    text[n] = 0;
    if (sscanf(text, FL_WIRE_IDENTITY, &rank) != 1 || rank < 0 || rank >= head->n_workers) {
        return -1;
    }
    snprintf(again, sizeof again, FL_WIRE_IDENTITY, rank);
    return strcmp(text, again) == 0 ? rank : -1;
}

static void heard_frames(fl_head *head, int rank, const unsigned char *bytes, size_t n)
{
    fl_worker *worker = &head->workers[rank];
    worker->heard_us = fl_now_us();
    while (n > 0) {
        fl_frame frame;
        fl_status status = fl_wire_next(&bytes, &n, &frame);
        if (status == FL_OK && frame.rank != rank) {
            status = fl_fail(FL_EFORMAT, "a frame of rank %d", frame.rank);
        }
        if (status != FL_OK) {
            fl_log(FL_LOG_WARN, "dropped %zu bytes from worker %d: %s", n, rank, fl_errmsg());
            return;
        }
        heard(head, worker, &frame);
    }
}

static bool is_topic(zmq_msg_t *part, const char *topic)
{
    return zmq_msg_size(part) == strlen(topic) &&
           memcmp(zmq_msg_data(part), topic, strlen(topic)) == 0;
}

static void dispatch(fl_head *head, zmq_msg_t *parts, int n_parts)
{
    const void *from = zmq_msg_data(&parts[0]);
    size_t from_bytes = zmq_msg_size(&parts[0]);
    int rank = rank_of(head, (const char *)from, from_bytes);
    if (n_parts > PARTS_MAX) {
        fl_log(FL_LOG_WARN, "dropped a message of %d parts, %d are allowed", n_parts, PARTS_MAX);
    } else if (n_parts == 3 && is_topic(&parts[1], "store")) {
        fl_store_handle(head->store, from, from_bytes, zmq_msg_data(&parts[2]),
                        zmq_msg_size(&parts[2]), answer_store, head);
    } else if (n_parts >= 3 && is_topic(&parts[1], FL_WIRE_TOPIC) && rank >= 0) {
        for (int i = 2; i < n_parts; i++) {
            heard_frames(head, rank, (const unsigned char *)zmq_msg_data(&parts[i]),
                         zmq_msg_size(&parts[i]));
        }
    } else {
        fl_log(FL_LOG_WARN,
               "dropped a message of %d parts that is neither a worker's nor a store's", n_parts);
    }
}

/* A message comes whole, so after its first part an interruption is the only reason to try again.
 */
static bool read_part(fl_head *head, zmq_msg_t *part, bool first)
{
    int n;
    do {
        n = zmq_msg_recv(part, head->socket, ZMQ_DONTWAIT);
    } while (n < 0 && zmq_errno() == EINTR && !first);
    return n >= 0;
}

/* One message, however many parts it has. False when there is none. */
static bool read_message(fl_head *head)
{
    zmq_msg_t parts[PARTS_MAX];
    int n_parts = 0, n_kept = 0;
    bool more = true;
    while (more) {
        zmq_msg_t *part = &parts[n_kept < PARTS_MAX ? n_kept : PARTS_MAX - 1];
        if (n_kept == PARTS_MAX) { /* far too many: only count on */
            zmq_msg_close(part);
        } else {
            n_kept++;
        }
        zmq_msg_init(part);
        if (!read_part(head, part, n_parts == 0)) {
            zmq_msg_close(part);
            n_kept--;
            break;
        }
        n_parts++;
        more = zmq_msg_more(part) != 0;
    }
    if (n_parts > 0) {
        dispatch(head, parts, n_parts);
    }
    for (int i = 0; i < n_kept; i++) {
        zmq_msg_close(&parts[i]);
    }
    return n_parts > 0;
}

void fl_inbox_read(fl_head *head)
{
    /* Bounded, so that a flood of messages does not keep the head from its signals. */
    for (int i = 0; i < MESSAGES_A_TURN && read_message(head); i++) {
    }
    fl_runfiles_flush(&head->files);
}
