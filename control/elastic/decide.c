/* What to freeze, and which plan to run then.
 *
 *     norms of each step ①  ──> freeze/ says F' ②  ──> ways to run it ③  ──> priced ④  ──> one ⑤
 *
 *   keep       the present K, R, M and cuts: freezing alone
 *   rebalance  the present K, R and M, cut anew
 *   repack     whatever K, R and M the job allows
 *
 * The policy decides what freezes; time decides how it is run: what a way saves over the steps
 * that remain must be worth more than the transition costs. Predictions are corrected by what the
 * running plan measures. */
#include "control/controller/parts.h"

#include "device/alloc.h"
#include "freeze/policy.h"
#include "nn/optimizer.h"
#include "pipe/plan/migrate_schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEASURED_STEPS = 20, WARM_UP_STEPS = 2, RECENT_STEPS = 100 };

/* Predictions are right to some percent only: a way that moves state must promise more than that
 * over one that does not. */
static const double MARGIN = 0.03;
static const double FIRST_FIXED_MS = 10.0; /* until a transition has been measured */

fl_status fl_decide_open(fl_controller *controller)
{
    fl_decide *d = &controller->decide;
    const fl_plan_input *input = controller->options->plan_input;
    d->due_at = -1;
    d->fixed_ms = FIRST_FIXED_MS;
    if (input == NULL) {
        return FL_OK; /* nothing is known of the model: the plan stays */
    }
    size_t n = (size_t)fl_model_n_layers(input->model);
    FL_TRY(fl_alloc_array(n, sizeof *d->parked, (void **)&d->parked));
    for (size_t i = 0; i < n; i++) {
        d->parked[i] = -1;
    }
    fl_norms_init(&d->norms, fl_model_n_blocks(input->model));
    return FL_OK;
}

void fl_decide_close(fl_controller *controller)
{
    fl_free(controller->decide.parked);
    controller->decide.parked = NULL;
}

/* ---- ① ---- */

void fl_decide_norms(fl_controller *controller, const fl_wire_norms *norms)
{
    fl_decide *d = &controller->decide;
    const fl_job *job = controller->options->job;
    int64_t done = norms->step + 1, per_epoch = controller->stats.steps_per_epoch;
    if (d->parked == NULL || done <= d->heard || norms->n != d->norms.L) {
        return;
    }
    d->heard = done;
    fl_norms_add(&d->norms, norms->squared);
    if (fl_freeze_ends_interval(job, done, per_epoch, controller->options->n_steps)) {
        fl_norms_end(&d->norms);
    }
    if (fl_freeze_due(job, done, per_epoch, controller->options->n_steps)) {
        d->due_at = done;
    }
}

/* ---- measuring ---- */

/* Mean of the window's steps from .. to - 1. */
static double mean_ms(const fl_run_stats *stats, int64_t from, int64_t to)
{
    double sum = 0.0;
    int64_t oldest = stats->n_window - FL_RUN_STATS_WINDOW;
    from = from > oldest ? from : oldest;
    from = from > 0 ? from : 0;
    for (int64_t i = from; i < to; i++) {
        sum += stats->window_ms[i % FL_RUN_STATS_WINDOW];
    }
    return to > from ? sum / (double)(to - from) : 0.0;
}

/* Of this generation, without the steps in which it warms up if there are others. */
static int64_t measured_from(const fl_controller *controller)
{
    int64_t first = controller->elastic.first_step;
    return controller->stats.steps > first + WARM_UP_STEPS ? first + WARM_UP_STEPS : first;
}

static int64_t recent_from(const fl_controller *controller)
{
    int64_t from = measured_from(controller), recent = controller->stats.steps - RECENT_STEPS;
    return from > recent ? from : recent;
}

double fl_decide_step_ms(const fl_controller *controller)
{
    return mean_ms(&controller->stats, recent_from(controller), controller->stats.steps);
}

/* A plan input for the steps from .. to - 1, with F blocks frozen from the next step on if they are
 * not so already: what the cache has by then. */
static fl_plan_input input_for(const fl_controller *controller, int F, int64_t from, int64_t to)
{
    fl_plan_input input = *controller->options->plan_input;
    fl_cache_warmup w = controller->decide.warming;
    int64_t per_epoch = controller->stats.steps_per_epoch;
    fl_cache_warmup_move(&w, F, controller->stats.steps, per_epoch);
    input.F = F;
    input.missing = fl_cache_warmup_share(&w, per_epoch, from, to);
    input.kept = w.kept;
    return input;
}

static double predict_ms(const fl_controller *controller, const fl_plan *plan, int64_t from,
                         int64_t to)
{
    fl_plan_input input = input_for(controller, plan->F, from, to);
    return fl_plan_predict(&input, plan, NULL) * 1e-3;
}

/* Over the steps that remain. */
static double predict_left_ms(const fl_controller *controller, const fl_plan *plan)
{
    return predict_ms(controller, plan, controller->stats.steps, controller->options->n_steps);
}

double fl_decide_ratio(const fl_controller *controller)
{
    double measured = fl_decide_step_ms(controller);
    double predicted =
        predict_ms(controller, &controller->plan, recent_from(controller), controller->stats.steps);
    return measured > 0.0 && predicted > 0.0 ? measured / predicted : 1.0;
}

double fl_decide_predict_ms(const fl_controller *controller, const fl_plan *plan)
{
    if (controller->options->plan_input == NULL) {
        return 0.0;
    }
    int64_t now = controller->stats.steps;
    return predict_ms(controller, plan, now, now + WARM_UP_STEPS + MEASURED_STEPS) *
           fl_decide_ratio(controller);
}

void fl_decide_measure(fl_controller *controller, bool ending)
{
    int64_t from = controller->elastic.first_step + WARM_UP_STEPS, to = from + MEASURED_STEPS;
    int64_t steps = controller->stats.steps;
    if (!controller->decide.measuring || (steps < to && !ending)) {
        return;
    }
    controller->decide.measuring = false;
    to = steps < to ? steps : to;
    if (to > from) {
        fl_event_log_measured(controller, mean_ms(&controller->stats, from, to), to - from);
    }
}

/* ---- what a transition costs ---- */

static fl_status price_transition(const fl_controller *controller, fl_decide_option *o)
{
    const fl_plan_input *input = controller->options->plan_input;
    int capacity = o->plan.n_layers * (o->plan.R + 1), n = 0;
    fl_move *moves = NULL;
    FL_TRY(fl_alloc_array((size_t)capacity, sizeof *moves, (void **)&moves));
    fl_status status = fl_migrate_schedule(input->model, &controller->plan, &o->plan,
                                           controller->decide.parked, moves, capacity, &n);
    if (status == FL_OK) {
        o->move_bytes = fl_migrate_bytes(input->model, moves, n,
                                         fl_optimizer_n_moments(input->job->train.optimizer));
        double bandwidth = input->profile->link_bytes_per_us * 1e3; /* a millisecond */
        o->cost_ms = controller->decide.fixed_ms +
                     (o->move_bytes > 0 ? (double)o->move_bytes / bandwidth : 0.0);
    }
    fl_free(moves);
    return status;
}

static int64_t needed_bytes(const fl_plan_input *input, const fl_plan *plan, int rank)
{
    fl_place place = fl_plan_place(plan, rank);
    fl_stage_memory m;
    if (!place.active) {
        return 0;
    }
    fl_plan_memory(input, plan, place.stage, &m);
    return m.total_bytes;
}

/* The running plan gives way to the next one, which need only fit by itself, and beside the state
 * that must still be sent: the same sum by which each worker refuses. */
fl_status fl_decide_check_room(const fl_controller *controller, const fl_plan *next)
{
    const fl_plan_input *input = controller->options->plan_input;
    if (input == NULL) {
        return FL_OK;
    }
    int64_t budget = input->job->devices.memory_bytes;
    int n_moments = fl_optimizer_n_moments(input->job->train.optimizer);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        int64_t then = needed_bytes(input, next, rank);
        int64_t most =
            fl_migrate_least_bytes(input->model, &controller->plan, next, rank, n_moments, then);
        if (most > budget) {
            return fl_fail(FL_EBUDGET,
                           "devices.memory: worker %d would hold %.1f MiB while the plans change "
                           "and %.1f MiB afterwards; it has %.1f MiB",
                           rank, (double)most / 1048576.0, (double)then / 1048576.0,
                           (double)budget / 1048576.0);
        }
    }
    return FL_OK;
}

void fl_decide_place(const fl_controller *controller, fl_plan *next)
{
    const fl_plan_input *input = controller->options->plan_input;
    if (input != NULL) { /* else nothing is known of the model */
        fl_migrate_place(input->model, &controller->plan, next,
                         fl_optimizer_n_moments(input->job->train.optimizer),
                         controller->usable.drained);
    }
}

/* ---- ③ and ④ ---- */

static fl_status way(const fl_controller *controller, int F, bool cut_anew, bool any, fl_plan *plan)
{
    fl_job job = *controller->options->job;
    fl_plan_input input =
        input_for(controller, F, controller->stats.steps, controller->options->n_steps);
    *plan = controller->plan;
    plan->F = F;
    plan->M = fl_tune_own_m(controller);
    if (!cut_anew) {
        return FL_OK;
    }
    if (!any) {
        job.pipe.k = controller->plan.K;
        job.pipe.m = fl_tune_own_m(controller);
        job.autodp.r = controller->plan.R;
    }
    input.job = &job;
    FL_TRY(fl_worker_pool_choose(&controller->usable, &input, plan));
    fl_decide_place(controller, plan);
    return FL_OK;
}

static bool same_places(const fl_plan *a, const fl_plan *b)
{
    return a->K == b->K && a->R == b->R && a->M == b->M &&
           memcmp(a->first, b->first, (size_t)(a->K + 1) * sizeof *a->first) == 0;
}

/* Not listed when it is a way that is listed already. */
static void consider(const fl_controller *controller, fl_decision *d, const char *name,
                     bool cut_anew, bool any)
{
    fl_decide_option *o = &d->option[d->n_options];
    *o = (fl_decide_option){.name = name};
    o->status = way(controller, d->wanted, cut_anew, any, &o->plan);
    if (o->status != FL_OK) {
        o->plan = (fl_plan){0};
    }
    for (int i = 0; o->status == FL_OK && i < d->n_options; i++) {
        if (same_places(&d->option[i].plan, &o->plan)) {
            return;
        }
    }
    if (o->status == FL_OK) {
        o->step_ms = predict_left_ms(controller, &o->plan) * d->ratio;
        o->status = price_transition(controller, o);
    }
    if (o->status == FL_OK) {
        o->status = fl_decide_check_room(controller, &o->plan);
    }
    snprintf(o->why_not, sizeof o->why_not, "%s", o->status == FL_OK ? "" : fl_errmsg());
    d->n_options++;
}

/* ---- ⑤ ---- */

/* What the steps that remain will take, the transition included, ms. */
static double total_ms(const fl_decision *d, const fl_decide_option *o)
{
    double caution = o->move_bytes > 0 ? 1.0 + MARGIN : 1.0;
    return caution * o->step_ms * (double)d->left + o->cost_ms;
}

static void choose(fl_decision *d)
{
    d->chosen = -1;
    for (int i = 0; i < d->n_options; i++) {
        bool better =
            d->chosen < 0 || total_ms(d, &d->option[i]) < total_ms(d, &d->option[d->chosen]);
        if (d->option[i].status == FL_OK && better) {
            d->chosen = i;
        }
    }
}

static void explain(fl_decision *d)
{
    size_t size = sizeof d->choice_why;
    if (d->chosen < 0) {
        snprintf(d->choice_why, size, "no plan can be gone over to: %.400s", d->option[0].why_not);
        return;
    }
    const fl_decide_option *o = &d->option[d->chosen];
    int n = snprintf(d->choice_why, size, "%s: %.3g ms a step over %lld steps, %.3g ms to change",
                     o->name, o->step_ms, (long long)d->left, o->cost_ms);
    for (int i = 0; i < d->n_options; i++) {
        const fl_decide_option *other = &d->option[i];
        if (i != d->chosen && other->status == FL_OK) {
            n += snprintf(d->choice_why + n, size - (size_t)n, "; %s %.3g and %.3g", other->name,
                          other->step_ms, other->cost_ms);
        }
    }
    if (o->step_ms > d->stay_ms) {
        snprintf(d->choice_why + n, size - (size_t)n,
                 "; slower than now, and done because the policy asks for it");
    }
}

static void weigh(fl_controller *controller, fl_decision *d)
{
    const fl_job *job = controller->options->job;
    d->left = controller->options->n_steps - controller->stats.steps;
    d->ratio = fl_decide_ratio(controller);
    d->stay_ms = predict_left_ms(controller, &controller->plan) * d->ratio;
    d->n_options = 0;
    consider(controller, d, "keep", false, false);
    if (job->elastic.enabled) {
        consider(controller, d, "rebalance", true, false);
        consider(controller, d, "repack", true, true);
    }
    choose(d);
    explain(d);
}

/* ---- ② ---- */

static void ask_policy(fl_controller *controller, fl_decision *d)
{
    const fl_norms *norms = &controller->decide.norms;
    fl_freeze_input input = {.job = controller->options->job,
                             .L = norms->L,
                             .F = controller->plan.F,
                             .step = controller->decide.due_at,
                             .steps_per_epoch = controller->stats.steps_per_epoch,
                             .n_steps = controller->options->n_steps,
                             .norm = fl_norms_get(norms),
                             .norm_before = fl_norms_get_before(norms),
                             .pinned = controller->pinned};
    fl_freeze_decision decision;
    fl_freeze_decide(&input, &decision);
    *d = (fl_decision){.step = input.step, .F = input.F, .wanted = decision.F, .chosen = -1};
    snprintf(d->why, sizeof d->why, "%s", decision.why);
}

static bool is_due(fl_controller *controller)
{
    fl_decide *d = &controller->decide;
    if (!d->started && d->parked != NULL) {
        d->started = true;
        if (fl_freeze_due(controller->options->job, 0, controller->stats.steps_per_epoch,
                          controller->options->n_steps)) {
            d->due_at = 0;
        }
    }
    return d->due_at >= 0;
}

fl_status fl_decide_by_hand(fl_controller *controller, int F, const char *why, fl_plan *next)
{
    fl_decision *d = &controller->decide.decision;
    *d = (fl_decision){
        .step = controller->stats.steps, .F = controller->plan.F, .wanted = F, .chosen = -1};
    snprintf(d->why, sizeof d->why, "%s", why);
    weigh(controller, d);
    fl_event_log_considered(controller);
    if (d->chosen < 0) {
        return fl_fail(FL_EBUDGET, "%s", d->choice_why);
    }
    *next = d->option[d->chosen].plan;
    return FL_OK;
}

bool fl_decide_next(fl_controller *controller, fl_plan *next, char *why, size_t size_bytes)
{
    fl_decision *d = &controller->decide.decision;
    if (!is_due(controller)) {
        return false;
    }
    ask_policy(controller, d);
    controller->decide.due_at = -1;
    fl_event_log_decided(controller);
    if (d->wanted == d->F || controller->stats.steps >= controller->options->n_steps) {
        return false;
    }
    weigh(controller, d);
    fl_event_log_considered(controller);
    if (d->chosen < 0) {
        return false;
    }
    *next = d->option[d->chosen].plan;
    snprintf(why, size_bytes, "%s", d->why);
    return true;
}

bool fl_decide_keeps(const fl_controller *controller, int rank)
{
    const fl_plan_input *input = controller->options->plan_input;
    int n = controller->decide.parked == NULL ? 0 : fl_model_n_layers(input->model);
    for (int layer = 0; layer < n; layer++) {
        if (controller->decide.parked[layer] == rank) {
            return true;
        }
    }
    return false;
}

/* ---- what a transition teaches ---- */

void fl_decide_switching(fl_controller *controller)
{
    if (controller->decide.parked != NULL) {
        fl_migrate_parked(controller->options->plan_input->model, &controller->plan,
                          &controller->elastic.next, controller->decide.parked);
    }
    fl_cache_warmup_move(&controller->decide.warming, controller->elastic.next.F,
                         controller->stats.steps, controller->stats.steps_per_epoch);
    controller->decide.measuring = !fl_tune_is_trial(controller);
}

void fl_decide_switched(fl_controller *controller)
{
    const fl_plan_input *input = controller->options->plan_input;
    if (input == NULL || fl_tune_is_trial(controller)) {
        return;
    }
    double moving_ms =
        (double)controller->elastic.moved_bytes / (input->profile->link_bytes_per_us * 1e3);
    double stall_ms = (double)(controller->elastic.stall_us - controller->elastic.wait_us) * 1e-3;
    double fixed_ms = fmax(0.0, stall_ms - moving_ms);
    /* One transition on a busy machine says little: the last ones count together. */
    controller->decide.fixed_ms = (controller->decide.fixed_ms + fixed_ms) / 2.0;
}
