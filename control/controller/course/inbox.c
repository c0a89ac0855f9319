/* Handles the messages that arrive at the controller's ROUTER socket, and answers them.
 *
 *     [identity]["link"][frames]... ──> fl_router_take ──> take_message(): each frame by its type
 *     [identity]["store"][request]  ──> fl_store_handle ──> [identity]["store"][answer]
 *
 * Only this user can open the socket, yet nothing that arrives is trusted. The controller drops a
 * message of another form, a frame that does not decode, and a frame whose rank is not its
 * sender's; each leaves a line in the log. A worker that has sent such a frame is lost: what it
 * said is missing, and the others would wait for the consequence until a deadline. */
#include "control/controller/course/inbox.h"

#include "control/controller/course/callbacks.h"
#include "control/controller/course/record_begin.h"
#include "control/controller/course/shutdown.h"
#include "control/controller/course/stop_answer.h"
#include "control/controller/faults/recovery.h"
#include "control/controller/faults/silence.h"
#include "control/controller/parts/parts.h"
#include "control/controller/parts/pass.h"
#include "control/controller/parts/run_ledger.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "pipe/cost/time/learn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { MESSAGES_A_TURN = 256 };

static void answer_store(void *context, const void *to, size_t to_bytes, const void *message,
                         size_t size_bytes)
{
    if (!fl_router_send((fl_router *)context, to, to_bytes, "store", message, size_bytes)) {
        fl_log(FL_LOG_DEBUG, "the receiver of a store's answer is gone");
    }
}

/* A worker that connects late receives the commands that the others have already received. */
static void heard_hello(fl_controller *controller, fl_worker *worker, int64_t pid)
{
    worker->linked = true;
    worker->pid = (pid_t)pid; /* its agent's word of it may come later */
    fl_router_admit(&controller->router, worker->rank, worker->incarnation);
    if (controller->shutdown.phase.state == FL_CONTROLLER_ENDING) {
        fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_ABORT);
        frame.why = FL_EPEER;
        fl_router_send_to(&controller->router, worker->rank, &frame);
    } else if (controller->shutdown.phase.n_stops > 0) {
        fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_STOPPING);
        fl_router_send_to(&controller->router, worker->rank, &frame);
        if (worker->rank == fl_plan_leader(&controller->elastic.plan)) {
            frame.type = FL_WIRE_COMMAND;
            frame.command = (fl_command){.kind = FL_COMMAND_STOP};
            fl_router_send_to(&controller->router, worker->rank, &frame);
        } else if (!worker->place.active) { /* else it does not hear the leader's broadcast */
            frame.type = FL_WIRE_WAKE;
            fl_router_send_to(&controller->router, worker->rank, &frame);
        }
    }
}

/* The worker ends once it hears this. */
static void acknowledge_last(fl_controller *controller, const fl_worker *worker)
{
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_TAKEN);
    fl_router_send_to(&controller->router, worker->rank, &frame);
}

/* A worker that does not train yet does not report its memory. */
static void remember_memory(fl_worker *worker, const fl_wire_heartbeat *heartbeat)
{
    if (heartbeat->memory.peak_bytes > 0) {
        worker->memory = heartbeat->memory;
    }
}

static void note_steps(fl_worker *worker, int64_t steps)
{
    worker->steps = steps > worker->steps ? steps : worker->steps;
}

/* The report of a step may arrive sooner than the next heartbeat. */
static void stepped(fl_worker *worker, int64_t step)
{
    note_steps(worker, step + 1);
    snprintf(worker->operation, sizeof worker->operation, "step");
}

static bool is_stale(const fl_controller *controller, const fl_wire_message *frame)
{
    bool bears_one = frame->type == FL_WIRE_STEP || frame->type == FL_WIRE_LEDGER;
    /* This worker may have switched to the new generation while another's last reports of the old
     * generation are still in the queue. Only when they have arrived can a worker be ready for the
     * generation after. */
    bool known = frame->generation == controller->elastic.plan.generation ||
                 frame->generation == controller->elastic.generation_before;
    /* After a loss, others send again what a lost leader may not have sent. */
    bool again = controller->recovery.state == FL_RECOVERY_COLLECTING &&
                 frame->generation < controller->elastic.plan.generation;
    return bears_one && !known && !again;
}

void fl_inbox_end_epoch(fl_controller *controller)
{
    fl_mfu mfu = fl_mfu_now(&controller->elastic);
    fl_event_log_epoch(&controller->log, &controller->facts, &controller->times, &mfu);
    fl_run_times_restart(&controller->times, fl_now_us());
    fl_callbacks_epoch(controller);
}

/* ---- step reports of the leaders ---- */

/* A report that cannot be true is dropped. One that there is no memory for ends the run: steps
 * after it could not be counted. */
static void check_kept(fl_controller *controller, const fl_worker *worker,
                       const fl_wire_message *frame, fl_status status)
{
    if (status == FL_ENOMEM) {
        fl_shutdown_report_lost(controller, worker->rank, fl_wire_type_text(frame->type));
    } else if (status != FL_OK) {
        fl_log_counted(&controller->n_dropped[FL_INBOX_DROP_REPORT], 1,
                       "dropped a %s from worker %d: %s", fl_wire_type_text(frame->type),
                       worker->rank, fl_errmsg());
    }
}

static void count_step(fl_controller *controller, const fl_step_record *record)
{
    if (record->has_norms) {
        fl_decide_norms(&controller->elastic, &record->norms);
    }
    if (fl_run_stats_step(&controller->stats, &record->report, record->at_us)) {
        fl_record_begin(controller);
        for (const fl_step_share *s = record->shares; s != NULL; s = s->next) {
            fl_run_ledger_add(&controller->ledger, record->step, s);
        }
        fl_runfiles_step(&controller->log.files, &controller->stats.metrics, &record->report);
        fl_checkpoints_counted(&controller->checkpoints);
        fl_snapshots_counted(&controller->snapshots);
        fl_recovery_counted(controller);
        if (controller->stats.steps == controller->stats.n_steps) {
            /* The leader tells the workers that this step was the last. */
            fl_router_wake_standby(&controller->router, &controller->elastic.plan);
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
        if (record->has_eval && fl_run_stats_eval(&controller->stats, &record->eval)) {
            fl_event_log_evaluation(&controller->log, &controller->stats, &record->eval);
            fl_callbacks_evaluation(controller, &record->eval);
            fl_stop_answer_judged(controller, &record->eval);
        }
        fl_step_record_free(&record);
        if (fl_run_stats_epoch_over(&controller->stats, false)) {
            fl_inbox_end_epoch(controller);
        }
    }
}

static void heard_pass(fl_controller *controller, fl_worker *worker, const fl_pass_report *report)
{
    fl_status status = fl_pass_heard(&controller->pass, report);
    note_steps(worker, report->batch + 1);
    if (status == FL_EFORMAT) {
        fl_log_counted(&controller->n_dropped[FL_INBOX_DROP_PASS], 1,
                       "dropped a report of a pass from worker %d: %s", worker->rank, fl_errmsg());
    } else if (status != FL_OK) {
        fl_shutdown_pass_failed(controller, status);
    }
}

static void heard_hashes(fl_controller *controller, const fl_worker *worker,
                         const fl_wire_message *frame)
{
    check_kept(controller, worker, frame,
               fl_record_hashes(&controller->record, controller->options->model, &frame->hashes));
}

static void take_message(fl_controller *controller, fl_worker *worker, const fl_wire_message *frame)
{
    if (is_stale(controller, frame)) {
        fl_log(FL_LOG_DEBUG, "dropped a %s of generation %u from worker %d",
               fl_wire_type_text(frame->type), frame->generation, worker->rank);
        return;
    }
    switch (frame->type) {
    case FL_WIRE_HELLO:
        heard_hello(controller, worker, frame->pid);
        break;
    case FL_WIRE_HEARTBEAT:
        note_steps(worker, frame->heartbeat.steps);
        remember_memory(worker, &frame->heartbeat);
        memcpy(worker->operation, frame->heartbeat.operation, sizeof worker->operation);
        worker->unanswered = frame->heartbeat.unanswered;
        break;
    case FL_WIRE_READY:
        worker->ready = true;
        worker->memory.peak_bytes = frame->memory_peak_bytes;
        fl_event_log_ready(&controller->log, worker);
        break;
    case FL_WIRE_STEP:
        stepped(worker, frame->step.step);
        check_kept(controller, worker, frame,
                   fl_step_order_step(&controller->reports, &frame->step, frame->at_us));
        break;
    case FL_WIRE_PREPARED:
        fl_elastic_prepared(&controller->elastic, worker, &frame->prepared);
        break;
    case FL_WIRE_TRANSITION:
        fl_elastic_moved(&controller->elastic, worker, &frame->transition);
        break;
    case FL_WIRE_NORMS:
        check_kept(controller, worker, frame,
                   fl_step_order_norms(&controller->reports, &frame->norms));
        break;
    case FL_WIRE_LEDGER:
        check_kept(controller, worker, frame, fl_step_order_share(&controller->reports, frame));
        break;
    case FL_WIRE_BROKEN:
        fl_recovery_broken(controller, worker, &frame->broken);
        break;
    case FL_WIRE_SETTING_DONE:
        fl_ctl_setting_done(controller->ctl, &frame->setting_done);
        break;
    case FL_WIRE_COMM:
        controller->comm = frame->comm;
        fl_event_log_comm(&controller->log, &frame->comm);
        if (controller->options->learned != NULL) {
            fl_profile_learn_comm(controller->options->learned, frame->comm.comm.way,
                                  frame->comm.comm.us);
        }
        break;
    case FL_WIRE_GRAPHS:
        fl_graph_sums_add(&worker->graphs, &frame->graphs);
        fl_learn_graphs(&controller->elastic, worker->rank, &frame->graphs);
        fl_event_log_graphs(&controller->log, worker->rank, &frame->graphs);
        break;
    case FL_WIRE_CACHE:
        fl_cache_sums_add(&controller->cache, &frame->cache);
        fl_event_log_cache(&controller->log, worker->rank, &frame->cache);
        break;
    case FL_WIRE_CACHE_TIERS:
        fl_event_log_cache_tiers(&controller->log, worker->rank, &frame->cache_tiers);
        break;
    case FL_WIRE_NONFINITE:
        fl_shutdown_nonfinite(controller, &frame->nonfinite);
        break;
    case FL_WIRE_HASHES:
        heard_hashes(controller, worker, frame);
        break;
    case FL_WIRE_SAVED: /* all workers report the same */
        controller->saved = frame->hashes;
        break;
    case FL_WIRE_HASHES_FAILED:
        fl_record_hashes_failed(&controller->record, &frame->hashes_failed);
        break;
    case FL_WIRE_CHECKPOINT_FILE:
        fl_checkpoints_file(&controller->checkpoints, worker->rank, &frame->checkpoint_file);
        break;
    case FL_WIRE_CHECKPOINT_PART:
        fl_checkpoints_part(&controller->checkpoints, worker->rank, &frame->checkpoint_part);
        break;
    case FL_WIRE_SNAPSHOT:
        fl_snapshots_reported(&controller->snapshots, worker->rank, &frame->snapshot);
        break;
    case FL_WIRE_TIME:
        stepped(worker, frame->time.step);
        fl_run_times_add(&controller->times, worker->rank, &frame->time);
        fl_learn_time(&controller->elastic, worker->rank, frame->generation, &frame->time);
        fl_stragglers_add(&controller->elastic, worker->rank, &frame->time);
        break;
    case FL_WIRE_PASS:
        heard_pass(controller, worker, &frame->pass);
        break;
    case FL_WIRE_EVAL:
        if (controller->pass.o != NULL) {
            controller->pass.outcome.evaluated = true;
            controller->pass.outcome.evaluation = frame->eval;
            break;
        }
        check_kept(controller, worker, frame,
                   fl_step_order_eval(&controller->reports, &frame->eval));
        break;
    case FL_WIRE_FAILED:
        worker->failed_us = fl_now_us();
        worker->failure = frame->failed.status;
        memcpy(worker->failure_text, frame->failed.text, sizeof worker->failure_text);
        acknowledge_last(controller, worker);
        break;
    case FL_WIRE_DONE:
        worker->done = true;
        acknowledge_last(controller, worker);
        break;
    default:
        fl_log_counted(&controller->n_dropped[FL_INBOX_DROP_TYPE], 1,
                       "dropped a frame from worker %d: the controller takes no %s frames",
                       worker->rank, fl_wire_type_text(frame->type));
    }
    fl_inbox_drain_reports(controller);
}

typedef enum sender { STRANGER, FORMER, LOST, LIVING } sender;

/* Which worker has sent a message with this identity. FORMER: another process of this rank, as one
 * of before the run went back. *rank, *process: of all but a stranger. */
static sender sender_of(const fl_controller *controller, const char *identity, size_t n, int *rank,
                        unsigned *process)
{
    char text[32], again[32];
    if (n >= sizeof text) {
        return STRANGER;
    }
    memcpy(text, identity, n);
    text[n] = 0;
    if (sscanf(text, FL_WIRE_IDENTITY, rank, process) != 2 || *rank < 0 ||
        *rank >= controller->n_workers) {
        return STRANGER;
    }
    const fl_worker *worker = &controller->workers[*rank];
    snprintf(again, sizeof again, FL_WIRE_IDENTITY, *rank, *process);
    return strcmp(text, again) != 0          ? STRANGER
           : *process != worker->incarnation ? FORMER
           : worker->lost                    ? LOST
                                             : LIVING;
}

/* What a worker had not reported when it was lost, others have reported, all but its hashes of
 * weights. */
static void take_or_leave(fl_controller *controller, fl_worker *worker,
                          const fl_wire_message *frame)
{
    if (!worker->lost) {
        take_message(controller, worker, frame);
    } else if (frame->type == FL_WIRE_HASHES) {
        heard_hashes(controller, worker, frame);
    }
}

/* Of a frame that cannot be read, nothing tells where the next one begins: what follows is dropped
 * with it. */
static void refuse_rest(fl_controller *controller, fl_worker *worker, size_t n_bytes)
{
    fl_log_counted(&controller->n_dropped[FL_INBOX_DROP_JUNK], 1,
                   "dropped %zu bytes from worker %d: %s", n_bytes, worker->rank, fl_errmsg());
    if (worker->unread_us == 0) {
        worker->unread_us = fl_now_us();
        snprintf(worker->unread_why, sizeof worker->unread_why, "%s", fl_errmsg());
    }
}

static void heard_frames(fl_controller *controller, int rank, const unsigned char *bytes, size_t n)
{
    fl_worker *worker = &controller->workers[rank];
    if (!worker->lost) {
        worker->heard_us = fl_now_us();
        fl_silence_heard(controller, worker);
    }
    while (n > 0) {
        fl_wire_message frame;
        fl_status status = fl_wire_next(&bytes, &n, &frame);
        if (status == FL_OK && frame.rank != rank) {
            status = fl_fail(FL_EFORMAT, "a frame of rank %d", frame.rank);
        }
        if (status != FL_OK) {
            refuse_rest(controller, worker, n);
            return;
        }
        take_or_leave(controller, worker, &frame);
    }
}

static void heard_message(fl_controller *controller, int rank, unsigned process, zmq_msg_t *parts,
                          int n)
{
    int first = 0;
    if (fl_router_take(&controller->router, rank, process, parts, &first) != FL_OK) {
        refuse_rest(controller, &controller->workers[rank], zmq_msg_size(&parts[0]));
        return;
    }
    for (int i = first; i < n; i++) {
        heard_frames(controller, rank, (const unsigned char *)zmq_msg_data(&parts[i]),
                     zmq_msg_size(&parts[i]));
    }
}

static bool is_topic(zmq_msg_t *part, const char *topic)
{
    return zmq_msg_size(part) == strlen(topic) &&
           memcmp(zmq_msg_data(part), topic, strlen(topic)) == 0;
}

static void dispatch_parts(void *context, zmq_msg_t *parts, int n_kept, int n_parts)
{
    fl_controller *controller = (fl_controller *)context;
    const void *from = zmq_msg_data(&parts[0]);
    size_t from_bytes = zmq_msg_size(&parts[0]);
    int rank = -1;
    unsigned process = 0;
    sender who = sender_of(controller, (const char *)from, from_bytes, &rank, &process);
    if (n_parts > n_kept) {
        fl_log_counted(&controller->n_dropped[FL_INBOX_DROP_PARTS], 1,
                       "dropped a message of %d parts: more than are allowed", n_parts);
    } else if (who >= LOST && n_parts >= 3 && is_topic(&parts[1], FL_WIRE_TOPIC)) {
        heard_message(controller, rank, process, &parts[2], n_parts - 2);
    } else if (who != LOST && n_parts == 3 && is_topic(&parts[1], "store")) {
        fl_store_handle(controller->store, from, from_bytes, zmq_msg_data(&parts[2]),
                        zmq_msg_size(&parts[2]), answer_store, &controller->router);
    } else if (who == LOST || who == FORMER) {
        fl_log(FL_LOG_DEBUG,
               "dropped a message of process %u of worker %d, which was lost or has "
               "ended",
               process, rank);
    } else {
        fl_log_counted(&controller->n_dropped[FL_INBOX_DROP_STRANGER], 1,
                       "dropped a message of %d parts: neither a living worker's nor a store's",
                       n_parts);
    }
}

void fl_inbox_read(fl_controller *controller)
{
    /* Bounded, so that a flood of messages cannot keep the controller from its signals. */
    for (int i = 0;
         i < MESSAGES_A_TURN && fl_router_read(&controller->router, dispatch_parts, controller);
         i++) {
    }
    fl_runfiles_flush(&controller->log.files);
}
