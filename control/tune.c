/* Trying other M on live steps. What to try is decided in pipe/tuner.c; here steps are measured and
 * plans that differ in M alone are asked for, one after the other.
 *
 *     a plan runs ──> warm-up ──> TRIAL_STEPS measured ──> fl_tune_next ──> the next M, or done
 *
 * A trial that is far slower than the best ends after a few steps. Tuning begins anew with another
 * F, K or R, unless the profile knows what is fastest there. */
#include "control/controller.h"

#include "autodp/sampler.h"
#include "freeze/policy.h"
#include "pipe/learn.h"

#include <stdio.h>

enum {
    WARM_UP_STEPS = 3,
    TRIAL_STEPS = 12,
    FEW_STEPS = 4,           /* enough to see that a trial is far slower */
    PAYS_STEPS = 400,        /* tuning begins when at least as many steps come after it */
    PAYS_FOR_ONE_STEPS = 100 /* another trial does */
};

static const double FAR_SLOWER = 1.3;

static bool is_wanted(const fl_head *head)
{
    const fl_job *job = head->options->job;
    return job->pipe.tune && job->pipe.m == FL_JOB_AUTO && job->elastic.enabled &&
           job->elastic.n_script == 0 && head->options->plan_input != NULL;
}

bool fl_tune_is_trial(const fl_head *head)
{
    uint32_t asked = head->tune.asked;
    return asked != 0 && asked == head->elastic.next.generation;
}

int fl_tune_own_m(const fl_head *head)
{
    const fl_tune *t = &head->tune;
    return t->running ? t->trials[0].M : head->plan.M;
}

/* ---- what is left, and what fits ---- */

/* Steps until the plan may change for another reason. */
static int64_t steps_left(const fl_head *head)
{
    const fl_job *job = head->options->job;
    int64_t done = head->tally.steps, end = head->options->n_steps, left = 1;
    bool freezes = job->freeze.policy != FL_FREEZE_NONE &&
                   head->plan.F + job->freeze.keep < head->decide.norms.L;
    while (left < PAYS_STEPS && done + left < end &&
           !(freezes && fl_freeze_due(job, done + left, head->tally.steps_per_epoch, end))) {
        left++;
    }
    return left;
}

static fl_plan with_m(const fl_head *head, int M)
{
    fl_plan plan = head->plan;
    plan.M = M;
    return plan;
}

/* Both generations must fit while one gives way to the other. */
static bool fits(void *context, int M)
{
    const fl_head *head = context;
    fl_plan plan = with_m(head, M);
    return M <= fl_share_max(head->options->job->train.batch, plan.R) &&
           fl_decide_check_room(head, &plan) == FL_OK;
}

/* ---- trials ---- */

static bool same_place(const fl_tune *t, const fl_plan *plan)
{
    return t->F == plan->F && t->K == plan->K && t->R == plan->R;
}

static void begin(fl_head *head)
{
    const fl_plan *p = &head->plan;
    const fl_tuned *known = fl_profile_tuned(head->options->plan_input->profile,
                                             head->options->job->train.batch, p->F, p->K, p->R);
    bool settled = known != NULL && known->M == p->M;
    head->tune = (fl_tune){.F = p->F,
                           .K = p->K,
                           .R = p->R,
                           .runs = p->generation,
                           .over = settled || steps_left(head) < PAYS_STEPS};
}

/* The newest steps of this generation, microseconds; at most `most` of them. */
static int collect(const fl_head *head, double *us, int most)
{
    const fl_tally *tally = &head->tally;
    int64_t from = head->elastic.first_step + WARM_UP_STEPS;
    int n = 0;
    for (int64_t i = tally->n_window - 1; i >= from && n < most; i--) {
        us[n++] = tally->window_ms[i % FL_TALLY_WINDOW] * 1e3;
    }
    return n;
}

/* True when the M that runs has been measured. */
static bool is_measured(const fl_head *head, fl_tune_trial *trial)
{
    double us[TRIAL_STEPS];
    const fl_tune *t = &head->tune;
    int n = collect(head, us, TRIAL_STEPS);
    if (n < FEW_STEPS) {
        return false;
    }
    *trial = fl_tune_measure(head->plan.M, us, n);
    return n == TRIAL_STEPS ||
           (t->n_trials > 0 && trial->step_us > FAR_SLOWER * t->trials[0].step_us);
}

static void finish(fl_head *head, const fl_tune_decision *d)
{
    fl_tune *t = &head->tune;
    fl_tuned tuned = {
        .batch = head->options->job->train.batch, .F = t->F, .K = t->K, .R = t->R, .M = d->M};
    for (int i = 0; i < t->n_trials; i++) {
        tuned.step_us = t->trials[i].M == d->M ? t->trials[i].step_us : tuned.step_us;
    }
    t->running = false;
    t->over = true;
    if (head->options->learned != NULL) {
        fl_profile_remember(head->options->learned, &tuned);
    }
    fl_story_tuned(head, d);
}

/* The trial that was asked for was refused, or somebody else changed the plan: what runs stays. */
static bool is_other(const fl_head *head)
{
    return head->tune.runs != head->plan.generation;
}

bool fl_tune_next_plan(fl_head *head, fl_plan *next, char *why, size_t size_bytes)
{
    fl_tune *t = &head->tune;
    fl_tune_trial trial;
    if (!is_wanted(head)) {
        return false;
    }
    if (!same_place(t, &head->plan) || t->runs == 0) {
        begin(head);
    }
    if (!t->over && is_other(head)) {
        t->over = true;
        t->running = false;
    }
    if (t->over || !is_measured(head, &trial)) {
        return false;
    }
    t->trials[t->n_trials++] = trial;
    t->running = true;
    fl_story_tried(head, &trial);
    fl_tune_input input = {.K = t->K,
                           .trials = t->trials,
                           .n_trials = t->n_trials,
                           .fits = fits,
                           .context = head,
                           .more = steps_left(head) >= PAYS_FOR_ONE_STEPS};
    fl_tune_decision d;
    fl_tune_next(&input, &d);
    if (d.done) {
        finish(head, &d);
    }
    snprintf(why, size_bytes, "%s", d.why);
    *next = with_m(head, d.M);
    return d.M != head->plan.M;
}

void fl_tune_asked(fl_head *head, uint32_t generation)
{
    head->tune.asked = head->tune.runs = generation;
}
