/* A lost worker: the run goes on without it, or ends because of it.
 *
 *     lost ──> the running plan does not need it ① ──> as before, without it
 *          ──> the others can regroup ② ────────────> recovery.h
 *          ──> else ABORT to all ③ ─────────────────> ENDING (shutdown.c)
 */
#include "control/controller/course/losses.h"

#include "control/controller/course/inbox.h"
#include "control/controller/faults/break_watch.h"
#include "control/controller/faults/recovery.h"
#include "control/controller/judge/standstill.h"
#include "control/controller/judge/watch.h"
#include "control/controller/members/host_pairs.h"
#include "control/controller/members/host_report.h"
#include "control/controller/members/joining.h"
#include "control/controller/parts/parts.h"
#include "control/events/worker_log.h"
#include "device/errors/log.h"
#include "device/text/shell_text.h"
#include "device/text/utf8.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TAIL_BYTES = 1024, FIRST_BYTES = 512, OTHERS_BYTES = 304 };

/* The step from which on ledger.bin or steps.jsonl lacks steps, as after a full disk; INT64_MAX:
 * none. A run cannot continue from a later state. */
static int64_t recorded_steps(const fl_controller *controller)
{
    int error = 0;
    int64_t failed = controller->ledger.ledger == NULL
                         ? -1
                         : fl_ledger_failed_step(controller->ledger.ledger, &error);
    const fl_runfile_gap *gap = &controller->log.files.gap[FL_RUNFILE_STEPS];
    int64_t recorded = failed >= 0 ? failed : INT64_MAX;
    return gap->n_lines > 0 && gap->first_step < recorded ? gap->first_step : recorded;
}

/* A run that is to stop goes back, too, and stops there with a checkpoint. Asked again when all
 * workers have left: a checkpoint may have become durable since. */
void fl_losses_find_return(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    fl_phase *phase = &controller->shutdown.phase;
    phase->back = (fl_return_choice){.returns = false};
    bool stops = controller->shutdown.wish.who != NULL;
    if (o->find_return == NULL || phase->lost < 0 || phase->n_stops > (stops ? 1 : 0) ||
        controller->shutdown.status != FL_EFAILED) {
        return;
    }
    o->find_return(o->find_context, controller->recovery.sums.fails_again,
                   recorded_steps(controller), &phase->back);
}

/* ---- ③ ---- */

/* Why the run does not go back, and how a user continues it. */
static void say_what_next(const fl_controller *controller, char *what, size_t size_bytes)
{
    const fl_controller_options *o = controller->options;
    const fl_return_choice *back = &controller->shutdown.phase.back;
    const fl_checkpoint_sums *sums = &controller->checkpoints.sums;
    char run[1024];
    size_t n = strlen(what);
    if (back->returns || controller->pass.o != NULL) {
        return;
    }
    if (back->why_not[0] != 0) {
        n += (size_t)snprintf(what + n, size_bytes - n, "; %s", back->why_not);
    }
    if (sums->any && o->job->model.kind != FL_MODEL_PROGRAM && n < size_bytes) {
        int more = snprintf(what + n, size_bytes - n,
                            "; `frostline run --resume %s%s` continues it from its checkpoint of "
                            "step %" PRId64,
                            fl_shell_shown(o->run_dir, run, sizeof run),
                            o->host_options == NULL ? "" : o->host_options, sums->last_step);
        what[n] = (size_t)more < size_bytes - n ? what[n] : '\0'; /* no part of a command */
    }
}

/* The loss from which the others were still recovering when this one ended the run. Returns the
 * number of characters in what [size_bytes]. */
static size_t put_first_loss(const fl_controller *controller, char *what, size_t size_bytes)
{
    const fl_recovery *r = &controller->recovery;
    what[0] = 0;
    if (r->state == FL_RECOVERY_NONE || r->first < 0 ||
        r->first == controller->shutdown.phase.lost) {
        return 0;
    }
    return (size_t)snprintf(what, size_bytes, "%s; then ", r->first_text);
}

/* Of a worker that was lost with its host, the log does not have the reason; that of a host which
 * shares no files with this one is there. */
static void put_where_to_look(const fl_controller *controller, char *text, size_t size_bytes)
{
    const fl_controller_options *o = controller->options;
    int rank = controller->shutdown.phase.lost;
    int host = o->hosts == NULL ? 0 : fl_hosts_of(o->hosts, rank);
    char tail[TAIL_BYTES], name[FL_AGENT_LOG_NAME_BYTES];
    fl_agent_log_name(rank, name);
    if (controller->shutdown.loss == FL_LOSS_HOST) {
        snprintf(text, size_bytes, "%s/events.jsonl has what came before", o->run_dir);
        return;
    }
    if (host > 0 && o->hosts->apart) {
        snprintf(text, size_bytes,
                 "its log is %s on host %s, in the folder that its agent has for the run; "
                 "%s/events.jsonl has what came before",
                 name, o->hosts->host[host].name, o->run_dir);
        return;
    }
    fl_worker_log_tail(o->dir_fd, rank, tail, sizeof tail);
    if (tail[0] == 0) {
        snprintf(text, size_bytes, "%s/%s is empty", o->run_dir, name);
    } else {
        snprintf(text, size_bytes, "last lines of %s/%s:\n%s", o->run_dir, name, tail);
    }
}

/* The message is written again when all workers have left. By then the survivors have flushed their
 * reports. A group advances in lockstep, so the lost worker reached the last step that a survivor
 * finished. */
void fl_losses_explain(fl_controller *controller)
{
    fl_worker *lost = &controller->workers[controller->shutdown.phase.lost];
    lost->steps =
        fl_workers_finished_steps(controller->workers, controller->n_workers, lost->steps);
    const fl_worker_birth *birth = controller->options->birth;
    lost->ready = lost->ready || lost->steps > (birth == NULL ? 0 : birth->step);
    char what[FL_WIRE_TEXT_MAX + 4096], more[TAIL_BYTES + PATH_MAX + 128];
    size_t n_first = put_first_loss(controller, what, sizeof what);
    fl_watch_text(lost, controller->shutdown.loss, controller->shutdown.lost_us, what + n_first,
                  sizeof what - n_first);
    const char *waits = controller->shutdown.waits, *then = waits[0] == 0 ? "" : "; ";
    const char *stop = controller->shutdown.no_recovery;
    fl_recovery_sums *sums = &controller->recovery.sums;
    sums->fails_again =
        controller->shutdown.loss == FL_LOSS_REPORTED && !fl_status_is_regroup(lost->failure);
    bool opens = controller->shutdown.loss == FL_LOSS_NEVER_READY && waits[0] != 0;
    char first[FIRST_BYTES], others[OTHERS_BYTES];
    snprintf(sums->why, sizeof sums->why, "%s%s%s%s%s", fl_text_fit(what, first, sizeof first),
             opens ? "; " : "", fl_text_fit(opens ? waits : "", others, sizeof others),
             stop[0] == 0 ? "" : ", and ", stop);
    if (stop[0] != 0) {
        size_t n = strlen(what);
        snprintf(what + n, sizeof what - n, "; the run cannot go on: %s", stop);
    }
    say_what_next(controller, what, sizeof what);
    put_where_to_look(controller, more, sizeof more);
    snprintf(controller->shutdown.message, sizeof controller->shutdown.message, "%s%s%s; %s", what,
             then, waits, more);
}

/* A worker that is never ready may be in the same call as all others, of which only one has failed
 * to make it: the message names each. */
static void name_openings(fl_controller *controller, fl_loss_kind kind)
{
    char calls[FL_FLIGHT_DUMP_BYTES];
    fl_flight_dump_openings(&controller->flight_dump, calls, sizeof calls);
    if (kind == FL_LOSS_NEVER_READY && calls[0] != 0) {
        snprintf(controller->shutdown.waits, sizeof controller->shutdown.waits, "%s", calls);
    }
}

/* Ctrl-C and SIGTERM of an engine end the agents of the other hosts as well: a run that stops for
 * such a signal itself has not failed. */
static bool is_stopped_with_host(const fl_controller *controller, fl_loss_kind kind, int rank)
{
    return controller->shutdown.wish.signal != 0 && kind == FL_LOSS_HOST &&
           strstr(controller->workers[rank].host_why, FL_HOST_STOPPED) != NULL;
}

/* Survivors get time to leave their collectives; those that cannot are killed at the deadline. */
static void end_for(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *lost = &controller->workers[rank];
    const fl_recovery *r = &controller->recovery;
    int64_t fault_us = r->state != FL_RECOVERY_NONE
                           ? r->fault_us /* of the first loss, from which the run never recovered */
                           : fl_recovery_fault_us(controller, kind, rank, now_us);
    controller->shutdown.loss = kind;
    controller->shutdown.phase.lost = rank;
    controller->shutdown.lost_us = now_us;
    bool stopped = is_stopped_with_host(controller, kind, rank);
    controller->shutdown.status = stopped ? FL_ESTOPPED : FL_EFAILED;
    controller->shutdown.cut_off = controller->shutdown.cut_off || stopped;
    fl_flight_dump_explain(&controller->flight_dump, rank, controller->shutdown.waits,
                           sizeof controller->shutdown.waits); /* before any worker leaves */
    name_openings(controller, kind);
    fl_flight_dump_write(&controller->flight_dump);
    fl_losses_explain(controller);
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_ABORT);
    frame.why = FL_EPEER;
    fl_router_send_to_all(&controller->router, &frame);
    if (lost->exited_us == 0 && kind != FL_LOSS_REPORTED) {
        fl_agent_kill(controller->agent, lost, 1);
    }
    controller->shutdown.phase.state = FL_CONTROLLER_ENDING;
    controller->shutdown.deadline_us = now_us + controller->shutdown.limits.grace_us;
    fl_losses_find_return(controller);
    fl_losses_explain(controller);
    if (controller->shutdown.phase.back.returns) {
        fl_recovery_begin_return(controller, fault_us);
    }
    if (!lost->lost) { /* else the recovery that has failed now has logged it */
        const fl_worker_loss loss = {.kind = kind,
                                     .how = fl_watch_kind_text(kind),
                                     .step = fl_host_report_loss_step(controller, rank),
                                     .text = controller->shutdown.message};
        fl_event_log_lost(&controller->log, lost, &loss, controller->shutdown.waits,
                          &controller->shutdown.phase.back);
    }
}

/* Several may have died at once. Those that left because of the others have ended by themselves, or
 * were killed by the controller. */
void fl_losses_count(fl_controller *controller)
{
    const fl_recovery *r = &controller->recovery;
    int n = r->state == FL_RECOVERY_NONE ? 0 : r->n_lost;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        const fl_worker *w = &controller->workers[rank];
        bool died = w->exited_us != 0 && WIFSIGNALED(w->wait_status) && !w->killed;
        n += !w->departed && (died || rank == controller->shutdown.phase.lost);
    }
    controller->recovery.sums.n_losses += n;
}

/* ---- ① ---- */

static bool others_failed(const fl_controller *controller, int rank)
{
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (i != rank && !w->lost && !w->lost_outside && (w->failed_us != 0 || w->left_us != 0)) {
            return true;
        }
    }
    return false;
}

/* Whether the running generation does not need this worker. While the members vote on one that
 * gives it a stage, nobody knows which generation will run: then the others regroup, where they
 * can. */
static bool is_spare(const fl_controller *controller, fl_loss_kind kind, int rank)
{
    const fl_worker *w = &controller->workers[rank];
    char why[128];
    if (fl_elastic_counts_on(&controller->elastic, rank) &&
        fl_recovery_regroups(controller, why, sizeof why)) {
        return false;
    }
    return controller->shutdown.phase.state == FL_CONTROLLER_RUNNING && kind != FL_LOSS_STUCK &&
           !w->place.active && !fl_decide_keeps(&controller->elastic, rank) &&
           !others_failed(controller, rank) &&
           controller->elastic.transition.state != FL_ELASTIC_RECOVERING;
}

static void go_on_without(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    fl_survived_loss *s = &controller->spared[rank];
    *s = (fl_survived_loss){
        .kind = kind, .lost_us = now_us, .step = fl_host_report_loss_step(controller, rank)};
    fl_watch_text(w, kind, now_us, s->text, sizeof s->text);
    if (w->exited_us == 0) {
        fl_agent_kill(controller->agent, w, 1); /* so that no part waits for a message from it */
    }
    fl_worker_depart(w, now_us);
    w->exit_reported = w->lost_outside = true;
    fl_elastic_without(&controller->elastic, rank, s->text);
    fl_joining_lost(controller, rank, now_us);
}

/* The rank that was lost last among those that the run continues without; -1: none. */
static int last_spared(const fl_controller *controller)
{
    int last = -1;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        const fl_survived_loss *s = &controller->spared[rank];
        bool is_later = last < 0 || s->lost_us > controller->spared[last].lost_us;
        last = s->kind != FL_LOSS_NONE && is_later ? rank : last;
    }
    return last;
}

/* A former leader may be lost together with its last reports: no other worker has them. Give the
 * reports up once they have had the time to arrive. */
static void give_up_reports(fl_controller *controller, int64_t now_us)
{
    int rank = last_spared(controller);
    int64_t n_missing = fl_step_order_gap(&controller->reports);
    int64_t patience_us = controller->options->job->fault.detect_ms * 1000;
    if (rank < 0 || n_missing == 0 || now_us - controller->spared[rank].lost_us < patience_us) {
        return;
    }
    fl_log(FL_LOG_WARN,
           "worker %d was lost with the reports of %" PRId64 " steps from step %" PRId64
           " on: steps.jsonl does not have them",
           rank, n_missing, controller->reports.next_step);
    controller->shutdown.n_unreported += n_missing;
    fl_run_stats_skip(&controller->stats, n_missing);
    fl_step_order_skip(&controller->reports);
    fl_inbox_drain_reports(controller);
}

static void report_spared(fl_controller *controller, int rank)
{
    fl_survived_loss *s = &controller->spared[rank];
    if (s->kind != FL_LOSS_NONE && !s->reported) {
        s->reported = true;
        controller->recovery.sums.n_losses++;
        const fl_worker_loss loss = {
            .kind = s->kind, .how = fl_watch_kind_text(s->kind), .step = s->step, .text = s->text};
        fl_event_log_survived(&controller->log, &controller->workers[rank], &loss);
    }
}

void fl_losses_report_spared(fl_controller *controller)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        report_spared(controller, rank);
    }
}

/* Whether the loss of the spare worker explains that others have failed: soon after it, unless no
 * vote counts on the worker and those that failed can regroup (recovery.h). */
static bool explains_failures(const fl_controller *controller, int rank, int64_t now_us)
{
    const fl_survived_loss *s = &controller->spared[rank];
    int64_t memory_us = controller->options->job->fault.detect_ms * 1000;
    char why[128];
    return now_us - s->lost_us < memory_us && others_failed(controller, rank) &&
           (fl_elastic_counts_on(&controller->elastic, rank) ||
            !fl_recovery_regroups(controller, why, sizeof why));
}

/* A standby worker may have been lost before or after the vote that gives it a stage. The outcome
 * shows in the others: they switch to the new generation, fail to, or stay in the old one. */
static void watch_spared(fl_controller *controller, int64_t now_us)
{
    give_up_reports(controller, now_us);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        fl_loss_kind kind = controller->spared[rank].kind;
        if (kind == FL_LOSS_NONE) {
            continue;
        }
        if (controller->workers[rank].place.active || explains_failures(controller, rank, now_us)) {
            end_for(controller, kind, rank, now_us);
            return;
        }
        if (!fl_elastic_counts_on(&controller->elastic, rank)) {
            report_spared(controller, rank);
        }
    }
}
/* ---- ② ---- */

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
        end_for(controller, r->rank < 0 ? FL_LOSS_STUCK : r->kind,
                r->rank < 0 ? r->suspect : r->rank, now_us);
    }
}

static void note_missed(fl_controller *controller, fl_loss_kind kind, int who, int64_t now_us)
{
    if (kind == FL_LOSS_SILENT || kind == FL_LOSS_HUNG) {
        fl_worker *w = &controller->workers[who];
        w->missed_us = kind == FL_LOSS_SILENT ? now_us - w->heard_us : w->still_us;
    }
}

/* Whether the hosts try first whether they reach each other. */
static bool may_be_apart(fl_controller *controller, fl_loss_kind kind, int who, int64_t now_us)
{
    return kind == FL_LOSS_NONE ? fl_host_pairs_check_meeting(controller, now_us)
                                : fl_host_pairs_may_explain(controller, kind, who) &&
                                      fl_host_pairs_check(controller, now_us);
}

/* The workers of the head do not reach each other: another plan for them would not help. */
static bool end_for_cut(fl_controller *controller, int64_t now_us)
{
    int who = -1;
    const char *why = fl_host_pairs_cut_worker(controller, &who);
    if (why == NULL) {
        return false;
    }
    snprintf(controller->workers[who].cut_why, sizeof controller->workers[who].cut_why, "%s", why);
    end_for(controller, FL_LOSS_STUCK, who, now_us);
    return true;
}

void fl_losses_watch(fl_controller *controller, int64_t now_us)
{
    int who = -1;
    if (end_for_cut(controller, now_us)) {
        return;
    }
    controller->standstill.waits_are_broken = controller->recovery.state == FL_RECOVERY_COLLECTING;
    fl_standstill_watch_look(&controller->standstill, controller->flight, controller->workers,
                             controller->n_workers, now_us);
    fl_loss_kind kind = fl_watch_judge(controller->workers, controller->n_workers,
                                       &controller->shutdown.limits, now_us, &who);
    note_missed(controller, kind, who, now_us);
    if (may_be_apart(controller, kind, who, now_us)) {
        return;
    }
    if (kind != FL_LOSS_NONE && is_spare(controller, kind, who)) {
        go_on_without(controller, kind, who, now_us);
    } else if (kind != FL_LOSS_NONE || fl_break_watch_is_due(controller, now_us, &kind, &who)) {
        handle_loss(controller, kind, who, now_us);
    } else {
        watch_spared(controller, now_us);
        watch_recovery(controller, now_us);
    }
}
