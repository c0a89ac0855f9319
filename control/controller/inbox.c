/* What comes to the controller over its ROUTER, and what it answers.
 *
 *     [identity]["link"][frames]... ──> heard(): each frame by its type
 *     [identity]["store"][request]  ──> fl_store_handle ──> [identity]["store"][answer]
 *
 * Whoever can open the socket is this user, yet nothing that comes is trusted: a message of another
 * form, a frame that does not decode or a rank that is not its sender's is dropped with a line in
 * the log. */
#include "control/controller/parts.h"

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

fl_status fl_inbox_open(fl_controller *controller)
{
    char endpoint[ENDPOINT_BYTES];
    int64_t largest = FL_WIRE_BODY_MAX + 1024 * 1024;
    fl_inbox_endpoint(controller->options->dir_fd, endpoint, sizeof endpoint);
    controller->zmq = zmq_ctx_new();
    controller->socket = controller->zmq == NULL ? NULL : zmq_socket(controller->zmq, ZMQ_ROUTER);
    bool bound = controller->socket != NULL && set_option(controller->socket, ZMQ_LINGER, 0) &&
                 set_option(controller->socket, ZMQ_ROUTER_MANDATORY, 1) &&
                 zmq_setsockopt(controller->socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0;
    if (bound) {
        mode_t before = umask(0177);
        bound = zmq_bind(controller->socket, endpoint) == 0;
        umask(before);
    }
    if (!bound) {
        return fl_fail(FL_EIO, "cannot open the control link in %s: %s",
                       controller->options->run_dir, zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

void fl_inbox_hide(fl_controller *controller)
{
    if (unlinkat(controller->options->dir_fd, SOCKET_NAME, 0) != 0 && errno != ENOENT) {
        fl_log(FL_LOG_WARN, "cannot remove the control link's socket: %s", strerror(errno));
    }
}

void fl_inbox_close(fl_controller *controller)
{
    if (controller->socket != NULL) {
        zmq_close(controller->socket);
        fl_inbox_hide(controller);
    }
    if (controller->zmq != NULL) {
        zmq_ctx_term(controller->zmq);
    }
    controller->socket = controller->zmq = NULL;
}

/* ---- out ---- */

fl_wire_message fl_inbox_order(const fl_controller *controller, fl_wire_type type)
{
    return (fl_wire_message){
        .type = type, .generation = controller->plan.generation, .at_us = fl_now_us()};
}

static bool send_parts(fl_controller *controller, const void *to, size_t to_bytes,
                       const char *topic, const void *bytes, size_t n)
{
    return zmq_send(controller->socket, to, to_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(controller->socket, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(controller->socket, bytes, n, ZMQ_DONTWAIT) >= 0;
}

void fl_inbox_tell(fl_controller *controller, int rank, const fl_wire_message *order)
{
    char identity[32];
    unsigned char bytes[FL_WIRE_ORDER_MAX];
    fl_wire_message frame = *order;
    frame.rank = rank;
    if (!controller->workers[rank].linked || controller->workers[rank].exited_us != 0) {
        return;
    }
    int n = snprintf(identity, sizeof identity, FL_WIRE_IDENTITY, rank);
    fl_wire_put(&frame, bytes);
    if (!send_parts(controller, identity, (size_t)n, FL_WIRE_TOPIC, bytes, fl_wire_size(&frame))) {
        /* It is leaving, or so stuck that its orders pile up: the watch will see to it. */
        fl_log(FL_LOG_DEBUG, "worker %d does not take an order (%s): %s", rank,
               fl_wire_type_text(order->type), zmq_strerror(zmq_errno()));
    }
}

void fl_inbox_tell_all(fl_controller *controller, const fl_wire_message *order)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        fl_inbox_tell(controller, rank, order);
    }
}

void fl_inbox_wake_standby(fl_controller *controller)
{
    fl_wire_message order = fl_inbox_order(controller, FL_WIRE_WAKE);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (!fl_plan_place(&controller->plan, rank).active && !controller->plan.departed[rank]) {
            fl_inbox_tell(controller, rank, &order);
        }
    }
}

void fl_inbox_command(fl_controller *controller, const fl_command *command)
{
    fl_wire_message order = fl_inbox_order(controller, FL_WIRE_VERDICT);
    order.command = *command;
    fl_inbox_tell(controller, controller->plan.rank_of[0], &order);
    fl_inbox_wake_standby(controller);
}

static void answer_store(void *context, const void *to, size_t to_bytes, const void *message,
                         size_t size_bytes)
{
    if (!send_parts((fl_controller *)context, to, to_bytes, "store", message, size_bytes)) {
        fl_log(FL_LOG_DEBUG, "an answer of the store finds nobody");
    }
}

/* ---- in ---- */

/* A worker that comes late learns what the others were told. */
static void heard_hello(fl_controller *controller, fl_worker *worker)
{
    worker->linked = true;
    if (controller->state == FL_CONTROLLER_ENDING) {
        fl_wire_message order = fl_inbox_order(controller, FL_WIRE_ABORT);
        order.why = FL_EPEER;
        fl_inbox_tell(controller, worker->rank, &order);
    } else if (controller->n_stops > 0) {
        fl_wire_message order = fl_inbox_order(controller, FL_WIRE_STOPPING);
        fl_inbox_tell(controller, worker->rank, &order);
        if (worker->rank == controller->plan.rank_of[0]) {
            order.type = FL_WIRE_VERDICT;
            order.command = (fl_command){.kind = FL_COMMAND_STOP};
            fl_inbox_tell(controller, worker->rank, &order);
        }
    }
}

static void heard_ledger(fl_controller *controller, const fl_wire_message *frame)
{
    const fl_wire_ledger *l = &frame->ledger;
    if (l->n > controller->ids_capacity) {
        void *larger = controller->ids;
        if (fl_realloc(&larger, 0, (size_t)l->n * sizeof *controller->ids) != FL_OK) {
            fl_ledger_give_up(controller->ledger, l->step, ENOMEM);
            return;
        }
        controller->ids = (int64_t *)larger;
        controller->ids_capacity = l->n;
    }
    fl_wire_ids(frame, controller->ids);
    fl_status status = fl_ledger_add(controller->ledger, l->epoch, l->step, frame->generation,
                                     l->replica, controller->ids, l->n);
    if (status == FL_EINVAL) { /* any other failure is of the ledger: see control/events/record.c */
        fl_log(FL_LOG_ERROR, "dropped a ledger record from worker %d: %s", frame->rank,
               fl_errmsg());
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
static void remember_memory(fl_worker *worker, const fl_wire_heartbeat *heartbeat)
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

static bool is_stale(const fl_controller *controller, const fl_wire_message *frame)
{
    bool bears_one = frame->type == FL_WIRE_STEP || frame->type == FL_WIRE_LEDGER;
    /* A worker may have gone over while another's last reports of the generation before are still
     * on their way; it is ready for the generation after only when they have come. */
    return bears_one && frame->generation != controller->plan.generation &&
           frame->generation != controller->generation_before;
}

/* ---- what leaders report of steps ---- */

static void warn_if_lost(const fl_worker *worker, const fl_wire_message *frame, fl_status status)
{
    if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "dropped a %s from worker %d: %s", fl_wire_type_text(frame->type),
               worker->rank, fl_errmsg());
    }
}

static void count_step(fl_controller *controller, const fl_step_record *record)
{
    if (record->has_norms) {
        fl_decide_norms(controller, &record->norms);
    }
    if (fl_run_stats_step(&controller->stats, &record->report, record->at_us)) {
        fl_runfiles_step(&controller->files, &record->report);
        if (controller->stats.steps == controller->stats.n_steps) {
            fl_inbox_wake_standby(controller); /* the leader tells them that this was the last */
        }
    }
}

void fl_inbox_drain_reports(fl_controller *controller)
{
    fl_step_record *record;
    while ((record = fl_step_order_take(&controller->reports)) != NULL) {
        if (record->has_step) {
            count_step(controller, record);
        }
        if (record->has_eval) {
            fl_run_stats_eval(&controller->stats, &record->eval);
        }
        fl_free(record);
        if (fl_run_stats_epoch_over(&controller->stats, false)) {
            fl_event_log_epoch(controller);
        }
    }
}

static void heard(fl_controller *controller, fl_worker *worker, const fl_wire_message *frame)
{
    if (is_stale(controller, frame)) {
        fl_log(FL_LOG_WARN, "dropped a %s of generation %u from worker %d",
               fl_wire_type_text(frame->type), frame->generation, worker->rank);
        return;
    }
    switch (frame->type) {
    case FL_WIRE_HELLO:
        heard_hello(controller, worker);
        break;
    case FL_WIRE_HEARTBEAT:
        moved(worker, frame->heartbeat.steps);
        remember_memory(worker, &frame->heartbeat);
        memcpy(worker->operation, frame->heartbeat.operation, sizeof worker->operation);
        break;
    case FL_WIRE_READY:
        worker->ready = true;
        worker->memory_peak_bytes = frame->memory_peak_bytes;
        fl_event_log_ready(controller, worker);
        break;
    case FL_WIRE_STEP:
        stepped(worker, frame->step.step);
        warn_if_lost(worker, frame,
                     fl_step_order_step(&controller->reports, &frame->step, frame->at_us));
        break;
    case FL_WIRE_PREPARED:
        fl_elastic_prepared(controller, worker, &frame->prepared);
        break;
    case FL_WIRE_TRANSITION:
        fl_elastic_moved(controller, worker, &frame->transition);
        break;
    case FL_WIRE_NORMS:
        warn_if_lost(worker, frame, fl_step_order_norms(&controller->reports, &frame->norms));
        break;
    case FL_WIRE_STEERED:
        fl_ctl_setting_done(controller, &frame->setting_done);
        break;
    case FL_WIRE_CACHE:
        fl_event_log_cache(controller, worker, &frame->cache);
        break;
    case FL_WIRE_NONFINITE:
        fl_shutdown_nonfinite(controller, &frame->nonfinite);
        break;
    case FL_WIRE_TIME:
        stepped(worker, frame->time.step);
        add_times(&controller->times[worker->rank], &frame->time);
        add_times(&controller->all_times[worker->rank], &frame->time);
        fl_learn_time(controller, worker->rank, frame->generation, &frame->time);
        fl_stragglers_add(controller, worker->rank, &frame->time);
        break;
    case FL_WIRE_EVAL:
        warn_if_lost(worker, frame, fl_step_order_eval(&controller->reports, &frame->eval));
        break;
    case FL_WIRE_LEDGER:
        heard_ledger(controller, frame);
        break;
    case FL_WIRE_FAILED:
        worker->failed_us = fl_now_us();
        worker->failure = frame->failed.status;
        memcpy(worker->failure_text, frame->failed.text, sizeof worker->failure_text);
        break;
    case FL_WIRE_DONE:
        worker->done = true;
        break;
    default:
        fl_log(FL_LOG_WARN, "dropped a frame from worker %d: %s is not for the controller to hear",
               worker->rank, fl_wire_type_text(frame->type));
    }
    fl_inbox_drain_reports(controller);
}

/* The rank behind an identity, -1 if it is no worker's. */
static int rank_of(const fl_controller *controller, const char *identity, size_t n)
{
    char text[32], again[32];
    int rank = -1;
    if (n >= sizeof text) {
        return -1;
    }
    memcpy(text, identity, n);
    text[n] = 0;
    if (sscanf(text, FL_WIRE_IDENTITY, &rank) != 1 || rank < 0 || rank >= controller->n_workers) {
        return -1;
    }
    snprintf(again, sizeof again, FL_WIRE_IDENTITY, rank);
    return strcmp(text, again) == 0 ? rank : -1;
}

static void heard_frames(fl_controller *controller, int rank, const unsigned char *bytes, size_t n)
{
    fl_worker *worker = &controller->workers[rank];
    worker->heard_us = fl_now_us();
    while (n > 0) {
        fl_wire_message frame;
        fl_status status = fl_wire_next(&bytes, &n, &frame);
        if (status == FL_OK && frame.rank != rank) {
            status = fl_fail(FL_EFORMAT, "a frame of rank %d", frame.rank);
        }
        if (status != FL_OK) {
            fl_log(FL_LOG_WARN, "dropped %zu bytes from worker %d: %s", n, rank, fl_errmsg());
            return;
        }
        heard(controller, worker, &frame);
    }
}

static bool is_topic(zmq_msg_t *part, const char *topic)
{
    return zmq_msg_size(part) == strlen(topic) &&
           memcmp(zmq_msg_data(part), topic, strlen(topic)) == 0;
}

static void dispatch(fl_controller *controller, zmq_msg_t *parts, int n_parts)
{
    const void *from = zmq_msg_data(&parts[0]);
    size_t from_bytes = zmq_msg_size(&parts[0]);
    int rank = rank_of(controller, (const char *)from, from_bytes);
    if (n_parts > PARTS_MAX) {
        fl_log(FL_LOG_WARN, "dropped a message of %d parts, %d are allowed", n_parts, PARTS_MAX);
    } else if (n_parts == 3 && is_topic(&parts[1], "store")) {
        fl_store_handle(controller->store, from, from_bytes, zmq_msg_data(&parts[2]),
                        zmq_msg_size(&parts[2]), answer_store, controller);
    } else if (n_parts >= 3 && is_topic(&parts[1], FL_WIRE_TOPIC) && rank >= 0) {
        for (int i = 2; i < n_parts; i++) {
            heard_frames(controller, rank, (const unsigned char *)zmq_msg_data(&parts[i]),
                         zmq_msg_size(&parts[i]));
        }
    } else {
        fl_log(FL_LOG_WARN,
               "dropped a message of %d parts that is neither a worker's nor a store's", n_parts);
    }
}

/* A message comes whole, so after its first part an interruption is the only reason to try again.
 */
static bool read_part(fl_controller *controller, zmq_msg_t *part, bool first)
{
    int n;
    do {
        n = zmq_msg_recv(part, controller->socket, ZMQ_DONTWAIT);
    } while (n < 0 && zmq_errno() == EINTR && !first);
    return n >= 0;
}

/* One message, however many parts it has. False when there is none. */
static bool read_message(fl_controller *controller)
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
        if (!read_part(controller, part, n_parts == 0)) {
            zmq_msg_close(part);
            n_kept--;
            break;
        }
        n_parts++;
        more = zmq_msg_more(part) != 0;
    }
    if (n_parts > 0) {
        dispatch(controller, parts, n_parts);
    }
    for (int i = 0; i < n_kept; i++) {
        zmq_msg_close(&parts[i]);
    }
    return n_parts > 0;
}

void fl_inbox_read(fl_controller *controller)
{
    /* Bounded, so that a flood of messages does not keep the controller from its signals. */
    for (int i = 0; i < MESSAGES_A_TURN && read_message(controller); i++) {
    }
    fl_runfiles_flush(&controller->files);
}
