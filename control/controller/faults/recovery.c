#include "control/controller/faults/recovery.h"

#include "control/controller/faults/break_watch.h"
#include "control/controller/judge/watch.h"
#include "control/controller/members/joining.h"
#include "control/controller/parts/parts.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"
#include "nn/model.h"
#include "pipe/plan/migrate_schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ① ---- */

static bool give_reason(char *why, size_t size_bytes, const char *text)
{
    snprintf(why, size_bytes, "%s", text);
    return false;
}

/* Which layers' weights only lost workers have. */
static bool name_orphans(const fl_controller *controller, const bool *lost, char *why,
                         size_t size_bytes)
{
    const fl_model *model = controller->options->plan_input->model;
    const fl_plan *plan = &controller->elastic.plan;
    unsigned char orphans[FL_MAX_LAYERS];
    int n = fl_migrate_orphans(model, plan, controller->elastic.decide.parked, lost, orphans);
    int first = 0, last = plan->n_layers - 1;
    if (n == 0) {
        return false;
    }
    while (!(orphans[first] & FL_ORPHAN_WEIGHTS)) {
        first++;
    }
    while (!(orphans[last] & FL_ORPHAN_WEIGHTS)) {
        last--;
    }
    snprintf(why, size_bytes, "no other worker has the weights of %s%s%s",
             fl_model_layer_name(model, first), last > first ? " to " : "",
             last > first ? fl_model_layer_name(model, last) : "");
    return true;
}

/* Which frozen layers lose the moments that were kept for a thaw. */
static void list_lost_moments(fl_controller *controller, const bool *lost)
{
    const fl_model *model = controller->options->plan_input->model;
    fl_recovery *r = &controller->recovery;
    unsigned char orphans[FL_MAX_LAYERS];
    (void)fl_migrate_orphans(model, &controller->elastic.plan, controller->elastic.decide.parked,
                             lost, orphans);
    r->n_no_moments = 0;
    for (int layer = 0; layer < controller->elastic.plan.n_layers; layer++) {
        if ((orphans[layer] & FL_ORPHAN_MOMENTS) && fl_model_params(model, layer)->n > 0) {
            r->no_moments[r->n_no_moments++] = fl_model_layer_name(model, layer);
        }
    }
}

/* Those that are lost under the running plan, with `rank`. */
static void list_lost(const fl_controller *controller, int rank, bool *lost)
{
    const fl_plan *plan = &controller->elastic.plan;
    for (int i = 0; i < controller->n_workers; i++) {
        lost[i] = (controller->workers[i].lost || i == rank) && !plan->departed[i];
    }
}

static int count_awaited(const fl_controller *controller, int without)
{
    int n = 0;
    for (int i = 0; i < controller->n_workers; i++) {
        n += i != without && fl_worker_is_awaited(&controller->workers[i]);
    }
    return n;
}

bool fl_recovery_regroups(const fl_controller *controller, char *why, size_t size_bytes)
{
    const fl_controller_options *o = controller->options;
    if (o->job->fault.on_loss == FL_ON_LOSS_STOP || o->pass != NULL ||
        controller->shutdown.phase.state != FL_CONTROLLER_RUNNING) {
        return give_reason(why, size_bytes, "");
    }
    if (o->plan_input == NULL || o->recording != NULL) {
        return give_reason(why, size_bytes,
                           o->recording != NULL ? "the run repeats another one, which has its plans"
                                                : "nothing is known of the model's layers");
    }
    return true;
}

static bool is_evaluated(const fl_run_stats *stats)
{
    return stats->any_eval && stats->last_eval.step + 1 == stats->steps;
}

/* Somebody has finished: all had met at the end of the run before, and what was to be written is.
 */
static bool is_complete(const fl_controller *controller)
{
    for (int i = 0; i < controller->n_workers; i++) {
        if (controller->workers[i].done && !controller->workers[i].departed) {
            return true;
        }
    }
    return false;
}

/* Whether a complete run lacks no report: the worker that is lost now may have taken some with it.
 */
static bool is_recorded(const fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_run_stats *stats = &controller->stats;
    const fl_dataset *d = o->dataset;
    for (int i = 0; i < controller->n_workers; i++) {
        if (controller->workers[i].steps > stats->steps) {
            return false;
        }
    }
    bool evaluates = o->job->train.evaluate && stats->steps == stats->n_steps && d != NULL &&
                     d->ops->count(d->self, FL_TEST) > 0;
    return fl_checkpoints_has_last(&controller->checkpoints, stats->steps) &&
           (!evaluates || is_evaluated(stats));
}

static bool can_go_on(const fl_controller *controller, int rank, char *why, size_t size_bytes)
{
    bool lost[FL_MAX_WORKERS];
    if (!fl_recovery_regroups(controller, why, size_bytes)) {
        return false;
    }
    if (is_complete(controller) && is_recorded(controller)) {
        return true;
    }
    if (count_awaited(controller, rank) == 0) {
        return give_reason(why, size_bytes, "no other worker is left");
    }
    list_lost(controller, rank, lost);
    /* While some may have switched, ③ finds out. */
    return fl_elastic_is_switching(&controller->elastic) ||
           !name_orphans(controller, lost, why, size_bytes);
}

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
    fl_event_log_missing(&controller->log, w, kind, fl_watch_kind_text(kind), text);
    fl_router_drop(&controller->router, rank);
    elastic->usable.drained[rank] = elastic->transition.terms.usable.drained[rank] = true;
    fl_joining_lost(controller, rank, now_us);
}

/* The moment of the fault: the process's end, or its last sign of life. */
int64_t fl_recovery_fault_us(const fl_worker *w, int64_t now_us)
{
    int64_t at_us = w->missed_us > 0 ? now_us - w->missed_us : w->exited_us;
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

/* Only the leader can tell them the run's state, in the generation that is broken. */
static void take_out_joining(fl_controller *controller, int64_t now_us)
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

static void send_order(fl_controller *controller, const fl_regroup_order *order)
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
    send_order(controller, &order);
}

bool fl_recovery_begin(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us,
                       char *why, size_t size_bytes)
{
    fl_recovery *r = &controller->recovery;
    if (!can_go_on(controller, rank, why, size_bytes)) {
        return false;
    }
    if (r->state == FL_RECOVERY_NONE) {
        r->begun_us = now_us;
        r->fault_us = rank < 0 ? now_us : fl_recovery_fault_us(&controller->workers[rank], now_us);
        r->n_lost = 0;
        r->rank = r->first = -1;
        int first = fl_break_watch_first(controller);
        r->suspect = first >= 0 ? first : fl_break_watch_behind(controller);
        snprintf(r->text, sizeof r->text, "%s",
                 first >= 0 ? "connections between workers broke" : "all workers stood still");
    }
    if (rank >= 0) {
        mark_lost(controller, kind, rank, now_us);
    }
    take_out_joining(controller, now_us);
    fl_elastic_interrupt(&controller->elastic, r->text);
    fl_checkpoints_interrupt(&controller->checkpoints, r->text);
    fl_snapshots_interrupt(&controller->snapshots);
    r->state = FL_RECOVERY_COLLECTING;
    order_break(controller);
    if (is_complete(controller) && count_awaited(controller, -1) == 0) { /* nobody will report */
        order_leave(controller);
    }
    return true;
}

/* ---- ② ---- */

void fl_recovery_broken(fl_controller *controller, fl_worker *worker,
                        const fl_broken_report *report)
{
    fl_log(FL_LOG_DEBUG, "worker %d stands at step %" PRId64 " of generation %u: %s", worker->rank,
           report->step, report->generation, report->text);
    worker->broken = *report;
    worker->broken_us = fl_now_us();
    if (controller->recovery.state != FL_RECOVERY_COLLECTING) {
        worker->left_us = worker->left_us == 0 ? worker->broken_us : worker->left_us;
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

/* ---- ③ ---- */

/* What is true: the furthest that anybody has come. */
static const fl_worker *find_furthest(const fl_controller *controller, uint32_t *generation,
                                      int64_t *step)
{
    const fl_worker *furthest = NULL;
    *generation = controller->elastic.plan.generation;
    *step = controller->stats.steps;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (!fl_worker_is_awaited(w)) {
            continue;
        }
        *generation = w->broken.generation > *generation ? w->broken.generation : *generation;
        *step = w->broken.step > *step ? w->broken.step : *step;
        if (furthest == NULL ||
            w->broken.position.n_commands > furthest->broken.position.n_commands) {
            furthest = w;
        }
    }
    return furthest;
}

/* Before the last step is applied everywhere: whether each worker that trains can be brought there.
 */
static bool check_reports(fl_controller *controller, uint32_t generation, int64_t step, char *why,
                          size_t size_bytes)
{
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        const fl_broken_report *b = &w->broken;
        if (!fl_worker_is_awaited(w)) {
            continue;
        }
        bool there = b->generation == generation || b->exchanged == generation;
        bool trains = fl_plan_place(&controller->elastic.plan, i).active;
        bool applied = b->step == step || (b->step == step - 1 && b->summed_step == b->step);
        if (!there || (trains && b->generation == generation && !applied)) {
            controller->recovery.suspect = i;
            snprintf(why, size_bytes,
                     "worker %d stands at step %" PRId64
                     " of generation %u, the run at step %" PRId64 " of generation %u",
                     i, b->step, b->generation, step, generation);
            return false;
        }
    }
    if (controller->stats.steps < step) {
        snprintf(why, size_bytes, "the reports of steps %" PRId64 " to %" PRId64 " are lost",
                 controller->stats.steps, step - 1);
        return false;
    }
    return true;
}

/* A plan with the same frozen blocks for the workers that are left: with the K and R that the run
 * is to have, where a worker stood by for the lost one; else the best. */
static bool choose_plan(fl_controller *controller, fl_plan *plan, char *why, size_t size_bytes)
{
    fl_elastic *elastic = &controller->elastic;
    fl_job job = *controller->options->job;
    fl_plan_input input = *controller->options->plan_input;
    fl_decide_grid(elastic, &elastic->usable, &job);
    input.job = &job;
    input.F = elastic->plan.F;
    input.generation = fl_elastic_next_generation(elastic);
    fl_status status = fl_worker_pool_choose(&elastic->usable, &input, plan);
    if (status != FL_OK) {
        job.pipe.k = job.autodp.r = job.pipe.m = FL_JOB_AUTO;
        status = fl_worker_pool_choose(&elastic->usable, &input, plan);
    }
    if (status == FL_OK) {
        fl_decide_place(elastic, &elastic->usable, plan);
        fl_worker_pool_members(&elastic->usable, plan);
        status = fl_decide_check_room(elastic, plan);
    }
    if (status != FL_OK) {
        snprintf(why, size_bytes, "no plan for the others: %s", fl_errmsg());
    }
    return status == FL_OK;
}

/* An order of the controller that has been given, but that nobody has carried out, is as good as
 * carried out: the answer to a step at which all wait, and the end of the run. */
static fl_run_position position_from(const fl_controller *controller, const fl_worker *furthest)
{
    fl_run_position p = furthest->broken.position;
    for (int kind = 0; kind < FL_DUE_KINDS; kind++) {
        int64_t sent = controller->router.answered[kind];
        p.answered[kind] = p.answered[kind] > sent ? p.answered[kind] : sent;
    }
    p.end_step = p.end_step < controller->stats.n_steps ? p.end_step : controller->stats.n_steps;
    p.n_skipped = controller->stats.last.skipped ? p.n_skipped : 0;
    return p;
}

static bool order_regroup(fl_controller *controller, int64_t now_us, char *why, size_t size_bytes)
{
    fl_recovery *r = &controller->recovery;
    fl_elastic *elastic = &controller->elastic;
    const fl_run_stats *stats = &controller->stats;
    bool lost[FL_MAX_WORKERS];
    uint32_t generation;
    fl_step_order_forget(&controller->reports);
    const fl_worker *furthest = find_furthest(controller, &generation, &r->step);
    if (furthest == NULL) {
        snprintf(why, size_bytes, "no other worker is left");
        return false;
    }
    fl_elastic_resolve(elastic, generation, r->step, r->text);
    take_out_joining(controller, now_us);
    list_lost(controller, -1, lost);
    if (!check_reports(controller, generation, r->step, why, size_bytes) ||
        name_orphans(controller, lost, why, size_bytes)) {
        return false;
    }
    fl_regroup_order order = {
        .serial = r->serial,
        .generation = generation,
        .step = r->step,
        .grad_norm = stats->last.grad_norm,
        .finite = !stats->last.skipped,
        .evaluates = !is_evaluated(stats),
        .saved = fl_checkpoints_regroup(&controller->checkpoints, r->step, r->text),
        .position = position_from(controller, furthest)};
    if (!choose_plan(controller, &order.plan, why, size_bytes)) {
        return false;
    }
    list_lost_moments(controller, lost);
    fl_elastic_force(elastic, &order.plan, r->text);
    r->resolved_us = now_us;
    r->state = FL_RECOVERY_MOVING;
    send_order(controller, &order);
    fl_ctl_regrouped(controller->ctl, &order.position, order.step);
    return true;
}

/* ---- ⑤ ---- */

static void end_recovery(fl_controller *controller, int64_t now_us)
{
    fl_recovery *r = &controller->recovery;
    r->state = FL_RECOVERY_NONE;
    r->sums.n_losses += r->n_lost;
    r->sums.n_recoveries++;
    r->sums.last_us = now_us - r->fault_us;
    r->sums.lost_us += r->sums.last_us;
    const fl_recovered done = {.why = r->text,
                               .step = r->step,
                               .detect_us = r->begun_us - r->fault_us,
                               .collect_us = r->resolved_us - r->begun_us,
                               .move_us = now_us - r->resolved_us,
                               .no_moments = r->no_moments,
                               .n_no_moments = r->n_no_moments};
    fl_event_log_recovered(&controller->log, &done, &controller->elastic.plan);
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
    /* ① may have come before the controller knew that the members have gone over. */
    take_out_joining(controller, now_us);
    if (!all_reported(controller)) {
        return true;
    }
    if (is_complete(controller)) {
        order_leave(controller);
        return true;
    }
    return order_regroup(controller, now_us, why, size_bytes);
}

bool fl_recovery_is_on(const fl_controller *controller)
{
    return controller->recovery.state != FL_RECOVERY_NONE ||
           controller->recovery.sums.returns_us != 0;
}

void fl_recovery_counted(fl_controller *controller)
{
    fl_recovery_sums *sums = &controller->recovery.sums;
    bool is_ending = controller->shutdown.phase.state > FL_CONTROLLER_RUNNING;
    if (sums->returns_us != 0 && !is_ending) { /* else the last reports before the return */
        sums->last_us = fl_now_us() - sums->returns_us;
        sums->lost_us += sums->last_us;
        sums->returns_us = 0;
    }
}
