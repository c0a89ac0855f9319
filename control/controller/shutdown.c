/* Ends a run.
 *
 *     all done ──────────────────────────> FINISHING ──(all left)──────────────> OVER
 *     a worker lost ── ABORT to all ─────> ENDING ──(all left, or SIGKILL)─────> OVER, FL_EFAILED
 *                   └─ not needed ───────> as before, without that worker
 *     the agent lost ──────────────────────────────────────────────────────────> OVER, FL_EFAILED
 *     first Ctrl-C ── command to the leader ──> as "all done" ────────────────> FL_ESTOPPED
 *     SIGTERM ── the same, but SIGKILL after fault.deadline
 *     second ── SIGKILL to all ────────────────────────────────────────────────> OVER, FL_ESTOPPED
 */
#include "control/controller/parts.h"

#include "control/events/nonfinite.h"
#include "control/events/worker_log.h"
#include "device/clock.h"
#include "device/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TAIL_BYTES = 2048 };

void fl_shutdown_init(fl_shutdown *shutdown, const fl_job *job)
{
    *shutdown =
        (fl_shutdown){.phase = {.lost = -1}, .spared = {.rank = -1}, .stopped_by = "the user"};
    shutdown->limits = fl_watch_limits_of(job->fault.detect_ms, job->fault.deadline_ms);
}

void fl_shutdown_begin(fl_shutdown *shutdown, int64_t now_us)
{
    shutdown->looked_us = shutdown->moved_us = shutdown->stall_reported_us = now_us;
}

/* ---- a lost worker ---- */

/* The message is written again when all workers have left. By then the survivors have flushed their
 * reports. A group advances in lockstep, so the lost worker reached the last step that a survivor
 * finished. */
void fl_shutdown_explain(fl_controller *controller)
{
    fl_worker *lost = &controller->workers[controller->shutdown.phase.lost];
    for (int i = 0; i < controller->n_workers; i++) {
        lost->steps =
            controller->workers[i].steps > lost->steps ? controller->workers[i].steps : lost->steps;
    }
    lost->ready = lost->ready || lost->steps > 0;
    char what[FL_WIRE_TEXT_MAX + 512], tail[TAIL_BYTES], name[FL_AGENT_LOG_NAME_BYTES];
    fl_watch_text(lost, controller->shutdown.loss, controller->shutdown.lost_us, what, sizeof what);
    fl_worker_log_tail(controller->options->dir_fd, controller->shutdown.phase.lost, tail,
                       sizeof tail);
    fl_agent_log_name(controller->shutdown.phase.lost, name);
    const char *waits = controller->shutdown.waits, *then = waits[0] == 0 ? "" : "; ";
    const char *stop = controller->shutdown.no_recovery;
    fl_recovery_sums *sums = &controller->recovery.sums;
    snprintf(sums->why, sizeof sums->why, "%.300s%s%s", what, stop[0] == 0 ? "" : ", and ", stop);
    if (stop[0] != 0) {
        size_t n = strlen(what);
        snprintf(what + n, sizeof what - n, "; the run cannot go on: %s", stop);
    }
    if (tail[0] == 0) {
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message,
                 "%s%s%s; %s/%s is empty", what, then, waits, controller->options->run_dir, name);
    } else {
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message,
                 "%s%s%s; last lines of %s/%s:\n%s", what, then, waits,
                 controller->options->run_dir, name, tail);
    }
}

/* Survivors get time to leave their collectives; those that cannot are killed at the deadline. */
static void end_for(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *lost = &controller->workers[rank];
    controller->shutdown.loss = kind;
    controller->shutdown.phase.lost = rank;
    controller->shutdown.lost_us = now_us;
    controller->shutdown.status = FL_EFAILED;
    fl_flight_dump_explain(&controller->flight_dump, rank, controller->shutdown.waits,
                           sizeof controller->shutdown.waits); /* before any worker leaves */
    fl_flight_dump_write(&controller->flight_dump);
    fl_shutdown_explain(controller);
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_ABORT);
    frame.why = FL_EPEER;
    fl_router_send_to_all(&controller->router, &frame);
    if (lost->exited_us == 0 && kind != FL_LOSS_REPORTED) {
        fl_agent_kill(controller->agent, lost, 1);
    }
    controller->shutdown.phase.state = FL_CONTROLLER_ENDING;
    controller->shutdown.deadline_us = now_us + controller->shutdown.limits.grace_us;
    fl_event_log_lost(&controller->log, lost, kind, fl_watch_kind_text(kind),
                      controller->shutdown.waits, controller->shutdown.message);
}

static bool others_failed(const fl_controller *controller, int rank)
{
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (i != rank && !w->lost && (w->failed_us != 0 || w->left_us != 0)) {
            return true;
        }
    }
    return false;
}

/* Whether the running generation does not need this worker. */
static bool is_spare(const fl_controller *controller, fl_loss_kind kind, int rank)
{
    const fl_worker *w = &controller->workers[rank];
    return controller->shutdown.phase.state == FL_CONTROLLER_RUNNING && kind != FL_LOSS_STUCK &&
           !w->place.active && !fl_decide_keeps(&controller->elastic, rank) &&
           !others_failed(controller, rank) &&
           controller->elastic.transition.state != FL_ELASTIC_RECOVERING;
}

static void go_on_without(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    fl_survived_loss *s = &controller->shutdown.spared;
    *s = (fl_survived_loss){.rank = rank, .kind = kind, .lost_us = now_us};
    fl_watch_text(w, kind, now_us, s->text, sizeof s->text);
    if (w->exited_us == 0) {
        fl_agent_kill(controller->agent, w, 1); /* so that no part waits for a message from it */
    }
    fl_worker_depart(w, now_us);
    w->exit_reported = true;
    fl_elastic_without(&controller->elastic, rank, s->text);
    fl_joining_lost(controller, rank, now_us);
}

/* A former leader may be lost together with its last reports: no other worker has them. Give the
 * reports up once they have had the time to arrive. */
static void give_up_reports(fl_controller *controller, int64_t now_us)
{
    const fl_survived_loss *s = &controller->shutdown.spared;
    int64_t n_missing = fl_step_order_gap(&controller->reports);
    int64_t patience_us = controller->options->job->fault.detect_ms * 1000;
    if (s->rank < 0 || n_missing == 0 || now_us - s->lost_us < patience_us) {
        return;
    }
    fl_log(FL_LOG_WARN,
           "worker %d was lost with the reports of %" PRId64 " steps from step %" PRId64
           " on: steps.jsonl does not have them",
           s->rank, n_missing, controller->reports.next_step);
    controller->shutdown.n_unreported += n_missing;
    fl_run_stats_skip(&controller->stats, n_missing);
    fl_step_order_skip(&controller->reports);
    fl_inbox_drain_reports(controller);
}

static void report_spared(fl_controller *controller)
{
    fl_survived_loss *s = &controller->shutdown.spared;
    if (s->rank >= 0 && !s->reported) {
        s->reported = true;
        fl_event_log_survived(&controller->log, &controller->workers[s->rank], s->kind,
                              fl_watch_kind_text(s->kind), s->text);
    }
}

/* Whether the loss of the spare worker explains that others have failed: soon after it, unless no
 * vote counts on the worker and those that failed can regroup (recovery.h). */
static bool explains_failures(const fl_controller *controller, int64_t now_us)
{
    const fl_survived_loss *s = &controller->shutdown.spared;
    int64_t memory_us = controller->options->job->fault.detect_ms * 1000;
    char why[128];
    return now_us - s->lost_us < memory_us && others_failed(controller, s->rank) &&
           (fl_elastic_counts_on(&controller->elastic, s->rank) ||
            !fl_recovery_regroups(controller, why, sizeof why));
}

/* A standby worker may have been lost before or after the vote that gives it a stage. The outcome
 * shows in the others: they switch to the new generation, fail to, or stay in the old one. */
static void watch_spared(fl_controller *controller, int64_t now_us)
{
    fl_survived_loss *s = &controller->shutdown.spared;
    give_up_reports(controller, now_us);
    if (s->rank < 0) {
        return;
    }
    if (controller->workers[s->rank].place.active || explains_failures(controller, now_us)) {
        end_for(controller, s->kind, s->rank, now_us);
    } else if (!fl_elastic_counts_on(&controller->elastic, s->rank)) {
        report_spared(controller);
    }
}

/* ---- a step that was not finite ---- */

void fl_shutdown_nonfinite(fl_controller *controller, const fl_nonfinite_report *report)
{
    const fl_plan_input *input = controller->options->plan_input;
    const fl_model *model = input == NULL ? NULL : input->model;
    char text[1024];
    fl_nonfinite_text(report, model, text, sizeof text);
    fl_event_log_nonfinite(&controller->log, report, model, text);
    if (report->action == FL_NONFINITE_SKIPS) {
        fl_progress_note(&controller->log.progress, "%s", text);
    } else if (controller->shutdown.status == FL_OK) {
        controller->shutdown.status = FL_EFAILED;
        controller->shutdown.phase.n_stops +=
            controller->shutdown.phase.n_stops == 0; /* start no further transition */
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message, "%s", text);
        /* The leader tells the workers that this step was the last. */
        fl_router_wake_standby(&controller->router, &controller->elastic.plan);
    }
}

/* ---- stop requests ---- */

/* who: a signal, a callback or a client. at_once: the signal that would end the run at once. */
static void stop_softly(fl_controller *controller, const char *who, const char *at_once)
{
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_STOPPING);
    fl_router_send_to_all(&controller->router, &frame);
    if (!fl_elastic_is_switching(
            &controller->elastic)) { /* otherwise when the transition is over */
        fl_router_command(&controller->router, &controller->elastic.plan,
                          &(fl_command){.kind = FL_COMMAND_STOP});
    }
    fl_pass_stop(&controller->pass);
    fl_progress_stopping(&controller->log.progress);
    fl_progress_note(&controller->log.progress,
                     "%s: stopping after the %s in flight; %s stops at once", who,
                     controller->pass.o == NULL ? "step" : "batches", at_once);
    fl_event_log_stopping(&controller->log, who, controller->stats.steps);
}

static void stop_at_once(fl_controller *controller)
{
    fl_agent_kill(controller->agent, controller->workers, controller->n_workers);
    controller->shutdown.cut_off = controller->shutdown.phase.state != FL_CONTROLLER_FINISHING;
    if (controller->shutdown.status == FL_OK) {
        controller->shutdown.status = FL_ESTOPPED;
    }
    controller->shutdown.phase.state = FL_CONTROLLER_OVER;
}

void fl_shutdown_stop(fl_controller *controller, const char *who)
{
    bool stopping = controller->shutdown.phase.n_stops > 0;
    bool can = controller->shutdown.phase.state == FL_CONTROLLER_STARTING ||
               controller->shutdown.phase.state == FL_CONTROLLER_RUNNING;
    if (!stopping && can) {
        controller->shutdown.phase.n_stops = 1;
        stop_softly(controller, who, "a signal");
    }
}

void fl_shutdown_report_lost(fl_controller *controller, int rank, const char *kind)
{
    if (controller->shutdown.status == FL_OK) {
        controller->shutdown.status = FL_EFAILED;
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message,
                 "the controller has no memory for a report (%s) from worker %d: %s", kind, rank,
                 fl_errmsg());
        fl_shutdown_stop(controller, "out of memory");
    }
}

void fl_shutdown_pass_failed(fl_controller *controller, fl_status status)
{
    fl_shutdown *shutdown = &controller->shutdown;
    if (shutdown->status == FL_OK) {
        shutdown->status = status == FL_ESTOPPED ? FL_ESTOPPED : FL_EFAILED;
        shutdown->phase.n_stops += shutdown->phase.n_stops == 0;
        snprintf(shutdown->message, sizeof shutdown->message, "%s", fl_errmsg());
        fl_pass_stop(&controller->pass);
    }
}

static const char *stop_name(int number)
{
    return number == SIGINT    ? "interrupted"
           : number == SIGTERM ? "terminated"
           : number == SIGHUP  ? "hung up"
           : number == SIGQUIT ? "quit"
           : number == SIGXCPU ? "out of processor time"
                               : "the power fails";
}

/* Batch systems kill a while after SIGTERM: by then the last checkpoint must be durable, or given
 * up. */
static void note_signal(fl_controller *controller, int number)
{
    fl_shutdown *shutdown = &controller->shutdown;
    shutdown->signal = number;
    if (number == SIGTERM) {
        shutdown->stopped_by = "SIGTERM";
        shutdown->patience_us = fl_now_us() + controller->options->job->fault.deadline_ms * 1000;
    }
}

static void watch_patience(fl_controller *controller, int64_t now_us)
{
    const fl_shutdown *shutdown = &controller->shutdown;
    bool trains = shutdown->phase.state == FL_CONTROLLER_STARTING ||
                  shutdown->phase.state == FL_CONTROLLER_RUNNING;
    if (trains && shutdown->patience_us > 0 && now_us >= shutdown->patience_us) {
        fl_log(FL_LOG_WARN, "killed the workers: they did not stop within fault.deadline of "
                            "SIGTERM");
        stop_at_once(controller);
    }
}

void fl_shutdown_signals(fl_controller *controller)
{
    int number;
    while ((number = fl_signals_next(&controller->signals)) != 0) {
        if (number == SIGCHLD) {
            continue; /* the agent has ended, which its socket shows as well */
        }
        if (!fl_signals_is_stop(number)) {
            fl_log(FL_LOG_WARN, "ignored signal %d (%s); SIGTERM stops the run", number,
                   strsignal(number));
            continue;
        }
        controller->shutdown.phase.n_stops++;
        if (controller->shutdown.phase.state == FL_CONTROLLER_STARTING ||
            controller->shutdown.phase.state == FL_CONTROLLER_RUNNING) {
            if (controller->shutdown.phase.n_stops == 1) {
                note_signal(controller, number);
                stop_softly(controller, stop_name(number), "a second signal");
                continue;
            }
        }
        if (controller->shutdown.phase.n_stops > 1 ||
            controller->shutdown.phase.state == FL_CONTROLLER_ENDING) {
            stop_at_once(controller);
        }
    }
}

/* ---- timeouts ---- */

static bool all_workers(const fl_controller *controller, bool (*holds)(const fl_worker *))
{
    for (int i = 0; i < controller->n_workers; i++) {
        if (!holds(&controller->workers[i])) {
            return false;
        }
    }
    return true;
}

static bool is_ready(const fl_worker *worker)
{
    return worker->ready || worker->done || worker->departed;
}

static bool is_done(const fl_worker *worker)
{
    return worker->done || worker->departed;
}

/* The departed worker has exited, or fails to exit in time. */
static void watch_departed(fl_controller *controller, int64_t now_us)
{
    int64_t patience_us = controller->options->job->fault.detect_ms * 1000;
    for (int i = 0; i < controller->n_workers; i++) {
        fl_worker *w = &controller->workers[i];
        if (!w->departed || w->exit_reported) {
            continue;
        }
        if (w->exited_us == 0 && now_us - w->departed_us > patience_us) {
            fl_log(FL_LOG_WARN, "killed worker %d: it departed from the run but did not exit", i);
            fl_agent_kill(controller->agent, w, 1);
        }
        if (w->exited_us != 0) {
            w->exit_reported = true;
            fl_event_log_left(&controller->log, w);
        }
    }
}

/* What was heard in this turn already is not moved into the future. */
static void shift(int64_t *moment_us, int64_t gap_us, int64_t now_us)
{
    *moment_us = *moment_us + gap_us < now_us ? *moment_us + gap_us : now_us;
}

/* The machine slept, or something stopped the controller with or without its workers. Time during
 * which the controller itself was not running is not counted against any worker, and ends no
 * transition and no checkpoint. */
static void forgive_gap(fl_controller *controller, int64_t now_us)
{
    fl_shutdown *shutdown = &controller->shutdown;
    int64_t gap_us = now_us - shutdown->looked_us;
    shutdown->looked_us = now_us;
    if (gap_us < shutdown->limits.silence_us / 4) {
        return;
    }
    fl_log(FL_LOG_DEBUG, "the controller did not run for %.1f s", (double)gap_us * 1e-6);
    for (int i = 0; i < controller->n_workers; i++) {
        shift(&controller->workers[i].heard_us, gap_us, now_us);
        controller->workers[i].spawned_us += gap_us;
    }
    shutdown->deadline_us += gap_us;
    shift(&shutdown->moved_us, gap_us, now_us);
    shift(&shutdown->stall_reported_us, gap_us, now_us);
    fl_elastic_forgive(&controller->elastic, gap_us);
    fl_checkpoints_forgive(&controller->checkpoints, gap_us, now_us);
}

static void tell_alive(fl_controller *controller, int64_t now_us)
{
    if (now_us - controller->shutdown.alive_us >= controller->shutdown.limits.silence_us / 4) {
        fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_ALIVE);
        frame.n_counted = controller->stats.steps;
        fl_router_send_to_all(&controller->router, &frame);
        controller->shutdown.alive_us = now_us;
    }
}

static void report_stall(fl_controller *controller, int64_t now_us)
{
    char waits[FL_FLIGHT_DUMP_BYTES];
    double seconds = (double)(now_us - controller->shutdown.moved_us) * 1e-6;
    fl_flight_dump_explain(&controller->flight_dump, -1, waits, sizeof waits);
    fl_event_log_stalled(&controller->log, &controller->facts, seconds, waits);
}

/* No worker is lost, yet no step finishes. Warn, but do not end the run: a step may be long. */
static void watch_stall(fl_controller *controller, int64_t now_us)
{
    int64_t limit_us = controller->options->job->fault.deadline_ms * 1000,
            sum = controller->stats.any_eval;
    for (int i = 0; i < controller->n_workers; i++) {
        sum += controller->workers[i].steps;
    }
    if (sum != controller->shutdown.moved_sum) {
        controller->shutdown.moved_sum = sum;
        controller->shutdown.moved_us = controller->shutdown.stall_reported_us = now_us;
    } else if (controller->shutdown.phase.state == FL_CONTROLLER_RUNNING && limit_us > 0 &&
               !fl_ctl_paused(controller->ctl) && !fl_pass_holds_lines(&controller->pass) &&
               now_us - controller->shutdown.stall_reported_us > limit_us) {
        controller->shutdown.stall_reported_us = now_us;
        report_stall(controller, now_us);
    }
}

/* The others go on, or the run ends. who -1: see fl_recovery_begin. */
static void handle_loss(fl_controller *controller, fl_loss_kind kind, int who, int64_t now_us)
{
    fl_shutdown *shutdown = &controller->shutdown;
    shutdown->no_recovery[0] = 0;
    bool goes_on = fl_recovery_begin(controller, kind, who, now_us, shutdown->no_recovery,
                                     sizeof shutdown->no_recovery);
    if (!goes_on && who >= 0) {
        end_for(controller, kind, who, now_us);
    }
}

static void watch_recovery(fl_controller *controller, int64_t now_us)
{
    fl_shutdown *shutdown = &controller->shutdown;
    const fl_recovery *r = &controller->recovery;
    if (!fl_recovery_watch(controller, now_us, shutdown->no_recovery,
                           sizeof shutdown->no_recovery)) {
        end_for(controller, r->rank < 0 ? FL_LOSS_STUCK : r->kind, r->rank < 0 ? 0 : r->rank,
                now_us);
    }
}

static void watch_losses(fl_controller *controller, int64_t now_us)
{
    int who = -1;
    controller->standstill.waits_are_broken = controller->recovery.state == FL_RECOVERY_COLLECTING;
    fl_standstill_watch_look(&controller->standstill, controller->flight, controller->workers,
                             controller->n_workers, now_us);
    fl_loss_kind kind = fl_watch_judge(controller->workers, controller->n_workers,
                                       &controller->shutdown.limits, now_us, &who);
    if (kind != FL_LOSS_NONE && is_spare(controller, kind, who)) {
        go_on_without(controller, kind, who, now_us);
    } else if (kind != FL_LOSS_NONE || fl_recovery_is_due(controller, now_us, &kind, &who)) {
        handle_loss(controller, kind, who, now_us);
    } else {
        watch_spared(controller, now_us);
        watch_recovery(controller, now_us);
    }
}

static void enter_finishing(fl_controller *controller, int64_t now_us)
{
    controller->shutdown.phase.state = FL_CONTROLLER_FINISHING;
    report_spared(controller); /* it may have been lost just now */
    fl_joining_end(controller);
    controller->shutdown.deadline_us = now_us + controller->options->job->fault.detect_ms * 1000;
}

static void say_who_stays(const fl_controller *controller)
{
    for (int i = 0; i < controller->n_workers; i++) {
        if (controller->workers[i].exited_us == 0) {
            fl_log(FL_LOG_WARN, "killed worker %d: it did not exit in time", i);
        }
    }
}

static void drop_exited(fl_controller *controller)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (controller->workers[rank].exited_us != 0) {
            fl_router_drop(&controller->router, rank);
        }
    }
}

/* Workers that had reported their end were not needed any more. */
static void watch_agent(fl_controller *controller)
{
    char text[256];
    fl_shutdown *shutdown = &controller->shutdown;
    if (!fl_agent_is_lost(controller->agent, text, sizeof text)) {
        return;
    }
    if (shutdown->phase.state == FL_CONTROLLER_FINISHING) {
        fl_log(FL_LOG_WARN, "%s", text);
    } else if (shutdown->status == FL_OK) {
        shutdown->status = FL_EFAILED;
        snprintf(shutdown->message, sizeof shutdown->message, "%s", text);
        fl_event_log_agent_lost(&controller->log, text);
    }
    shutdown->cut_off = shutdown->phase.state != FL_CONTROLLER_FINISHING;
    shutdown->phase.state = FL_CONTROLLER_OVER;
}

void fl_shutdown_watch(fl_controller *controller, int64_t now_us)
{
    int n_living = fl_agent_watch(controller->agent);
    drop_exited(controller);
    watch_agent(controller);
    forgive_gap(controller, now_us);
    watch_departed(controller, now_us);
    switch (controller->shutdown.phase.state) {
    case FL_CONTROLLER_STARTING:
        if (all_workers(controller, is_ready)) {
            controller->shutdown.phase.state = FL_CONTROLLER_RUNNING;
            fl_agent_hide_link(controller->agent);
            fl_run_times_restart(&controller->times, now_us);
            fl_event_log_running(&controller->log);
        }
        /* fall through */
    case FL_CONTROLLER_RUNNING:
        watch_losses(controller, now_us);
        watch_stall(controller, now_us);
        if (controller->shutdown.phase.state == FL_CONTROLLER_RUNNING &&
            all_workers(controller, is_done)) {
            enter_finishing(controller, now_us);
        }
        break;
    case FL_CONTROLLER_FINISHING:
    case FL_CONTROLLER_ENDING:
        if (n_living > 0 && now_us >= controller->shutdown.deadline_us) {
            say_who_stays(controller);
            fl_agent_kill(controller->agent, controller->workers, controller->n_workers);
            n_living = 0;
        }
        if (n_living == 0) {
            controller->shutdown.phase.state = FL_CONTROLLER_OVER;
        }
        break;
    case FL_CONTROLLER_OVER:
        break;
    }
    watch_patience(controller, now_us);
    tell_alive(controller, now_us);
}

/* ---- the end ---- */

static void prove_ledger(fl_controller *controller)
{
    fl_shutdown *shutdown = &controller->shutdown;
    if (shutdown->cut_off || controller->record.ledger_removed) {
        fl_run_ledger_leave_open(&controller->ledger);
        return;
    }
    int64_t n_samples = shutdown->n_unreported > 0 ? -1 : controller->stats.samples;
    fl_status proof = fl_run_ledger_prove(&controller->ledger, n_samples);
    if (proof != FL_OK) {
        /* Workers have run, so the exit code must be one of those that a started run may return. */
        shutdown->status = proof == FL_EINTERNAL ? proof : FL_EFAILED;
        snprintf(shutdown->message, sizeof shutdown->message, "%s%s",
                 proof == FL_EINTERNAL ? "" : "the ledger could not be proved: ", fl_errmsg());
    }
}

static void conclude_pass(fl_controller *controller)
{
    fl_shutdown *shutdown = &controller->shutdown;
    const fl_pass *pass = &controller->pass;
    bool complete = pass->outcome.n_samples == pass->o->n_samples && !fl_pass_holds_lines(pass);
    if (shutdown->status == FL_OK && !complete) {
        bool asked = shutdown->phase.n_stops > 0;
        shutdown->status = asked ? FL_ESTOPPED : FL_EINTERNAL;
        snprintf(shutdown->message, sizeof shutdown->message,
                 "%s after %" PRId64 " of %" PRId64 " samples", asked ? "stopped" : "ended",
                 pass->outcome.n_samples, pass->o->n_samples);
    }
    if (shutdown->phase.lost >= 0) {
        fl_shutdown_explain(controller);
    }
}

void fl_shutdown_conclude(fl_controller *controller)
{
    if (controller->pass.o != NULL) {
        conclude_pass(controller);
        return;
    }
    bool complete =
        controller->stats.steps >= controller->options->n_steps ||
        (controller->stats.ended_early && controller->stats.steps >= controller->stats.n_steps);
    bool asked = controller->shutdown.phase.n_stops > 0 ||
                 controller->stats.n_steps < controller->options->n_steps;
    if (controller->shutdown.status == FL_OK && asked && !complete) {
        controller->shutdown.status = FL_ESTOPPED;
    }
    if (controller->shutdown.status == FL_OK || controller->shutdown.status == FL_ESTOPPED) {
        prove_ledger(controller);
    }
    fl_record_watch(&controller->record, true, fl_now_us());
    if (controller->shutdown.phase.lost >= 0) {
        fl_shutdown_explain(controller);
    }
    if (controller->shutdown.status == FL_ESTOPPED) {
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message,
                 "stopped by %s after %" PRId64 " of %" PRId64 " steps",
                 controller->shutdown.stopped_by, controller->stats.steps,
                 controller->options->n_steps);
    }
}
