/* Trying other M on live steps. What to try is decided in pipe/plan/tuner.c; here steps are
 * measured and plans that differ in M alone are asked for, one after the other.
 *
 *     a plan runs ──> warm-up ──> TRIAL_STEPS measured ──> fl_tune_next ──> the next M, or done
 *
 * A trial that is far slower than the best ends after a few steps. Tuning begins anew with another
 * F, K or R, unless the profile knows what is fastest there. */
#include "control/controller/parts.h"

#include "autodp/sampler.h"
#include "freeze/policy.h"
#include "pipe/plan/learn.h"

#include <stdio.h>

enum {
    WARM_UP_STEPS = 3,
    TRIAL_STEPS = 12,
    FEW_STEPS = 4,           /* enough to see that a trial is far slower */
    PAYS_STEPS = 400,        /* tuning begins when at least as many steps come after it */
    PAYS_FOR_ONE_STEPS = 100 /* another trial does */
};

static const double FAR_SLOWER = 1.3;

static bool is_wanted(const fl_controller *controller)
{
    const fl_job *job = controller->options->job;
    return job->pipe.tune && job->pipe.m == FL_JOB_AUTO && job->elastic.enabled &&
           job->elastic.n_script == 0 && controller->options->plan_input != NULL;
}

bool fl_tune_is_trial(const fl_controller *controller)
{
    uint32_t asked = controller->tune.asked;
    return asked != 0 && asked == controller->elastic.next.generation;
}

int fl_tune_own_m(const fl_controller *controller)
{
    const fl_tune *t = &controller->tune;
    return t->running ? t->trials[0].M : controller->plan.M;
}

/* ---- what is left, and what fits ---- */

/* Steps until the plan may change for another reason. */
static int64_t steps_left(const fl_controller *controller)
{
    const fl_job *job = controller->options->job;
    int64_t done = controller->stats.steps, end = controller->options->n_steps, left = 1;
    bool freezes = job->freeze.policy != FL_FREEZE_NONE &&
                   controller->plan.F + job->freeze.keep < controller->decide.norms.L;
    while (left < PAYS_STEPS && done + left < end &&
           !(freezes && fl_freeze_due(job, done + left, controller->stats.steps_per_epoch, end))) {
        left++;
    }
    return left;
}

static fl_plan with_m(const fl_controller *controller, int M)
{
    fl_plan plan = controller->plan;
    plan.M = M;
    return plan;
}

/* Both generations must fit while one gives way to the other. */
static bool fits(void *context, int M)
{
    const fl_controller *controller = context;
    fl_plan plan = with_m(controller, M);
    return M <= fl_split_work_max(controller->options->job->train.batch, plan.R) &&
           fl_decide_check_room(controller, &plan) == FL_OK;
}

/* ---- trials ---- */

static bool same_place(const fl_tune *t, const fl_plan *plan)
{
    return t->F == plan->F && t->K == plan->K && t->R == plan->R;
}

static void begin(fl_controller *controller)
{
    const fl_plan *p = &controller->plan;
    const fl_tuned *known =
        fl_profile_tuned(controller->options->plan_input->profile,
                         controller->options->job->train.batch, p->F, p->K, p->R);
    bool settled = known != NULL && known->M == p->M;
    controller->tune = (fl_tune){.F = p->F,
                                 .K = p->K,
                                 .R = p->R,
                                 .runs = p->generation,
                                 .over = settled || steps_left(controller) < PAYS_STEPS};
}

/* The newest steps of this generation, microseconds; at most `most` of them. */
static int collect(const fl_controller *controller, double *us, int most)
{
    const fl_run_stats *stats = &controller->stats;
    int64_t from = controller->elastic.first_step + WARM_UP_STEPS;
    int n = 0;
    for (int64_t i = stats->n_window - 1; i >= from && n < most; i--) {
        us[n++] = stats->window_ms[i % FL_RUN_STATS_WINDOW] * 1e3;
    }
    return n;
}

/* True when the M that runs has been measured. */
static bool is_measured(const fl_controller *controller, fl_tune_trial *trial)
{
    double us[TRIAL_STEPS];
    const fl_tune *t = &controller->tune;
    int n = collect(controller, us, TRIAL_STEPS);
    if (n < FEW_STEPS) {
        return false;
    }
    *trial = fl_tune_measure(controller->plan.M, us, n);
    return n == TRIAL_STEPS ||
           (t->n_trials > 0 && trial->step_us > FAR_SLOWER * t->trials[0].step_us);
}

static void finish(fl_controller *controller, const fl_tune_decision *d)
{
    fl_tune *t = &controller->tune;
    fl_tuned tuned = {
        .batch = controller->options->job->train.batch, .F = t->F, .K = t->K, .R = t->R, .M = d->M};
    for (int i = 0; i < t->n_trials; i++) {
        tuned.step_us = t->trials[i].M == d->M ? t->trials[i].step_us : tuned.step_us;
    }
    t->running = false;
    t->over = true;
    if (controller->options->learned != NULL) {
        fl_profile_remember(controller->options->learned, &tuned);
    }
    fl_event_log_tuned(controller, d);
}

/* The trial that was asked for was refused, or somebody else changed the plan: what runs stays. */
static bool is_other(const fl_controller *controller)
{
    return controller->tune.runs != controller->plan.generation;
}

bool fl_tune_next_plan(fl_controller *controller, fl_plan *next, char *why, size_t size_bytes)
{
    fl_tune *t = &controller->tune;
    fl_tune_trial trial;
    if (!is_wanted(controller)) {
        return false;
    }
    if (!same_place(t, &controller->plan) || t->runs == 0) {
        begin(controller);
    }
    if (!t->over && is_other(controller)) {
        t->over = true;
        t->running = false;
    }
    if (t->over || !is_measured(controller, &trial)) {
        return false;
    }
    t->trials[t->n_trials++] = trial;
    t->running = true;
    fl_event_log_tried(controller, &trial);
    fl_tune_input input = {.K = t->K,
                           .trials = t->trials,
                           .n_trials = t->n_trials,
                           .fits = fits,
                           .context = controller,
                           .more = steps_left(controller) >= PAYS_FOR_ONE_STEPS};
    fl_tune_decision d;
    fl_tune_next(&input, &d);
    if (d.done) {
        finish(controller, &d);
    }
    snprintf(why, size_bytes, "%s", d.why);
    *next = with_m(controller, d.M);
    return d.M != controller->plan.M;
}

void fl_tune_asked(fl_controller *controller, uint32_t generation)
{
    controller->tune.asked = controller->tune.runs = generation;
}
