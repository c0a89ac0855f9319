/* Ends a run.
 *
 *     all done ───────────────────────────> FINISHING ──(all left)──────────> OVER
 *     a worker lost (losses.c) ── ABORT ──> ENDING ──(all left, or SIGKILL)─> OVER, FL_EFAILED
 *     the agent lost ───────────────────────────────────────────────────────> OVER, FL_EFAILED
 *     a request (stop_request.c) ── as "all done", or SIGKILL to all ───────> OVER, FL_ESTOPPED
 */
#include "control/controller/course/shutdown.h"

#include "control/controller/course/losses.h"
#include "control/controller/course/record_begin.h"
#include "control/controller/course/stop_request.h"
#include "control/controller/faults/recovery.h"
#include "control/controller/faults/silence.h"
#include "control/controller/judge/watch.h"
#include "control/controller/members/joining.h"
#include "control/controller/parts/parts.h"
#include "control/controller/parts/pass.h"
#include "control/controller/parts/run_ledger.h"
#include "control/events/nonfinite.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <inttypes.h>
#include <stdio.h>

void fl_shutdown_init(fl_shutdown *shutdown, const fl_job *job)
{
    *shutdown = (fl_shutdown){.phase = {.lost = -1}, .wish = {.by = "the user"}};
    shutdown->limits = fl_watch_limits_of(job->fault.detect_ms, job->fault.deadline_ms);
}

void fl_shutdown_begin(fl_shutdown *shutdown, int64_t now_us)
{
    shutdown->looked_us = shutdown->moved_us = shutdown->stall_reported_us = now_us;
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
/* ---- what cannot be kept ends the run ---- */

void fl_shutdown_report_lost(fl_controller *controller, int rank, const char *kind)
{
    if (controller->shutdown.status == FL_OK) {
        controller->shutdown.status = FL_EFAILED;
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message,
                 "the controller has no memory for a report (%s) from worker %d: %s", kind, rank,
                 fl_errmsg());
        fl_stop_request(controller, "out of memory");
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
        if (w->exited_us == 0 && !w->killed && now_us - w->departed_us > patience_us) {
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

/* The machine slept, or something stopped the controller, its workers, or both. Time during which
 * the controller itself or none of the workers was running is not counted against any worker, and
 * ends no transition and no checkpoint. */
static void forgive_gap(fl_controller *controller, int64_t now_us)
{
    fl_shutdown *shutdown = &controller->shutdown;
    int64_t gap_us = now_us - shutdown->looked_us;
    bool slept = gap_us >= shutdown->limits.silence_us / 4;
    shutdown->looked_us = now_us;
    controller->standstill.holds = fl_silence_holds(controller, now_us);
    if (!slept && !controller->standstill.holds) {
        return;
    }
    if (slept) {
        fl_log(FL_LOG_DEBUG, "the controller did not run for %.1f s", (double)gap_us * 1e-6);
    }
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

enum { ALIVE_MAX_US = 1000 * 1000 };

/* A worker learns from it, too, which commands were lost (control/link/resend.h). */
static void tell_alive(fl_controller *controller, int64_t now_us)
{
    int64_t quarter_us = controller->shutdown.limits.silence_us / 4;
    int64_t due_us = quarter_us < ALIVE_MAX_US ? quarter_us : ALIVE_MAX_US;
    if (now_us - controller->shutdown.alive_us >= due_us) {
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
    fl_event_log_stalled(&controller->log, &controller->facts, seconds, waits,
                         fl_flight_dump_culprit(&controller->flight_dump));
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
static void enter_finishing(fl_controller *controller, int64_t now_us)
{
    controller->shutdown.phase.state = FL_CONTROLLER_FINISHING;
    fl_losses_report_spared(controller); /* some may have been lost just now */
    fl_joining_end(controller);
    controller->shutdown.deadline_us = now_us + controller->options->job->fault.detect_ms * 1000;
}

/* This process cannot kill those of another host: their agent does, when it knows of the end. */
static void say_who_stays(const fl_controller *controller)
{
    const fl_hosts *hosts = controller->options->hosts;
    for (int i = 0; i < controller->n_workers; i++) {
        int host = hosts == NULL ? 0 : fl_hosts_of(hosts, i);
        if (controller->workers[i].exited_us == 0 && host > 0) {
            fl_log(FL_LOG_WARN,
                   "worker %d on host %s did not exit in time: its agent is to kill it, and does "
                   "when it runs",
                   i, hosts->host[host].name);
        } else if (controller->workers[i].exited_us == 0) {
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

static void enter_running(fl_controller *controller, int64_t now_us)
{
    const fl_controller_options *o = controller->options;
    controller->shutdown.phase.state = FL_CONTROLLER_RUNNING;
    fl_agent_hide_link(controller->agent);
    fl_run_times_restart(&controller->times, now_us);
    fl_record_begin(controller);
    fl_event_log_running(&controller->log);
    if (o->all_ready != NULL) {
        o->all_ready(o->ready_context);
    }
    if (fl_ctl_paused(controller->ctl)) {
        fl_recovery_counted(controller); /* no step will tell that it is over */
    }
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
            enter_running(controller, now_us);
        }
        /* fall through */
    case FL_CONTROLLER_RUNNING:
        fl_losses_watch(controller, now_us);
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
    fl_stop_request_watch(controller, now_us);
    tell_alive(controller, now_us);
}

/* ---- the end ---- */

static void prove_ledger(fl_controller *controller)
{
    fl_shutdown *shutdown = &controller->shutdown;
    if (controller->ledger.waits) {
        return; /* the start failed: it proves what it proved before */
    }
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
        fl_losses_explain(controller);
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
    fl_losses_find_return(controller);
    if (controller->shutdown.phase.lost >= 0) {
        fl_losses_explain(controller);
    }
    if (controller->shutdown.phase.back.returns) {
        fl_losses_count(controller);
    }
    if (controller->shutdown.status == FL_ESTOPPED) {
        snprintf(controller->shutdown.message, sizeof controller->shutdown.message,
                 "stopped by %s after %" PRId64 " of %" PRId64 " steps",
                 controller->shutdown.wish.by, controller->stats.steps,
                 controller->options->n_steps);
    }
}
