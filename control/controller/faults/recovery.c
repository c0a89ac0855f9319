#include "control/controller/faults/recovery.h"

#include "control/controller/faults/break_watch.h"
#include "control/controller/faults/recovery_parts.h"
#include "control/controller/judge/watch.h"
#include "control/controller/members/host_report.h"
#include "control/controller/members/joining.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ① ---- */

/* Where its training thread was, as the flight recorder has it. */
static void name_operation(const fl_controller *controller, int rank, char *text, size_t size_bytes)
{
    fl_flight_view view;
    fl_flight_look(controller->flight, rank, 0, &view);
    if (view.whole && view.depth > 0) {
        size_t n = strlen(text);
        snprintf(text + n, size_bytes - n, ", in: %s",
                 fl_flight_text(view.open[view.depth - 1].kind));
    }
}

static void take_out(fl_controller *controller, fl_loss_kind kind, int rank, const char *text,
                     int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    fl_elastic *elastic = &controller->elastic;
    controller->recovery.n_lost++;
    if (w->exited_us == 0) {
        fl_agent_kill(controller->agent, w, 1);
    }
    w->lost = true;
    w->broken_us = 0;
    fl_worker_depart(w, now_us);
    w->exit_reported = true; /* as a loss */
    const fl_worker_loss loss = {.kind = kind,
                                 .how = fl_watch_kind_text(kind),
                                 .step = fl_host_report_loss_step(controller, rank),
                                 .text = text};
    fl_event_log_missing(&controller->log, w, &loss);
    fl_router_drop(&controller->router, rank);
    elastic->usable.drained[rank] = elastic->transition.terms.usable.drained[rank] = true;
    fl_joining_lost(controller, rank, now_us);
}

/* No worker has failed by itself: connections carry nothing any more, or all wait for each other.
 */
static bool only_stands_still(const fl_worker *w, fl_loss_kind kind)
{
    bool has_failed = w->failed_us != 0 && !fl_status_is_regroup(w->failure);
    return kind == FL_LOSS_STUCK || (kind == FL_LOSS_REPORTED && !has_failed);
}

static bool is_apart(const fl_controller *controller, fl_loss_kind kind, int rank)
{
    const fl_hosts *hosts = controller->options->hosts;
    int host = hosts == NULL ? -1 : fl_hosts_of(hosts, rank);
    return kind == FL_LOSS_HOST && host > 0 && controller->hosts.records[host].apart_from != 0;
}

/* The moment that the lost worker itself shows: its end, its report, or its last sign of life. */
static int64_t worker_fault_us(const fl_worker *w, fl_loss_kind kind, int64_t now_us)
{
    if (w->missed_us > 0) {
        return now_us - w->missed_us;
    }
    return kind == FL_LOSS_REPORTED     ? w->failed_us
           : kind == FL_LOSS_UNREADABLE ? w->unread_us
                                        : w->exited_us;
}

int64_t fl_recovery_fault_us(const fl_controller *controller, fl_loss_kind kind, int rank,
                             int64_t now_us)
{
    const fl_worker *w = rank < 0 ? NULL : &controller->workers[rank];
    int64_t at_us = 0;
    if (w == NULL || only_stands_still(w, kind)) {
        at_us = fl_standstill_since(controller->workers, controller->n_workers,
                                    controller->recovery.trained_us, now_us);
    } else if (is_apart(controller, kind, rank)) {
        at_us = controller->host_pairs.stood_us;
    } else {
        at_us = worker_fault_us(w, kind, now_us);
    }
    return at_us > 0 && at_us < now_us ? at_us : now_us;
}

static void mark_lost(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_recovery *r = &controller->recovery;
    r->rank = rank;
    r->kind = kind;
    fl_watch_text(&controller->workers[rank], kind, now_us, r->text, sizeof r->text);
    name_operation(controller, rank, r->text, sizeof r->text);
    if (r->first < 0) {
        r->first = rank;
        snprintf(r->first_text, sizeof r->first_text, "%.500s", r->text);
    }
    take_out(controller, kind, rank, r->text, now_us);
}

void fl__recovery_take_out_joining(fl_controller *controller, int64_t now_us)
{
    char text[128];
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (!controller->workers[rank].departed && fl_joining_is_half_in(controller, rank)) {
            snprintf(text, sizeof text,
                     "worker %d (standby) was killed: it was joining, and did not know the run's "
                     "state yet",
                     rank);
            take_out(controller, FL_LOSS_KILLED, rank, text, now_us);
        }
    }
}

static void order_break(fl_controller *controller)
{
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_BREAK);
    frame.break_order =
        (fl_break_order){.serial = ++controller->recovery.serial,
                         .until = fl_elastic_next_generation(&controller->elastic) - 1};
    for (int rank = 0; rank < controller->n_workers; rank++) {
        fl_worker *w = &controller->workers[rank];
        w->left_us = w->waits_us = w->still_us = w->asleep_us = 0; /* all of it ends now */
        w->broken_us = 0; /* this order asks for another report */
        w->hung = false;
        if (fl_worker_is_awaited(w)) {
            fl_router_send_to(&controller->router, rank, &frame);
        }
    }
}

void fl__recovery_send_order(fl_controller *controller, const fl_regroup_order *order)
{
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_REGROUP);
    frame.regroup = *order;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (fl_worker_is_awaited(&controller->workers[rank])) {
            fl_router_send_to(&controller->router, rank, &frame);
            controller->workers[rank].broken_us = 0;
        }
    }
}

/* The run is complete: the remaining workers leave. */
static void order_leave(fl_controller *controller)
{
    fl_recovery *r = &controller->recovery;
    fl_regroup_order order = {.serial = r->serial, .leave = true, .step = controller->stats.steps};
    controller->elastic.transition.state = FL_ELASTIC_IDLE;
    r->state = FL_RECOVERY_NONE;
    r->sums.n_losses += r->n_lost;
    fl__recovery_send_order(controller, &order);
}

bool fl_recovery_begin(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us,
                       char *why, size_t size_bytes)
{
    fl_recovery *r = &controller->recovery;
    if (!fl__recovery_can_go_on(controller, rank, why, size_bytes)) {
        return false;
    }
    if (r->state == FL_RECOVERY_NONE) {
        r->begun_us = now_us;
        r->fault_us = fl_recovery_fault_us(controller, kind, rank, now_us);
        r->n_lost = 0;
        r->rank = r->first = -1;
        int first = fl_break_watch_first(controller);
        r->suspect = first >= 0 ? first : fl_break_watch_behind(controller);
        if (first >= 0) {
            fl_break_watch_text(controller, r->text, sizeof r->text);
        } else {
            snprintf(r->text, sizeof r->text, "all workers stood still");
        }
    }
    if (rank >= 0) {
        mark_lost(controller, kind, rank, now_us);
    }
    fl__recovery_take_out_joining(controller, now_us);
    fl_elastic_interrupt(&controller->elastic, r->text);
    fl_checkpoints_interrupt(&controller->checkpoints, r->text);
    fl_snapshots_interrupt(&controller->snapshots);
    r->state = FL_RECOVERY_COLLECTING;
    order_break(controller);
    if (fl__recovery_is_complete(controller) &&
        fl__recovery_count_awaited(controller, -1) == 0) { /* nobody will report */
        order_leave(controller);
    }
    return true;
}

/* ---- ② ---- */

static void note_left(fl_worker *w)
{
    if (w->left_us == 0) {
        w->left_us = w->broken_us;
        w->left_waited_us = w->waits_us;
    }
}

void fl_recovery_broken(fl_controller *controller, fl_worker *worker,
                        const fl_broken_report *report)
{
    fl_log(FL_LOG_DEBUG, "worker %d stands at step %" PRId64 " of generation %u: %s", worker->rank,
           report->step, report->generation, report->text);
    worker->broken = *report;
    worker->broken_us = fl_now_us();
    if (controller->recovery.state != FL_RECOVERY_COLLECTING) {
        note_left(worker);
    }
}

static bool all_reported(const fl_controller *controller)
{
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (fl_worker_is_awaited(w) &&
            (w->broken_us == 0 || w->broken.serial != controller->recovery.serial)) {
            return false;
        }
    }
    return true;
}

/* ---- ⑤ ---- */

/* The time in training does not have what the time without it has. */
static void leave_out(fl_run_stats *stats, int64_t lost_us)
{
    if (stats->steps > 0) { /* else it begins with the first step */
        fl_run_stats_idle(stats, (double)lost_us * 1e-3);
    }
}

static void end_recovery(fl_controller *controller, int64_t now_us)
{
    fl_recovery *r = &controller->recovery;
    r->state = FL_RECOVERY_NONE;
    r->trained_us = now_us;
    r->sums.n_losses += r->n_lost;
    r->sums.n_recoveries++;
    r->sums.last_us = now_us - r->fault_us;
    if (r->sums.returns_us == 0) { /* else it is part of the return */
        r->sums.lost_us += r->sums.last_us;
        leave_out(&controller->stats, r->sums.last_us);
    }
    const fl_recovered done = {.why = r->text,
                               .step = r->step,
                               .detect_us = r->begun_us - r->fault_us,
                               .collect_us = r->resolved_us - r->begun_us,
                               .move_us = now_us - r->resolved_us,
                               .no_moments = r->no_moments,
                               .n_no_moments = r->n_no_moments};
    fl_event_log_recovered(&controller->log, &done, &r->sums, &controller->elastic.plan);
}

bool fl_recovery_watch(fl_controller *controller, int64_t now_us, char *why, size_t size_bytes)
{
    fl_recovery *r = &controller->recovery;
    if (r->state == FL_RECOVERY_MOVING && controller->elastic.transition.state == FL_ELASTIC_IDLE) {
        end_recovery(controller, now_us);
    }
    if (r->state != FL_RECOVERY_COLLECTING) {
        return true;
    }
    /* The loss ① may have been noticed before the members reported that they use the next plan. */
    fl__recovery_take_out_joining(controller, now_us);
    if (!all_reported(controller)) {
        return true;
    }
    if (fl__recovery_is_complete(controller)) {
        order_leave(controller);
        return true;
    }
    return fl__recovery_order_regroup(controller, now_us, why, size_bytes);
}

bool fl_recovery_is_on(const fl_controller *controller)
{
    return controller->recovery.state != FL_RECOVERY_NONE ||
           controller->recovery.sums.returns_us != 0;
}

void fl_recovery_begin_return(fl_controller *controller, int64_t fault_us)
{
    int64_t *returns_us = &controller->recovery.sums.returns_us;
    *returns_us = *returns_us != 0 ? *returns_us : fault_us;
}

static void end_return(fl_recovery_sums *sums, int64_t now_us)
{
    sums->last_us = now_us - sums->returns_us;
    sums->lost_us += sums->last_us;
    sums->returns_us = 0;
}

void fl_recovery_counted(fl_controller *controller)
{
    fl_recovery_sums *sums = &controller->recovery.sums;
    const fl_resume_origin *origin = controller->options->origin;
    controller->recovery.trained_us = fl_now_us();
    bool is_ending = controller->shutdown.phase.state > FL_CONTROLLER_RUNNING;
    if (sums->returns_us != 0 && !is_ending) { /* else the last reports before the return */
        end_return(sums, controller->recovery.trained_us);
        fl_event_log_returned(&controller->log, origin == NULL ? 0 : origin->step, sums);
    }
}

void fl_recovery_over(fl_controller *controller, int64_t now_us)
{
    fl_recovery_sums *sums = &controller->recovery.sums;
    if (controller->shutdown.phase.back.returns) {
        fl_recovery_begin_return(controller, controller->shutdown.lost_us);
    } else if (sums->returns_us != 0) {
        end_return(sums, now_us);
    }
}
