/* How a run ends.
 *
 *     all done ──────────────────────────> FINISHING ──(all left)──────────────> OVER
 *     a worker lost ── ABORT to all ─────> ENDING ──(all left, or SIGKILL)─────> OVER, FL_EFAILED
 *                   └─ nobody needs it ──> as before, without it
 *     first Ctrl-C ── command to the leader ──> as "all done" ────────────────> FL_ESTOPPED
 *     second ── SIGKILL to all ────────────────────────────────────────────────> OVER, FL_ESTOPPED
 */
#include "control/controller/parts.h"

#include "control/events/nonfinite.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"
#include "device/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TAIL_BYTES = 2048 };

/* ---- a lost worker ---- */

/* Told again when all have left: survivors have then flushed their reports, and as a group goes
 * step by step, what they have finished the lost one had come to. */
void fl_shutdown_explain(fl_controller *controller)
{
    fl_worker *lost = &controller->workers[controller->lost];
    for (int i = 0; i < controller->n_workers; i++) {
        lost->steps =
            controller->workers[i].steps > lost->steps ? controller->workers[i].steps : lost->steps;
    }
    lost->ready = lost->ready || lost->steps > 0;
    char what[FL_WIRE_TEXT_MAX + 256], tail[TAIL_BYTES], name[24];
    fl_watch_text(lost, controller->loss, controller->lost_us, what, sizeof what);
    fl_spawn_log_tail(controller->options->dir_fd, controller->lost, tail, sizeof tail);
    fl_spawn_log_name(controller->lost, name);
    const char *waits = controller->waits, *then = waits[0] == 0 ? "" : "; ";
    if (tail[0] == 0) {
        snprintf(controller->message, sizeof controller->message, "%s%s%s; %s/%s is empty", what,
                 then, waits, controller->options->run_dir, name);
    } else {
        snprintf(controller->message, sizeof controller->message,
                 "%s%s%s; last lines of %s/%s:\n%s", what, then, waits,
                 controller->options->run_dir, name, tail);
    }
}

/* Survivors are given the time to leave their collectives; whoever cannot is not asked. */
static void end_for(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *lost = &controller->workers[rank];
    controller->loss = kind;
    controller->lost = rank;
    controller->lost_us = now_us;
    controller->status = FL_EFAILED;
    fl_flight_dump_explain(controller, rank, controller->waits,
                           sizeof controller->waits); /* before anybody leaves */
    fl_flight_dump_write(controller);
    fl_shutdown_explain(controller);
    fl_wire_message order = fl_inbox_order(controller, FL_WIRE_ABORT);
    order.why = FL_EPEER;
    fl_inbox_tell_all(controller, &order);
    if (lost->exited_us == 0 && kind != FL_LOSS_REPORTED) {
        fl_spawn_kill(lost, 1);
    }
    controller->state = FL_CONTROLLER_ENDING;
    controller->deadline_us = now_us + controller->limits.grace_us;
    fl_event_log_lost(controller);
}

static bool others_failed(const fl_controller *controller, int rank)
{
    for (int i = 0; i < controller->n_workers; i++) {
        if (i != rank && controller->workers[i].failed_us != 0) {
            return true;
        }
    }
    return false;
}

/* Whether the generation that runs needs nothing of it. */
static bool is_spare(const fl_controller *controller, fl_loss_kind kind, int rank)
{
    const fl_worker *w = &controller->workers[rank];
    return controller->state == FL_CONTROLLER_RUNNING && kind != FL_LOSS_STUCK &&
           !w->place.active && !fl_decide_keeps(controller, rank) &&
           !others_failed(controller, rank);
}

static void go_on_without(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    fl_survived_loss *s = &controller->spared;
    *s = (fl_survived_loss){.rank = rank, .kind = kind, .lost_us = now_us};
    fl_watch_text(w, kind, now_us, s->text, sizeof s->text);
    if (w->exited_us == 0) {
        fl_spawn_kill(w, 1); /* so that nobody waits for what it might still say */
    }
    w->departed = w->told_exit = true;
    w->departed_us = now_us;
    fl_elastic_without(controller, rank, s->text);
}

/* A leader of before may be lost with its last reports: no other worker has them. Its messages have
 * had the time to arrive. */
static void give_up_reports(fl_controller *controller, int64_t now_us)
{
    const fl_survived_loss *s = &controller->spared;
    int64_t n_missing = fl_step_order_gap(&controller->reports);
    int64_t patience_us = controller->options->job->fault.detect_ms * 1000;
    if (s->rank < 0 || n_missing == 0 || now_us - s->lost_us < patience_us) {
        return;
    }
    fl_log(FL_LOG_WARN,
           "worker %d was lost with the reports of %" PRId64 " steps from step %" PRId64
           " on: steps.jsonl does not have them",
           s->rank, n_missing, controller->reports.next_step);
    controller->n_unreported += n_missing;
    fl_run_stats_skip(&controller->stats, n_missing);
    fl_step_order_skip(&controller->reports);
    fl_inbox_drain_reports(controller);
}

/* One that was to join may have died before the vote or after it: the others tell by going over,
 * by failing to, or by staying. */
static void watch_spared(fl_controller *controller, int64_t now_us)
{
    fl_survived_loss *s = &controller->spared;
    int64_t memory_us = controller->options->job->fault.detect_ms * 1000;
    give_up_reports(controller, now_us);
    if (s->rank < 0) {
        return;
    }
    if (controller->workers[s->rank].place.active ||
        (now_us - s->lost_us < memory_us && others_failed(controller, s->rank))) {
        end_for(controller, s->kind, s->rank, now_us);
    } else if (!s->told && !fl_elastic_counts_on(controller, s->rank)) {
        s->told = true;
        fl_event_log_survived(controller);
    }
}

/* ---- a step that was not finite ---- */

void fl_shutdown_nonfinite(fl_controller *controller, const fl_nonfinite_report *report)
{
    const fl_plan_input *input = controller->options->plan_input;
    char text[1024];
    fl_nonfinite_text(report, input == NULL ? NULL : input->model, text, sizeof text);
    fl_event_log_nonfinite(controller, report, text);
    if (report->action == FL_NONFINITE_SKIPS) {
        fl_progress_note(&controller->progress, "%s", text);
    } else if (controller->status == FL_OK) {
        controller->status = FL_EFAILED;
        controller->n_stops += controller->n_stops == 0; /* no transition begins from here on */
        snprintf(controller->message, sizeof controller->message, "%s", text);
        fl_inbox_wake_standby(controller); /* the leader tells them that this was the last step */
    }
}

/* ---- the user's wish ---- */

static void stop_softly(fl_controller *controller, const char *signal_name)
{
    fl_wire_message order = fl_inbox_order(controller, FL_WIRE_STOPPING);
    fl_inbox_tell_all(controller, &order);
    if (controller->elastic.state != FL_ELASTIC_COMMITTING) { /* else once that is over */
        fl_inbox_command(controller, &(fl_command){.kind = FL_COMMAND_STOP});
    }
    controller->progress.stopping = true;
    fl_progress_note(&controller->progress,
                     "%s: stopping after the step in flight; once more stops at once", signal_name);
    fl_event_log_stopping(controller, signal_name);
}

static void stop_at_once(fl_controller *controller)
{
    fl_spawn_kill(controller->workers, controller->n_workers);
    if (controller->status == FL_OK) {
        controller->status = FL_ESTOPPED;
    }
    controller->state = FL_CONTROLLER_OVER;
}

void fl_shutdown_stop(fl_controller *controller, const char *who)
{
    bool begun = controller->n_stops > 0;
    bool can =
        controller->state == FL_CONTROLLER_STARTING || controller->state == FL_CONTROLLER_RUNNING;
    if (!begun && can) {
        controller->n_stops = 1;
        stop_softly(controller, who);
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

void fl_shutdown_signals(fl_controller *controller)
{
    int number;
    while ((number = fl_signals_next(&controller->signals)) != 0) {
        if (number == SIGCHLD) {
            continue; /* which child it was is asked of every worker, for signals merge */
        }
        if (!fl_signals_is_stop(number)) {
            fl_log(FL_LOG_WARN, "ignored signal %d (%s); SIGTERM stops the run", number,
                   strsignal(number));
            continue;
        }
        controller->n_stops++;
        if (controller->state == FL_CONTROLLER_STARTING ||
            controller->state == FL_CONTROLLER_RUNNING) {
            if (controller->n_stops == 1) {
                stop_softly(controller, stop_name(number));
                continue;
            }
        }
        if (controller->n_stops > 1 || controller->state == FL_CONTROLLER_ENDING) {
            stop_at_once(controller);
        }
    }
}

/* ---- what time brings ---- */

static bool all(const fl_controller *controller, bool (*holds)(const fl_worker *))
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
    return worker->ready || worker->done;
}

static bool is_done(const fl_worker *worker)
{
    return worker->done || worker->departed;
}

/* Who departed is gone, or does not go. */
static void watch_departed(fl_controller *controller, int64_t now_us)
{
    int64_t patience_us = controller->options->job->fault.detect_ms * 1000;
    for (int i = 0; i < controller->n_workers; i++) {
        fl_worker *w = &controller->workers[i];
        if (!w->departed || w->told_exit) {
            continue;
        }
        if (w->exited_us == 0 && now_us - w->departed_us > patience_us) {
            fl_log(FL_LOG_WARN,
                   "worker %d has no part in the run any more, does not leave and is killed", i);
            fl_spawn_kill(w, 1);
        }
        if (w->exited_us != 0) {
            w->told_exit = true;
            fl_event_log_left(controller, w);
        }
    }
}

/* The machine slept, or the controller was stopped together with its workers or without them: time
 * in which the controller did not listen speaks against nobody. */
static void forgive_gap(fl_controller *controller, int64_t now_us)
{
    int64_t gap_us = now_us - controller->looked_us;
    controller->looked_us = now_us;
    if (gap_us < controller->limits.silence_us / 4) {
        return;
    }
    fl_log(FL_LOG_DEBUG, "the controller did not run for %.1f s", (double)gap_us * 1e-6);
    for (int i = 0; i < controller->n_workers; i++) {
        controller->workers[i].heard_us += gap_us;
        controller->workers[i].spawned_us += gap_us;
    }
    controller->deadline_us += gap_us;
}

static void tell_alive(fl_controller *controller, int64_t now_us)
{
    if (now_us - controller->alive_us >= controller->limits.silence_us / 4) {
        fl_wire_message order = fl_inbox_order(controller, FL_WIRE_ALIVE);
        fl_inbox_tell_all(controller, &order);
        controller->alive_us = now_us;
    }
}

/* Nobody is lost, yet nothing moves: said, not ended, for a step may be long. */
static void watch_stall(fl_controller *controller, int64_t now_us)
{
    int64_t limit_us = controller->options->job->fault.deadline_ms * 1000,
            sum = controller->stats.any_eval;
    for (int i = 0; i < controller->n_workers; i++) {
        sum += controller->workers[i].steps;
    }
    if (sum != controller->moved_sum) {
        controller->moved_sum = sum;
        controller->moved_us = controller->told_stall_us = now_us;
    } else if (controller->state == FL_CONTROLLER_RUNNING && limit_us > 0 &&
               !fl_ctl_paused(controller) && now_us - controller->told_stall_us > limit_us) {
        controller->told_stall_us = now_us;
        fl_event_log_stalled(controller, now_us);
    }
}

static void watch_losses(fl_controller *controller, int64_t now_us)
{
    int who = -1;
    fl_loss_kind kind = fl_watch_judge(controller->workers, controller->n_workers,
                                       &controller->limits, now_us, &who);
    if (kind != FL_LOSS_NONE && is_spare(controller, kind, who)) {
        go_on_without(controller, kind, who, now_us);
    } else if (kind != FL_LOSS_NONE) {
        end_for(controller, kind, who, now_us);
    } else {
        watch_spared(controller, now_us);
    }
}

static void enter_finishing(fl_controller *controller, int64_t now_us)
{
    controller->state = FL_CONTROLLER_FINISHING;
    controller->deadline_us = now_us + controller->options->job->fault.detect_ms * 1000;
}

static void say_who_stays(const fl_controller *controller)
{
    for (int i = 0; i < controller->n_workers; i++) {
        if (controller->workers[i].exited_us == 0) {
            fl_log(FL_LOG_WARN, "worker %d does not leave and is killed", i);
        }
    }
}

void fl_shutdown_watch(fl_controller *controller, int64_t now_us)
{
    int n_living = fl_spawn_reap(controller->workers, controller->n_workers);
    forgive_gap(controller, now_us);
    watch_departed(controller, now_us);
    switch (controller->state) {
    case FL_CONTROLLER_STARTING:
        if (all(controller, is_ready)) {
            controller->state = FL_CONTROLLER_RUNNING;
            fl_inbox_hide(controller);
            fl_event_log_running(controller);
        }
        /* fall through */
    case FL_CONTROLLER_RUNNING:
        watch_losses(controller, now_us);
        watch_stall(controller, now_us);
        if (controller->state == FL_CONTROLLER_RUNNING && all(controller, is_done)) {
            enter_finishing(controller, now_us);
        }
        break;
    case FL_CONTROLLER_FINISHING:
    case FL_CONTROLLER_ENDING:
        if (n_living > 0 && now_us >= controller->deadline_us) {
            say_who_stays(controller);
            fl_spawn_kill(controller->workers, controller->n_workers);
            n_living = 0;
        }
        if (n_living == 0) {
            controller->state = FL_CONTROLLER_OVER;
        }
        break;
    case FL_CONTROLLER_OVER:
        break;
    }
    tell_alive(controller, now_us);
}

/* ---- the proof ---- */

static fl_status count_epochs(fl_controller *controller, const fl_ledger_epoch *epochs, int64_t n)
{
    int64_t full = 0, used = 0;
    for (int64_t i = 0; i < n; i++) {
        const fl_ledger_epoch *e = &epochs[i];
        if (e->more > 0 || (e->never > 0 && i + 1 < n)) {
            return fl_fail(FL_EINTERNAL,
                           "the ledger shows that in epoch %" PRId64 " %" PRId64
                           " samples were used more than once and %" PRId64 " not at all",
                           e->epoch + 1, e->more, e->never);
        }
        full += e->never == 0;
        used += e->once;
    }
    if (used != controller->stats.samples && controller->n_unreported == 0) {
        return fl_fail(FL_EINTERNAL,
                       "the ledger shows %" PRId64 " samples, the steps used %" PRId64, used,
                       controller->stats.samples);
    }
    char part[96] = "";
    if (n > full) {
        snprintf(part, sizeof part,
                 "%s%" PRId64 " of %" PRId64 " samples of epoch %" PRId64 " once",
                 full > 0 ? ", " : "", epochs[n - 1].once, epochs[n - 1].n_samples,
                 epochs[n - 1].epoch + 1);
    }
    if (full > 0) {
        char epochs_full[FL_COUNT_BYTES];
        snprintf(controller->ledger_text, sizeof controller->ledger_text,
                 "every sample of %s used once%s", fl_count(full, "epoch", epochs_full), part);
    } else {
        snprintf(controller->ledger_text, sizeof controller->ledger_text, "%s", part);
    }
    return FL_OK;
}

/* The file that is open is proved, whatever its path leads to by now. */
static fl_status prove_file(fl_controller *controller)
{
    char path[64];
    fl_ledger_epoch *epochs = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d/ledger.bin", controller->options->dir_fd);
    fl_status status = fl_ledger_read(path, &epochs, &n);
    if (status == FL_OK) {
        status = count_epochs(controller, epochs, n);
    }
    fl_free(epochs);
    return status;
}

fl_status fl_shutdown_prove(fl_controller *controller)
{
    if (fl_ledger_end(controller->ledger) != FL_OK || controller->record.ledger_removed) {
        snprintf(controller->ledger_text, sizeof controller->ledger_text,
                 "incomplete record: it proves nothing about the whole run");
        return FL_OK;
    }
    return prove_file(controller);
}
