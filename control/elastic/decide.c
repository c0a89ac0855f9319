/* Decides when to freeze, and finds the plan that carries the decision out; also the plan after a
 * worker has joined:
 *
 *     norms of each step ①  ──> freeze/ gives F' ②  ──> pipe/plan/decision.h chooses ③
 *
 * The named modules decide; this file fills their inputs and reports their results. The inputs are
 * the job, the profile and the norms. None of them depends on how fast this run is, and due_steps.h
 * fixes the step at which a decision takes effect. Decisions are therefore the same in every run.
 */
#include "control/elastic/elastic.h"
#include "control/elastic/elastic_events.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "freeze/interval.h"
#include "pipe/cost/plan.h"
#include "pipe/plan/migrate_schedule.h"

#include <stdio.h>

static const double FIXED_MS = 10.0; /* of a transition, added to the time of moving bytes */

fl_status fl_decide_open(fl_elastic *elastic)
{
    fl_decide *d = &elastic->decide;
    const fl_plan_input *input = elastic->run->options->plan_input;
    d->due_at = -1;
    if (input == NULL) {
        return FL_OK; /* the layers of the model are unknown: the plan stays */
    }
    size_t n = (size_t)fl_model_n_layers(input->model);
    FL_TRY(fl_alloc_array(n, sizeof *d->since, (void **)&d->since));
    FL_TRY(fl_alloc_array(n, sizeof *d->parked, (void **)&d->parked));
    for (size_t i = 0; i < n; i++) {
        d->parked[i] = -1;
    }
    fl_norms_init(&d->norms, fl_model_n_blocks(input->model));
    return FL_OK;
}

void fl_decide_close(fl_elastic *elastic)
{
    fl_free(elastic->decide.parked);
    fl_free(elastic->decide.since);
    elastic->decide.parked = NULL;
    elastic->decide.since = NULL;
}

/* ---- ① ---- */

void fl_decide_alpha(fl_elastic *elastic, double alpha)
{
    elastic->job->freeze.alpha = alpha;
}

void fl_decide_norms(fl_elastic *elastic, const fl_wire_norms *norms)
{
    fl_decide *d = &elastic->decide;
    const fl_job *job = elastic->run->options->job;
    int64_t done = norms->step + 1, per_epoch = elastic->run->stats->steps_per_epoch;
    bool skipped = norms->n == 0;
    if (d->parked == NULL || done <= d->heard || (norms->n != d->norms.L && !skipped)) {
        return;
    }
    d->heard = done;
    if (!skipped) {
        fl_norms_add(&d->norms, norms->squared);
    }
    if (fl_freeze_ends_interval(job, done, per_epoch, elastic->run->options->n_steps)) {
        fl_norms_end(&d->norms);
    }
    if (fl_due_policy(&elastic->due, done) > 0) {
        d->due_at = done;
    }
}

int64_t fl_decide_due(fl_elastic *elastic)
{
    fl_decide *d = &elastic->decide;
    if (!d->started && d->parked != NULL) { /* before the first step there are no norms */
        d->started = true;
        d->due_at = fl_due_policy(&elastic->due, 0) > 0 ? 0 : d->due_at;
    }
    return d->again > 0 ? d->again : d->due_at < 0 ? 0 : fl_due_policy(&elastic->due, d->due_at);
}

void fl_decide_again(fl_elastic *elastic, int64_t effect)
{
    elastic->decide.again = effect;
}

/* ---- ② ---- */

static void ask_policy(fl_elastic *elastic, int64_t effect)
{
    fl_decide *d = &elastic->decide;
    fl_freeze_input input = {.job = elastic->run->options->job,
                             .L = d->norms.L,
                             .F = elastic->plan.F,
                             .step = d->due_at,
                             .steps_per_epoch = elastic->run->stats->steps_per_epoch,
                             .n_steps = elastic->run->options->n_steps,
                             .norm = fl_norms_get(&d->norms),
                             .norm_before = fl_norms_get_before(&d->norms),
                             .pinned = elastic->pinned};
    fl_freeze_decide(&input, &d->policy);
    fl_event_log_decided(elastic, input.step, effect);
    d->due_at = -1;
}

/* ---- ③ ---- */

typedef enum occasion { BY_POLICY, BY_HAND, JOINED } occasion;

/* step: the step at which the decision takes effect. */
static void decide(fl_elastic *elastic, int wanted, int64_t step, occasion why, const fl_job *job)
{
    fl_plan_input costs = *elastic->run->options->plan_input;
    fl_decision_input input = {.costs = &costs,
                               .running = &elastic->plan,
                               .own_m = fl_tune_own_m(elastic),
                               .wanted = wanted,
                               .by_hand = why == BY_HAND,
                               .joined = why == JOINED,
                               .step = step,
                               .n_steps = elastic->run->options->n_steps,
                               .steps_per_epoch = elastic->run->stats->steps_per_epoch,
                               .ratio = 1.0,
                               .fixed_ms = FIXED_MS,
                               .parked = elastic->decide.parked,
                               .usable = &elastic->usable,
                               .warming = elastic->decide.warming};
    costs.job = job;
    fl_decision_make(&input, &elastic->decide.decision);
    fl_event_log_considered(elastic);
}

fl_status fl_decide_by_hand(fl_elastic *elastic, int F, const char *why, fl_plan *next)
{
    const fl_decision *d = &elastic->decide.decision;
    decide(elastic, F, elastic->run->stats->steps, BY_HAND, elastic->run->options->job);
    if (d->best < 0) {
        return fl_fail(FL_EBUDGET, "%s: %s", why, d->why);
    }
    *next = d->option[d->chosen].plan;
    return FL_OK;
}

bool fl_decide_next(fl_elastic *elastic, fl_plan *next, char *why, size_t size_bytes)
{
    fl_decide *d = &elastic->decide;
    int64_t effect = fl_decide_due(elastic);
    if (d->again == 0) {
        ask_policy(elastic, effect);
    }
    d->again = 0;
    if (d->policy.F == elastic->plan.F) {
        return false;
    }
    decide(elastic, d->policy.F, effect, BY_POLICY, elastic->run->options->job);
    if (d->decision.chosen == FL_DECISION_STAY) {
        return false;
    }
    *next = d->decision.option[d->decision.chosen].plan;
    snprintf(why, size_bytes, "%s", d->policy.why);
    return true;
}

/* ---- after a loss, and when a worker has joined ---- */

static bool has_enough(const fl_elastic *elastic, const fl_worker_pool *usable)
{
    return elastic->k * elastic->r <= fl_worker_pool_count(usable, elastic->run->n_workers);
}

void fl_decide_grid(const fl_elastic *elastic, const fl_worker_pool *usable, fl_job *job)
{
    if (elastic->k == 0) {
        fl_worker_pool_loosen(job, fl_worker_pool_count(usable, elastic->run->n_workers));
    } else {
        bool enough = has_enough(elastic, usable);
        job->pipe.k = enough ? elastic->k : FL_JOB_AUTO;
        job->autodp.r = enough ? elastic->r : FL_JOB_AUTO;
    }
}

static bool choose_wanted(fl_elastic *elastic, const fl_job *job, int rank, fl_plan *next,
                          char *why, size_t size_bytes)
{
    char grid[FL_GRID_TEXT_MAX];
    fl_plan_input input = *elastic->run->options->plan_input;
    input.job = job;
    input.F = elastic->plan.F;
    if (fl_worker_pool_choose(&elastic->usable, &input, next) != FL_OK) {
        fl_log(FL_LOG_WARN, "worker %d has joined and gets no work: %s", rank, fl_errmsg());
        return false;
    }
    fl_grid_text(fl_plan_grid(next), grid);
    snprintf(why, size_bytes, "worker %d has joined: %s as before workers left the run", rank,
             grid);
    return true;
}

bool fl_decide_joined(fl_elastic *elastic, int rank, bool by_host, fl_plan *next, char *why,
                      size_t size_bytes)
{
    const fl_decision *d = &elastic->decide.decision;
    const fl_plan *now = &elastic->plan;
    fl_job job = *elastic->run->options->job;
    bool has_wanted = elastic->k == now->K && elastic->r == now->R;
    by_host = by_host && (job.pipe.k == FL_JOB_AUTO || job.autodp.r == FL_JOB_AUTO);
    if (has_wanted && !by_host) {
        return false;
    }
    fl_decide_grid(elastic, &elastic->usable, &job);
    if (elastic->k > 0 && !has_wanted && has_enough(elastic, &elastic->usable)) {
        return choose_wanted(elastic, &job, rank, next, why, size_bytes);
    }
    if (!job.elastic.enabled && !by_host) {
        return false; /* until there are enough */
    }
    if (by_host) {
        job.pipe.k = elastic->run->options->job->pipe.k;
        job.autodp.r = elastic->run->options->job->autodp.r;
    }
    decide(elastic, now->F, elastic->run->stats->steps, JOINED, &job);
    if (d->chosen == FL_DECISION_STAY) {
        return false;
    }
    *next = d->option[d->chosen].plan;
    snprintf(why, size_bytes, "worker %d has joined: %.300s", rank, d->why);
    return true;
}

/* ---- plans on request ---- */

void fl_decide_place(const fl_elastic *elastic, const fl_worker_pool *usable, fl_plan *next)
{
    const fl_plan_input *input = elastic->run->options->plan_input;
    if (input != NULL) { /* otherwise nothing is known of the model */
        fl_plan_change_place(input, &elastic->plan, next, usable->drained);
    }
}

fl_status fl_decide_check_room(const fl_elastic *elastic, const fl_plan *next)
{
    const fl_plan_input *input = elastic->run->options->plan_input;
    return input == NULL ? FL_OK : fl_plan_change_check_room(input, &elastic->plan, next);
}

bool fl_decide_keeps(const fl_elastic *elastic, int rank)
{
    const fl_plan_input *input = elastic->run->options->plan_input;
    int n = elastic->decide.parked == NULL ? 0 : fl_model_n_layers(input->model);
    for (int layer = 0; layer < n; layer++) {
        if (elastic->decide.parked[layer] == rank) {
            return true;
        }
    }
    return false;
}

static void move_moments(fl_elastic *elastic, int64_t step)
{
    const fl_model *model = elastic->run->options->plan_input->model;
    const fl_plan *next = &elastic->transition.next;
    const bool *lost = elastic->transition.lost;
    fl_decide *d = &elastic->decide;
    d->n_fresh = fl_migrate_fresh(model, &elastic->plan, next, d->parked, lost, d->fresh);
    for (int layer = 0; layer < next->n_layers; layer++) {
        d->since[layer] = d->fresh[layer] ? step : d->since[layer];
    }
    fl_migrate_parked(model, &elastic->plan, next, lost, d->parked);
}

void fl_decide_switching(fl_elastic *elastic, int64_t step)
{
    const fl_plan *next = &elastic->transition.next;
    if (elastic->decide.parked != NULL) {
        move_moments(elastic, step);
    }
    fl_cache_warmup_move(&elastic->decide.warming, next->F, step,
                         elastic->run->stats->steps_per_epoch);
}
