/* The events of freezing and of transitions, and the lines in which people read them. */
#include "control/controller.h"
#include "control/fields.h"

#include <stdio.h>
#include <string.h>

/* ---- decisions ---- */

static void norm_field(fl_json *j, const char *key, const double *norm, int L)
{
    if (norm == NULL) {
        return;
    }
    fl_json_array(j, key);
    for (int i = 0; i < L; i++) {
        fl_json_real(j, NULL, norm[i]);
    }
    fl_json_close(j, ']');
}

static const char *policy_text(fl_freeze_policy policy)
{
    static const char *const text[] = {"none", "gradnorm", "schedule", "stability"};
    return text[policy];
}

void fl_story_decided(fl_head *head)
{
    const fl_decision *d = &head->decide.decision;
    const fl_norms *norms = &head->decide.norms;
    fl_json *j = fl_story_begin(head, "freeze.decided");
    fl_json_text(j, "policy", policy_text(head->options->job->freeze.policy));
    fl_json_integer(j, "step", d->step);
    fl_json_integer(j, "blocks", norms->L);
    fl_json_integer(j, "f", d->F);
    fl_json_integer(j, "f_next", d->wanted);
    norm_field(j, "norms", fl_norms_get(norms), norms->L);
    norm_field(j, "norms_before", fl_norms_get_before(norms), norms->L);
    fl_json_text(j, "why", d->why);
    fl_story_end(head);
}

static void option(fl_json *j, const fl_decision *d, const fl_decide_option *o)
{
    fl_json_object(j, NULL);
    fl_json_text(j, "name", o->name);
    if (o->plan.K > 0) {
        fl_fields_plan(j, &o->plan);
        fl_json_rounded(j, "step_ms", o->step_ms, 3);
        fl_json_rounded(j, "saving_ms", (d->stay_ms - o->step_ms) * (double)d->left, 1);
        fl_json_rounded(j, "cost_ms", o->cost_ms, 3);
        fl_json_integer(j, "move_bytes", o->move_bytes);
    }
    if (o->status != FL_OK) {
        fl_json_text(j, "why_not", o->why_not);
    }
    fl_json_close(j, '}');
}

void fl_story_considered(fl_head *head)
{
    const fl_decision *d = &head->decide.decision;
    fl_json *j = fl_story_begin(head, "plan.considered");
    fl_json_integer(j, "step", d->step);
    fl_json_integer(j, "f", d->wanted);
    fl_json_integer(j, "steps_left", d->left);
    fl_json_rounded(j, "measured_by_predicted", d->ratio, 4);
    fl_json_rounded(j, "stay_step_ms", d->stay_ms, 3);
    fl_json_array(j, "candidates");
    for (int i = 0; i < d->n_options; i++) {
        option(j, d, &d->option[i]);
    }
    fl_json_close(j, ']');
    fl_json_text(j, "choice", d->chosen >= 0 ? d->option[d->chosen].name : "stay");
    fl_json_text(j, "why", d->choice_why);
    fl_story_end(head);
    if (d->chosen < 0) {
        fl_progress_note(&head->progress, "step %lld: %d of %d blocks were to be frozen: %s",
                         (long long)d->step, d->wanted, head->decide.norms.L, d->choice_why);
    }
}

/* ---- transitions ---- */

void fl_story_prepare(fl_head *head)
{
    const fl_elastic *e = &head->elastic;
    fl_json *j = fl_story_begin(head, "transition.prepare");
    fl_json_integer(j, "next_generation", e->next.generation);
    fl_fields_plan(j, &e->next);
    fl_json_text(j, "why", e->why);
    fl_json_integer(j, "due_step", e->due_step);
    fl_json_rounded(j, "step_ms", e->old_step_ms, 3);
    fl_json_rounded(j, "predicted_step_ms", e->predicted_ms, 3);
    fl_story_end(head);
}

void fl_story_cancel(fl_head *head, const char *why)
{
    fl_json *j = fl_story_begin(head, "transition.cancelled");
    fl_json_integer(j, "next_generation", head->elastic.next.generation);
    fl_json_text(j, "why", why);
    fl_story_end(head);
    fl_progress_note(&head->progress, "plan stays F=%d, K=%d x R=%d x M=%d: %s", head->plan.F,
                     head->plan.K, head->plan.R, head->plan.M, why);
}

static const char *grid(const fl_plan *plan, char text[48])
{
    snprintf(text, 48, "K=%d x R=%d x M=%d", plan->K, plan->R, plan->M);
    return text;
}

/* "3 of 8 blocks frozen, K=2 x R=1 x M=4 -> K=1 x R=2 x M=1": what is other than before. */
static void change_text(const fl_head *head, char *text, size_t size_bytes)
{
    const fl_plan *a = &head->elastic.before, *b = &head->plan;
    char from[48], to[48], frozen[64] = "";
    bool same_grid = a->K == b->K && a->R == b->R && a->M == b->M;
    bool same_cuts =
        same_grid && memcmp(a->first, b->first, ((size_t)a->K + 1) * sizeof a->first[0]) == 0;
    if (a->F != b->F) {
        snprintf(frozen, sizeof frozen, "%s%d of %d blocks frozen, ", b->F < a->F ? "only " : "",
                 b->F, head->decide.norms.L);
    }
    if (same_grid) {
        snprintf(text, size_bytes, "%s%s%s", frozen, grid(b, to), same_cuts ? "" : " cut anew");
    } else {
        snprintf(text, size_bytes, "%s%s -> %s", frozen, grid(a, from), grid(b, to));
    }
}

/* Two lines of at most 100 columns, mostly 80: what happened, who wanted it, what it brings. All
 * of why stands in the event. */
static void tell_transition(fl_head *head)
{
    const fl_elastic *e = &head->elastic;
    char change[192], cause[64], before[32] = "";
    change_text(head, change, sizeof change);
    if (e->policy_asked == head->plan.generation) {
        snprintf(cause, sizeof cause, "freeze.policy %s",
                 policy_text(head->options->job->freeze.policy));
    } else {
        snprintf(cause, sizeof cause, "%.30s", e->why);
    }
    if (e->old_step_ms > 0.0) { /* a plan may end before one of its steps was measured */
        snprintf(before, sizeof before, "%.3g -> ", e->old_step_ms);
    }
    fl_progress_note(&head->progress,
                     "step %lld: %s\n  %s; %s%.3g ms a step predicted, stood still "
                     "%.3g ms",
                     (long long)e->first_step, change, cause, before, e->predicted_ms,
                     (double)e->stall_us * 1e-3);
}

void fl_story_transition(fl_head *head)
{
    const fl_elastic *e = &head->elastic;
    fl_json *j = fl_story_begin(head, "transition.done");
    fl_fields_plan(j, &head->plan);
    fl_json_text(j, "why", e->why);
    fl_json_integer(j, "step", e->first_step);
    fl_json_rounded(j, "step_ms", e->old_step_ms, 3);
    fl_json_rounded(j, "predicted_step_ms", e->predicted_ms, 3);
    fl_json_rounded(j, "prepare_ms", (double)e->prepare_us * 1e-3, 3);
    fl_json_rounded(j, "wait_ms", (double)e->wait_us * 1e-3, 3);
    fl_json_rounded(j, "vote_ms", (double)e->vote_us * 1e-3, 3);
    fl_json_rounded(j, "migrate_ms", (double)e->migrate_us * 1e-3, 3);
    fl_json_rounded(j, "switch_ms", (double)e->switch_us * 1e-3, 3);
    fl_json_rounded(j, "stall_ms", (double)e->stall_us * 1e-3, 3);
    fl_json_integer(j, "moved_bytes", e->moved_bytes);
    fl_json_integer(j, "kept_bytes", e->kept_bytes);
    fl_mfu_tell(head, j);
    fl_story_end(head);
    if (!fl_tune_is_trial(head)) { /* many, and small: fl_story_tuned tells people how they ended */
        tell_transition(head);
    }
}

void fl_story_measured(fl_head *head, double measured_ms, int64_t n_steps)
{
    const fl_elastic *e = &head->elastic;
    char before[64] = "";
    fl_json *j = fl_story_begin(head, "transition.measured");
    fl_json_integer(j, "step", e->first_step);
    fl_json_integer(j, "steps", n_steps);
    fl_json_rounded(j, "before_step_ms", e->old_step_ms, 3);
    fl_json_rounded(j, "predicted_step_ms", e->predicted_ms, 3);
    fl_json_rounded(j, "measured_step_ms", measured_ms, 3);
    fl_story_end(head);
    if (e->old_step_ms > 0.0) {
        snprintf(before, sizeof before, ", %.3g before step %lld", e->old_step_ms,
                 (long long)e->first_step);
    }
    fl_progress_note(&head->progress, "step %lld: a step measured %.3g ms (%.3g predicted%s)",
                     (long long)head->tally.steps, measured_ms, e->predicted_ms, before);
}

/* ---- tuning and learning ---- */

void fl_story_tried(fl_head *head, const fl_tune_trial *trial)
{
    fl_json *j = fl_story_begin(head, "tune.tried");
    fl_json_integer(j, "step", head->tally.steps);
    fl_json_integer(j, "m", trial->M);
    fl_json_rounded(j, "step_ms", trial->step_us * 1e-3, 3);
    fl_json_rounded(j, "noise_ms", trial->noise_us * 1e-3, 3);
    fl_story_end(head);
}

void fl_story_tuned(fl_head *head, const fl_tune_decision *decision)
{
    const fl_tune *t = &head->tune;
    fl_json *j = fl_story_begin(head, "tune.done");
    fl_json_integer(j, "step", head->tally.steps);
    fl_json_integer(j, "f", t->F);
    fl_json_integer(j, "k", t->K);
    fl_json_integer(j, "r", t->R);
    fl_json_integer(j, "m", decision->M);
    fl_json_integer(j, "m_predicted", t->trials[0].M);
    fl_json_integer(j, "trials", t->n_trials);
    fl_json_text(j, "why", decision->why);
    fl_story_end(head);
    if (decision->M != t->trials[0].M) {
        fl_progress_note(&head->progress, "step %lld: M=%d -> M=%d: %s",
                         (long long)head->tally.steps, t->trials[0].M, decision->M, decision->why);
    }
}

void fl_story_learned(fl_head *head, const fl_live_stage *live, const double *predicted_us)
{
    fl_json *j = fl_story_begin(head, "costs.learned");
    fl_json_array(j, "stages");
    for (int s = 0; s < head->plan.K; s++) {
        fl_json_object(j, NULL);
        fl_json_integer(j, "stage", s);
        fl_json_integer(j, "steps", live[s].n_steps);
        fl_json_rounded(j, "compute_ms", live[s].compute_us * 1e-3, 3);
        fl_json_rounded(j, "predicted_ms", predicted_us[s] * 1e-3, 3);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    fl_story_end(head);
}
