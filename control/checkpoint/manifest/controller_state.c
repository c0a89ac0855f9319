#include "control/checkpoint/manifest/controller_state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- capture ---- */

/* The step that the policy's decision for this step or a later one is based on; -1: no such
 * decision has its data yet. Decisions are further apart than their lead, so there is at most one.
 */
static int64_t origin_of_due(const fl_due_steps *due, int64_t step)
{
    for (int64_t origin = step; origin >= 0 && origin >= step - due->lead; origin--) {
        if (fl_due_policy(due, origin) >= step && fl_due_policy(due, origin) > 0) {
            return origin;
        }
    }
    return -1;
}

static void capture_decisions(const fl_elastic *elastic, fl_controller_state *out)
{
    const fl_decide *d = &elastic->decide;
    const fl_plan_input *input = elastic->run->options->plan_input;
    out->norms = d->norms;
    out->heard = d->heard;
    out->started = d->started;
    out->due_at = -1;
    out->warming = d->warming;
    memcpy(out->pinned, elastic->pinned, sizeof out->pinned);
    if (d->parked != NULL) {
        out->due_at = origin_of_due(&elastic->due, elastic->run->stats->steps);
        out->n_layers = fl_model_n_layers(input->model);
        memcpy(out->parked, d->parked, (size_t)out->n_layers * sizeof *d->parked);
        memcpy(out->since, d->since, (size_t)out->n_layers * sizeof *d->since);
    }
}

/* A visit that was asked for and has not begun is asked for again. */
static void capture_tuning(const fl_elastic *elastic, fl_controller_state *out)
{
    const fl_profile *learned = elastic->run->options->learned;
    out->tune = elastic->tune;
    out->tune_sums = elastic->tune_sums;
    if (fl_tune_is_trial(elastic) && elastic->transition.state != FL_ELASTIC_IDLE) {
        out->tune.runs = elastic->plan.generation;
    }
    if (learned != NULL) {
        out->n_tuned = learned->n_tuned;
        memcpy(out->tuned, learned->tuned, sizeof out->tuned);
    }
}

static void capture_stats(const fl_run_stats *stats, int64_t start_us, fl_run_stats *out)
{
    *out = *stats;
    out->metrics = (fl_metric_list){0};
    memset(out->window_ms, 0, sizeof out->window_ms);
    memset(out->window_samples, 0, sizeof out->window_samples);
    out->window_from = 0;
    out->evaluates = false;
    out->evaluation_period = 0;
    out->stop_rule = (fl_stop_rule){0};
    out->ended_early = false;
    out->first_us -= stats->steps > 0 ? start_us : 0;
    out->last_us -= stats->steps > 0 ? start_us : 0;
}

static void capture_losses(const fl_recovery_sums *sums, fl_recovery_sums *out)
{
    *out = (fl_recovery_sums){.n_losses = sums->n_losses,
                              .n_recoveries = sums->n_recoveries,
                              .n_returns = sums->n_returns,
                              .n_repeated = sums->n_repeated,
                              .lost_us = sums->lost_us};
}

void fl_controller_state_capture(const fl_elastic *elastic, int64_t start_us, int64_t now_us,
                                 fl_controller_state *out)
{
    const fl_job *job = elastic->job;
    *out = (fl_controller_state){.n_workers = elastic->run->n_workers,
                                 .usable = elastic->usable,
                                 .wanted_k = elastic->k,
                                 .wanted_r = elastic->r,
                                 .n_started = elastic->run->n_started,
                                 .last_asked = elastic->transition.last_asked,
                                 .transitions = elastic->transition.sums,
                                 .elapsed_us = now_us - start_us,
                                 .lr = job->train.lr,
                                 .alpha = job->freeze.alpha,
                                 .m = job->pipe.m};
    capture_decisions(elastic, out);
    capture_tuning(elastic, out);
    capture_stats(elastic->run->stats, start_us, &out->stats);
    capture_losses(elastic->run->losses, &out->losses);
}

/* ---- check ---- */

fl_status fl_controller_state_check(const fl_controller_state *state, const char *where)
{
    const fl_tuner *tuner = &state->tune.tuner;
    if (state->stats.now.steps > state->stats.steps || state->stats.n_steps < state->stats.steps) {
        return fl_fail(FL_EFORMAT, "%s.stats: the numbers of steps do not agree", where);
    }
    if ((state->wanted_k > 0) != (state->wanted_r > 0)) {
        return fl_fail(FL_EFORMAT, "%s: wanted_k %d, wanted_r %d: no run has these values", where,
                       state->wanted_k, state->wanted_r);
    }
    if (state->n_started > state->n_workers) {
        return fl_fail(FL_EFORMAT, "%s.n_started: found %d, the run has %d workers", where,
                       state->n_started, state->n_workers);
    }
    if (state->tune.racing &&
        (tuner->n < 1 || tuner->leader >= tuner->n || tuner->at >= tuner->n)) {
        return fl_fail(FL_EFORMAT, "%s.tune: %d candidates, the leader is number %d, the next %d",
                       where, tuner->n, tuner->leader, tuner->at);
    }
    for (int i = 0; i < state->n_layers; i++) {
        if (state->parked[i] >= state->n_workers) {
            return fl_fail(FL_EFORMAT, "%s.parked[%d]: found %d, the run has %d workers", where, i,
                           state->parked[i], state->n_workers);
        }
        if (state->since[i] > state->stats.steps) {
            return fl_fail(FL_EFORMAT,
                           "%s.since[%d]: found step %" PRId64 ", the run has done %" PRId64, where,
                           i, state->since[i], state->stats.steps);
        }
    }
    if (!(state->lr > 0.0 && isfinite(state->lr) && state->alpha > 0.0 && state->alpha < 1.0)) {
        return fl_fail(FL_EFORMAT, "%s: lr %g, alpha %g: no job has these values", where, state->lr,
                       state->alpha);
    }
    return FL_OK;
}

/* ---- restore ---- */

/* The job may have changed: the workers wait where its decisions are due, so the pending one is
 * that of this job. */
static void restore_decisions(const fl_controller_state *state, int64_t step, fl_elastic *elastic)
{
    fl_decide *d = &elastic->decide;
    memcpy(elastic->pinned, state->pinned, sizeof elastic->pinned);
    if (d->parked != NULL && state->n_layers > 0) {
        d->norms = state->norms;
        d->heard = state->heard;
        d->due_at = origin_of_due(&elastic->due, step);
        d->started = state->started;
        d->warming = state->warming;
        memcpy(d->parked, state->parked, (size_t)state->n_layers * sizeof *d->parked);
        memcpy(d->since, state->since, (size_t)state->n_layers * sizeof *d->since);
    }
}

/* The script's entries for steps before this one are done. */
static void restore_transitions(const fl_controller_state *state, int64_t step, fl_elastic *elastic)
{
    const fl_job *job = elastic->run->options->job;
    fl_transition *e = &elastic->transition;
    elastic->usable = state->usable;
    if (state->wanted_k >= 0) {
        elastic->k = state->wanted_k;
        elastic->r = state->wanted_r;
    }
    e->last_asked = state->last_asked;
    e->sums = state->transitions;
    e->first_step = step;
    e->n_scripted = 0;
    while (e->n_scripted < job->elastic.n_script &&
           job->elastic.script[e->n_scripted].step < step) {
        e->n_scripted++;
    }
    if (elastic->run->options->recording != NULL) {
        elastic->replay.n_done = fl_recording_find(elastic->run->options->recording, step);
    }
}

/* The steps of a visit that began before are not measured any more. */
static void restore_tuning(const fl_controller_state *state, fl_elastic *elastic)
{
    fl_profile *learned = elastic->run->options->learned;
    elastic->tune = state->tune;
    elastic->tune_sums = state->tune_sums;
    elastic->tune.from = state->stats.n_window;
    if (learned != NULL) {
        learned->n_tuned = state->n_tuned;
        memcpy(learned->tuned, state->tuned, sizeof learned->tuned);
    }
}

/* A run that ended within an epoch has reported it. Where more steps of it follow, it goes on. */
static void continue_epoch(fl_run_stats *stats)
{
    int64_t n = stats->steps_per_epoch, done = n > 0 ? stats->steps % n : 0;
    if (stats->now.steps == 0 && done > 0 && stats->past.steps == done &&
        stats->past.epoch == stats->steps / n && stats->steps < stats->n_steps) {
        stats->now = stats->past;
        stats->now.evaluated = false;
        stats->past = (fl_epoch_stats){0};
    }
}

static void restore_stats(const fl_controller_state *state, int64_t start_us, fl_run_stats *stats)
{
    fl_run_stats as_opened = *stats;
    *stats = state->stats;
    stats->metrics = as_opened.metrics;
    stats->n_steps = as_opened.n_steps;
    stats->n_steps_asked = as_opened.n_steps_asked;
    stats->n_epochs = as_opened.n_epochs;
    stats->steps_per_epoch = as_opened.steps_per_epoch;
    stats->evaluates = as_opened.evaluates;
    stats->evaluation_period = as_opened.evaluation_period;
    stats->stop_rule = as_opened.stop_rule;
    stats->ended_early = false;
    stats->stop.end_step = 0; /* the caller asks the job's rule, which may have changed */
    stats->window_from = stats->n_window;
    continue_epoch(stats);
    stats->first_us += stats->steps > 0 ? start_us : 0;
    stats->last_us += stats->steps > 0 ? start_us : 0;
}

static void raise_to(int64_t *sum, int64_t least)
{
    *sum = *sum < least ? least : *sum;
}

static void restore_losses(const fl_recovery_sums *before, fl_recovery_sums *sums)
{
    raise_to(&sums->n_losses, before->n_losses);
    raise_to(&sums->n_recoveries, before->n_recoveries);
    raise_to(&sums->n_returns, before->n_returns);
    raise_to(&sums->n_repeated, before->n_repeated);
    raise_to(&sums->lost_us, before->lost_us);
}

void fl_controller_state_restore(const fl_controller_state *state, int64_t step, int64_t start_us,
                                 fl_elastic *elastic, fl_run_stats *stats, fl_recovery_sums *losses)
{
    restore_stats(state, start_us, stats);
    restore_decisions(state, step, elastic);
    restore_transitions(state, step, elastic);
    restore_tuning(state, elastic);
    restore_losses(&state->losses, losses);
    elastic->job->train.lr = state->lr;
    elastic->job->freeze.alpha = state->alpha;
    elastic->job->pipe.m = state->m;
}
