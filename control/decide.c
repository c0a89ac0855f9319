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
#include "control/controller.h"

#include "device/alloc.h"
#include "freeze/policy.h"
#include "nn/optimizer.h"
#include "pipe/migrate_schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEASURED_STEPS = 20, WARM_UP_STEPS = 2, RECENT_STEPS = 100 };

/* Predictions are right to some percent only: a way that moves state must promise more than that
 * over one that does not. */
static const double MARGIN = 0.03;
static const double FIRST_FIXED_MS = 10.0; /* until a transition has been measured */

fl_status fl_decide_open(fl_head *head)
{
    fl_decide *d = &head->decide;
    const fl_plan_input *input = head->options->plan_input;
    d->due_at = -1;
    d->fixed_ms = FIRST_FIXED_MS;
    if (input == NULL) {
        return FL_OK; /* nothing is known of the model: the plan stays */
    }
    size_t n = (size_t)fl_model_n_layers(input->model);
    FL_TRY(fl_alloc_array(n, sizeof *d->attic, (void **)&d->attic));
    for (size_t i = 0; i < n; i++) {
        d->attic[i] = -1;
    }
    fl_norms_init(&d->norms, fl_model_n_blocks(input->model));
    return FL_OK;
}

void fl_decide_close(fl_head *head)
{
    fl_free(head->decide.attic);
    head->decide.attic = NULL;
}

/* ---- ① ---- */

void fl_decide_norms(fl_head *head, const fl_frame_norms *norms)
{
    fl_decide *d = &head->decide;
    const fl_job *job = head->options->job;
    int64_t done = norms->step + 1, per_epoch = head->tally.steps_per_epoch;
    if (d->attic == NULL || done <= d->heard || norms->n != d->norms.L) {
        return;
    }
    d->heard = done;
    fl_norms_add(&d->norms, norms->squared);
    if (fl_freeze_ends_interval(job, done, per_epoch, head->options->n_steps)) {
        fl_norms_end(&d->norms);
    }
    if (fl_freeze_due(job, done, per_epoch, head->options->n_steps)) {
        d->due_at = done;
    }
}

/* ---- measuring ---- */

/* Mean of the window's steps from .. to - 1. */
static double mean_ms(const fl_tally *tally, int64_t from, int64_t to)
{
    double sum = 0.0;
    int64_t oldest = tally->n_window - FL_TALLY_WINDOW;
    from = from > oldest ? from : oldest;
    from = from > 0 ? from : 0;
    for (int64_t i = from; i < to; i++) {
        sum += tally->window_ms[i % FL_TALLY_WINDOW];
    }
    return to > from ? sum / (double)(to - from) : 0.0;
}

/* Of this generation, without the steps in which it warms up if there are others. */
static int64_t measured_from(const fl_head *head)
{
    int64_t first = head->elastic.first_step;
    return head->tally.steps > first + WARM_UP_STEPS ? first + WARM_UP_STEPS : first;
}

static int64_t recent_from(const fl_head *head)
{
    int64_t from = measured_from(head), recent = head->tally.steps - RECENT_STEPS;
    return from > recent ? from : recent;
}

double fl_decide_step_ms(const fl_head *head)
{
    return mean_ms(&head->tally, recent_from(head), head->tally.steps);
}

/* A plan input for the steps from .. to - 1, with F blocks frozen from the next step on if they are
 * not so already: what the cache has by then. */
static fl_plan_input input_for(const fl_head *head, int F, int64_t from, int64_t to)
{
    fl_plan_input input = *head->options->plan_input;
    fl_warming w = head->decide.warming;
    int64_t per_epoch = head->tally.steps_per_epoch;
    fl_warming_move(&w, F, head->tally.steps, per_epoch);
    input.F = F;
    input.missing = fl_warming_share(&w, per_epoch, from, to);
    input.kept = w.kept;
    return input;
}

static double predict_ms(const fl_head *head, const fl_plan *plan, int64_t from, int64_t to)
{
    fl_plan_input input = input_for(head, plan->F, from, to);
    return fl_plan_predict(&input, plan, NULL) * 1e-3;
}

/* Over the steps that remain. */
static double predict_left_ms(const fl_head *head, const fl_plan *plan)
{
    return predict_ms(head, plan, head->tally.steps, head->options->n_steps);
}

double fl_decide_ratio(const fl_head *head)
{
    double measured = fl_decide_step_ms(head);
    double predicted = predict_ms(head, &head->plan, recent_from(head), head->tally.steps);
    return measured > 0.0 && predicted > 0.0 ? measured / predicted : 1.0;
}

double fl_decide_predict_ms(const fl_head *head, const fl_plan *plan)
{
    if (head->options->plan_input == NULL) {
        return 0.0;
    }
    int64_t now = head->tally.steps;
    return predict_ms(head, plan, now, now + WARM_UP_STEPS + MEASURED_STEPS) *
           fl_decide_ratio(head);
}

void fl_decide_measure(fl_head *head, bool ending)
{
    int64_t from = head->elastic.first_step + WARM_UP_STEPS, to = from + MEASURED_STEPS;
    int64_t steps = head->tally.steps;
    if (!head->decide.measuring || (steps < to && !ending)) {
        return;
    }
    head->decide.measuring = false;
    to = steps < to ? steps : to;
    if (to > from) {
        fl_story_measured(head, mean_ms(&head->tally, from, to), to - from);
    }
}

/* ---- what a transition costs ---- */

static fl_status price_transition(const fl_head *head, fl_decide_option *o)
{
    const fl_plan_input *input = head->options->plan_input;
    int capacity = o->plan.n_layers * (o->plan.R + 1), n = 0;
    fl_move *moves = NULL;
    FL_TRY(fl_alloc_array((size_t)capacity, sizeof *moves, (void **)&moves));
    fl_status status = fl_migrate_schedule(input->model, &head->plan, &o->plan, head->decide.attic,
                                           moves, capacity, &n);
    if (status == FL_OK) {
        o->move_bytes = fl_migrate_bytes(input->model, moves, n,
                                         fl_optimizer_n_moments(input->job->train.optimizer));
        double bandwidth = input->profile->link_bytes_per_us * 1e3; /* a millisecond */
        o->cost_ms =
            head->decide.fixed_ms + (o->move_bytes > 0 ? (double)o->move_bytes / bandwidth : 0.0);
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
fl_status fl_decide_check_room(const fl_head *head, const fl_plan *next)
{
    const fl_plan_input *input = head->options->plan_input;
    if (input == NULL) {
        return FL_OK;
    }
    int64_t budget = input->job->devices.memory_bytes;
    int n_moments = fl_optimizer_n_moments(input->job->train.optimizer);
    for (int rank = 0; rank < head->n_workers; rank++) {
        int64_t then = needed_bytes(input, next, rank);
        int64_t most =
            fl_migrate_least_bytes(input->model, &head->plan, next, rank, n_moments, then);
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

void fl_decide_place(const fl_head *head, fl_plan *next)
{
    const fl_plan_input *input = head->options->plan_input;
    if (input != NULL) { /* else nothing is known of the model */
        fl_migrate_place(input->model, &head->plan, next,
                         fl_optimizer_n_moments(input->job->train.optimizer), head->usable.drained);
    }
}

/* ---- ③ and ④ ---- */

static fl_status way(const fl_head *head, int F, bool cut_anew, bool any, fl_plan *plan)
{
    fl_job job = *head->options->job;
    fl_plan_input input = input_for(head, F, head->tally.steps, head->options->n_steps);
    *plan = head->plan;
    plan->F = F;
    plan->M = fl_tune_own_m(head);
    if (!cut_anew) {
        return FL_OK;
    }
    if (!any) {
        job.pipe.k = head->plan.K;
        job.pipe.m = fl_tune_own_m(head);
        job.autodp.r = head->plan.R;
    }
    input.job = &job;
    FL_TRY(fl_usable_choose(&head->usable, &input, plan));
    fl_decide_place(head, plan);
    return FL_OK;
}

static bool same_places(const fl_plan *a, const fl_plan *b)
{
    return a->K == b->K && a->R == b->R && a->M == b->M &&
           memcmp(a->first, b->first, (size_t)(a->K + 1) * sizeof *a->first) == 0;
}

/* Not listed when it is a way that is listed already. */
static void consider(const fl_head *head, fl_decision *d, const char *name, bool cut_anew, bool any)
{
    fl_decide_option *o = &d->option[d->n_options];
    *o = (fl_decide_option){.name = name};
    o->status = way(head, d->wanted, cut_anew, any, &o->plan);
    if (o->status != FL_OK) {
        o->plan = (fl_plan){0};
    }
    for (int i = 0; o->status == FL_OK && i < d->n_options; i++) {
        if (same_places(&d->option[i].plan, &o->plan)) {
            return;
        }
    }
    if (o->status == FL_OK) {
        o->step_ms = predict_left_ms(head, &o->plan) * d->ratio;
        o->status = price_transition(head, o);
    }
    if (o->status == FL_OK) {
        o->status = fl_decide_check_room(head, &o->plan);
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

static void weigh(fl_head *head, fl_decision *d)
{
    const fl_job *job = head->options->job;
    d->left = head->options->n_steps - head->tally.steps;
    d->ratio = fl_decide_ratio(head);
    d->stay_ms = predict_left_ms(head, &head->plan) * d->ratio;
    d->n_options = 0;
    consider(head, d, "keep", false, false);
    if (job->elastic.enabled) {
        consider(head, d, "rebalance", true, false);
        consider(head, d, "repack", true, true);
    }
    choose(d);
    explain(d);
}

/* ---- ② ---- */

static void ask_policy(fl_head *head, fl_decision *d)
{
    const fl_norms *norms = &head->decide.norms;
    fl_freeze_input input = {.job = head->options->job,
                             .L = norms->L,
                             .F = head->plan.F,
                             .step = head->decide.due_at,
                             .steps_per_epoch = head->tally.steps_per_epoch,
                             .n_steps = head->options->n_steps,
                             .norm = fl_norms_get(norms),
                             .norm_before = fl_norms_get_before(norms),
                             .pinned = head->pinned};
    fl_freeze_decision decision;
    fl_freeze_decide(&input, &decision);
    *d = (fl_decision){.step = input.step, .F = input.F, .wanted = decision.F, .chosen = -1};
    snprintf(d->why, sizeof d->why, "%s", decision.why);
}

static bool is_due(fl_head *head)
{
    fl_decide *d = &head->decide;
    if (!d->started && d->attic != NULL) {
        d->started = true;
        if (fl_freeze_due(head->options->job, 0, head->tally.steps_per_epoch,
                          head->options->n_steps)) {
            d->due_at = 0;
        }
    }
    return d->due_at >= 0;
}

fl_status fl_decide_by_hand(fl_head *head, int F, const char *why, fl_plan *next)
{
    fl_decision *d = &head->decide.decision;
    *d = (fl_decision){.step = head->tally.steps, .F = head->plan.F, .wanted = F, .chosen = -1};
    snprintf(d->why, sizeof d->why, "%s", why);
    weigh(head, d);
    fl_story_considered(head);
    if (d->chosen < 0) {
        return fl_fail(FL_EBUDGET, "%s", d->choice_why);
    }
    *next = d->option[d->chosen].plan;
    return FL_OK;
}

bool fl_decide_next(fl_head *head, fl_plan *next, char *why, size_t size_bytes)
{
    fl_decision *d = &head->decide.decision;
    if (!is_due(head)) {
        return false;
    }
    ask_policy(head, d);
    head->decide.due_at = -1;
    fl_story_decided(head);
    if (d->wanted == d->F || head->tally.steps >= head->options->n_steps) {
        return false;
    }
    weigh(head, d);
    fl_story_considered(head);
    if (d->chosen < 0) {
        return false;
    }
    *next = d->option[d->chosen].plan;
    snprintf(why, size_bytes, "%s", d->why);
    return true;
}

bool fl_decide_keeps(const fl_head *head, int rank)
{
    const fl_plan_input *input = head->options->plan_input;
    int n = head->decide.attic == NULL ? 0 : fl_model_n_layers(input->model);
    for (int layer = 0; layer < n; layer++) {
        if (head->decide.attic[layer] == rank) {
            return true;
        }
    }
    return false;
}

/* ---- what a transition teaches ---- */

void fl_decide_switching(fl_head *head)
{
    if (head->decide.attic != NULL) {
        fl_migrate_attic(head->options->plan_input->model, &head->plan, &head->elastic.next,
                         head->decide.attic);
    }
    fl_warming_move(&head->decide.warming, head->elastic.next.F, head->tally.steps,
                    head->tally.steps_per_epoch);
    head->decide.measuring = !fl_tune_is_trial(head);
}

void fl_decide_switched(fl_head *head)
{
    const fl_plan_input *input = head->options->plan_input;
    if (input == NULL || fl_tune_is_trial(head)) {
        return;
    }
    double moving_ms =
        (double)head->elastic.moved_bytes / (input->profile->link_bytes_per_us * 1e3);
    double stall_ms = (double)(head->elastic.stall_us - head->elastic.wait_us) * 1e-3;
    double fixed_ms = fmax(0.0, stall_ms - moving_ms);
    /* One transition on a busy machine says little: the last ones count together. */
    head->decide.fixed_ms = (head->decide.fixed_ms + fixed_ms) / 2.0;
}
