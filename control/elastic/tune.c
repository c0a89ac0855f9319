/* Races several M on live steps. pipe/plan/tuner.c decides which M runs next and when the race is
 * over; this file measures steps and requests plans that differ in M alone.
 *
 *     a plan runs ──> WARM_UP_STEPS ──> a visit's steps ──> fl_tuner_add ──> the next M, or the end
 *
 * Another F, K or R ends the race, and starts another one, unless the profile has its result
 * already. */
#include "autodp/sampler.h"
#include "control/elastic/elastic.h"
#include "control/elastic/elastic_events.h"

#include "autodp/split_work.h"
#include "device/text/number_text.h"
#include "freeze/interval.h"
#include "freeze/policy.h"
#include "pipe/cost/time/learn.h"
#include "pipe/measure/quantile.h"

#include <stdio.h>

enum {
    WARM_UP_STEPS = 3,
    VISIT_STEPS = 24,         /* at least */
    VISIT_STEPS_MAX = 64,     /* at most */
    VISIT_MS = 100,           /* longer than VISIT_STEPS if steps are short */
    PAYS_STEPS = 400,         /* a race starts only if at least this many steps come after it */
    PAYS_FOR_ONE_STEPS = 100, /* the same for another visit */
    LOOK_AHEAD_STEPS = 100000
};

/* The part of the remaining time, at the start of a race, that the race may cost. */
static const double BUDGET = 0.02;

static bool is_wanted(const fl_elastic *elastic)
{
    const fl_job *job = elastic->run->options->job;
    return elastic->run->options->recording == NULL && job->pipe.tune &&
           job->pipe.m == FL_JOB_AUTO && job->elastic.enabled && job->elastic.n_script == 0 &&
           elastic->run->options->plan_input != NULL;
}

bool fl_tune_is_trial(const fl_elastic *elastic)
{
    uint32_t asked = elastic->tune.asked;
    return asked != 0 && asked == elastic->transition.next.generation;
}

bool fl_tune_is_of_plan(const fl_elastic *elastic)
{
    const fl_tune *t = &elastic->tune;
    const fl_plan *p = &elastic->plan;
    return t->F == p->F && t->K == p->K && t->R == p->R;
}

int fl_tune_own_m(const fl_elastic *elastic)
{
    const fl_tune *t = &elastic->tune;
    return t->racing && is_wanted(elastic) ? t->tuner.of[t->tuner.leader].M : elastic->plan.M;
}

/* ---- the remaining steps, and the values to try ---- */

/* Steps until the plan may change for another reason, at most `most`. */
static int64_t steps_left(const fl_elastic *elastic, int64_t most)
{
    const fl_job *job = elastic->run->options->job;
    int64_t done = elastic->run->stats->steps, end = elastic->run->options->n_steps, left = 1;
    bool freezes = job->freeze.policy != FL_FREEZE_NONE &&
                   elastic->plan.F + job->freeze.keep < elastic->decide.norms.L;
    while (
        left < most && done + left < end &&
        !(freezes && fl_freeze_due(job, done + left, elastic->run->stats->steps_per_epoch, end))) {
        left++;
    }
    return left;
}

static fl_plan with_m(const fl_elastic *elastic, int M)
{
    fl_plan plan = elastic->plan;
    plan.M = M;
    return plan;
}

static fl_tuner_rung rung_of(const fl_elastic *elastic, int M)
{
    fl_plan plan = with_m(elastic, M);
    const fl_job *job = elastic->run->options->job;
    int64_t share = fl_split_work_max(fl_sampler_batch(job), plan.R);
    fl_tuner_rung rung = {.M = M, .fits = M <= share && M >= job->train.accumulate};
    if (rung.fits) {
        rung.fits = fl_decide_check_room(elastic, &plan) == FL_OK;
        rung.predicted_us = fl_measure_predict_ms(elastic, &plan) * 1e3;
    }
    return rung;
}

/* ---- a race ---- */

static const fl_tuned *known_for(const fl_elastic *elastic)
{
    const fl_plan *p = &elastic->plan;
    return fl_profile_tuned(elastic->run->options->plan_input->profile,
                            fl_sampler_batch(elastic->run->options->job), p->F, p->K, p->R);
}

static void begin_race(fl_elastic *elastic)
{
    const fl_plan *p = &elastic->plan;
    const fl_tuned *known = known_for(elastic);
    fl_tune *t = &elastic->tune;
    *t = (fl_tune){.F = p->F, .K = p->K, .R = p->R, .runs = p->generation, .asked = t->asked};
    t->from = t->started = elastic->transition.first_step + WARM_UP_STEPS;
    if ((known != NULL && known->settled && known->M == p->M) ||
        steps_left(elastic, PAYS_STEPS) < PAYS_STEPS) {
        return;
    }
    int M[FL_TUNER_RUNGS_MAX], n = fl_tuner_rungs(p->K, M);
    fl_tuner_rung rungs[FL_TUNER_RUNGS_MAX];
    for (int i = 0; i < n; i++) {
        rungs[i] = rung_of(elastic, M[i]);
    }
    double step_us = fl_measure_predict_ms(elastic, p) * 1e3;
    double left_us = (double)steps_left(elastic, LOOK_AHEAD_STEPS) * step_us;
    fl_tuner_init(&t->tuner, p->M, rungs, n, BUDGET * left_us);
    t->racing = t->tuner.end == FL_TUNER_RUNS;
}

/* Sum of the step times from .. the newest, microseconds. */
static double sum_us(const fl_run_stats *stats, int64_t from)
{
    double sum = 0.0;
    int64_t oldest = stats->n_window - FL_RUN_STATS_WINDOW;
    for (int64_t i = from > oldest ? from : oldest; i < stats->n_window; i++) {
        sum += stats->window_ms[i % FL_RUN_STATS_WINDOW] * 1e3;
    }
    return sum;
}

/* The lower quartile of the newest n steps, microseconds. */
static double quartile_us(const fl_run_stats *stats, int n)
{
    double us[VISIT_STEPS_MAX];
    for (int i = 0; i < n; i++) {
        us[i] = stats->window_ms[(stats->n_window - 1 - i) % FL_RUN_STATS_WINDOW] * 1e3;
    }
    return fl_quantile_lower(us, n);
}

/* True when the running M has been measured. */
static bool is_measured(const fl_elastic *elastic, fl_tuner_visit *visit)
{
    const fl_tune *t = &elastic->tune;
    const fl_run_stats *stats = elastic->run->stats;
    bool changed = t->visited != elastic->plan.generation;
    int64_t warm = elastic->transition.first_step + WARM_UP_STEPS;
    int64_t n_all = stats->n_window - (t->from > warm ? t->from : warm);
    int n = n_all < VISIT_STEPS_MAX ? (int)n_all : VISIT_STEPS_MAX;
    if (n < 1) {
        return false;
    }
    *visit = (fl_tuner_visit){.step_us = quartile_us(stats, n),
                              .n_steps = stats->n_window - t->from,
                              .elapsed_us = sum_us(stats, t->from)};
    visit->stall_us = changed && t->visited != 0 ? (double)elastic->transition.stall_us : 0.0;
    fl_tuner_forgive(visit, (double)t->gap_us);
    int wanted = (double)n * visit->step_us < VISIT_MS * 1e3 ? VISIT_STEPS_MAX : VISIT_STEPS;
    return fl_tuner_has_enough(&t->tuner, visit->step_us, n, wanted);
}

/* Keep the race's measurements for later runs, even if the race did not finish. */
static void finish_race(fl_elastic *elastic)
{
    fl_tune *t = &elastic->tune;
    fl_tuned tuned = {.batch = fl_sampler_batch(elastic->run->options->job),
                      .F = t->F,
                      .K = t->K,
                      .R = t->R,
                      .M = fl_tuner_m(&t->tuner),
                      .step_us = fl_tuner_step_us(&t->tuner),
                      .settled =
                          t->tuner.end == FL_TUNER_SETTLED || t->tuner.end == FL_TUNER_ROUNDS};
    fl_tune_sums *sums = &elastic->tune_sums;
    t->racing = false;
    sums->n_races++;
    sums->n_steps += t->from - t->started;
    sums->lost_us += fl_tuner_lost_us(&t->tuner);
    if (elastic->run->options->learned != NULL && t->tuner.round > 0) {
        fl_profile_remember(elastic->run->options->learned, &tuned);
    }
    fl_event_log_tuned(elastic);
}

/* A requested visit was refused; or another change of the plan came in between, or is about to. */
static void adapt(fl_elastic *elastic)
{
    fl_tune *t = &elastic->tune;
    bool refused = t->runs != elastic->plan.generation;
    if (refused && elastic->plan.generation == t->visited) {
        fl_tuner_refuse(&t->tuner);
        t->runs = t->visited;
    } else if (refused || steps_left(elastic, PAYS_FOR_ONE_STEPS) < PAYS_FOR_ONE_STEPS) {
        fl_tuner_stop(&t->tuner);
    }
}

static void visit(fl_elastic *elastic)
{
    fl_tune *t = &elastic->tune;
    fl_tuner_visit measured;
    if (fl_tuner_m(&t->tuner) == elastic->plan.M && is_measured(elastic, &measured)) {
        elastic->tune_sums.n_visits++;
        t->visited = elastic->plan.generation;
        t->from = elastic->run->stats->n_window;
        t->gap_us = 0;
        fl_event_log_tried(elastic, &measured);
        fl_tuner_add(&t->tuner, &measured);
    }
}

static void cut_off(fl_elastic *elastic)
{
    if (elastic->tune.racing) {
        fl_tuner_stop(&elastic->tune.tuner);
        finish_race(elastic);
    }
}

bool fl_tune_next_plan(fl_elastic *elastic, fl_plan *next, char *why, size_t size_bytes)
{
    fl_tune *t = &elastic->tune;
    const fl_plan *p = &elastic->plan;
    if (!is_wanted(elastic)) {
        cut_off(elastic); /* a command fixed M meanwhile */
        return false;
    }
    if (!fl_tune_is_of_plan(elastic) || t->runs == 0) {
        cut_off(elastic);
        begin_race(elastic);
    }
    if (!t->racing) {
        return false;
    }
    adapt(elastic);
    if (t->tuner.end == FL_TUNER_RUNS) {
        visit(elastic);
    }
    int M = fl_tuner_m(&t->tuner);
    char reason[FL_TUNER_WHY_MAX];
    if (t->tuner.end != FL_TUNER_RUNS) {
        finish_race(elastic);
    }
    snprintf(why, size_bytes, "%s", fl_tuner_reason(&t->tuner, reason));
    *next = with_m(elastic, M);
    return M != p->M;
}

void fl_tune_forgive(fl_elastic *elastic, int64_t gap_us)
{
    elastic->tune.gap_us += gap_us;
}

void fl_tune_asked(fl_elastic *elastic, uint32_t generation)
{
    elastic->tune.asked = elastic->tune.runs = generation;
}

const char *fl_tune_summary(const fl_elastic *elastic, char *text, size_t size_bytes)
{
    const fl_tune_sums *s = &elastic->tune_sums;
    double spent_us = elastic->run->stats->step_ms * 1e3;
    snprintf(text, size_bytes, "%s", "");
    if (s->n_races > 0) {
        char lost[FL_NUMBER_TEXT_MAX];
        double lost_us = s->lost_us > 0.0 ? s->lost_us : 0.0;
        snprintf(text, size_bytes, "M compared in %lld steps, at a cost of %s s (%.1f %%)",
                 (long long)s->n_steps, fl_number_text(lost_us * 1e-6, 2, lost),
                 spent_us > 0.0 ? 100.0 * lost_us / spent_us : 0.0);
    }
    return text;
}
