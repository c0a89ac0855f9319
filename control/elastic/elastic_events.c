/* The events of freezing and of transitions, and their lines for the terminal. */
#include "control/elastic/elastic_events.h"

#include "control/elastic/elastic.h"
#include "device/text/number_text.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"

#include <math.h>
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

void fl_event_log_decided(fl_elastic *elastic, int64_t step, int64_t effect_step)
{
    const fl_decide *d = &elastic->decide;
    fl_json *j = fl_event_log_begin(elastic->log, "freeze.decided");
    fl_json_text(j, "policy", policy_text(elastic->run->options->job->freeze.policy));
    fl_json_integer(j, "step", step);
    fl_json_integer(j, "blocks", d->norms.L);
    fl_json_integer(j, "f", elastic->plan.F);
    fl_json_integer(j, "f_next", d->policy.F);
    fl_json_integer(j, "effect_step", effect_step);
    norm_field(j, "norms", fl_norms_get(&d->norms), d->norms.L);
    norm_field(j, "norms_before", fl_norms_get_before(&d->norms), d->norms.L);
    fl_json_text(j, "why", d->policy.why);
    fl_event_log_end(elastic->log);
}

static void option_fields(fl_json *j, const fl_decision *d, const fl_decision_option *o)
{
    fl_json_object(j, NULL);
    fl_json_text(j, "name", o->name);
    if (o->plan.K > 0) {
        fl_fields_plan(j, &o->plan);
        fl_json_rounded(j, "step_ms", o->step_ms, 3);
        fl_json_rounded(j, "saving_ms", (d->stay_ms - o->step_ms) * (double)d->left, 1);
        fl_json_rounded(j, "cost_ms", o->change.cost_ms, 3);
        fl_json_integer(j, "move_bytes", o->change.move_bytes);
    }
    if (o->status != FL_OK) {
        fl_json_text(j, "why_not", o->why_not);
    }
    fl_json_close(j, '}');
}

/* Lines of at most 100 columns, except for a reason that a plan is impossible. */
static void tell_stay(fl_elastic *elastic, const fl_decision *d)
{
    fl_progress *p = &elastic->log->progress;
    if (d->joined) {
        fl_progress_note(p, "step %lld: the plan stays: %s", (long long)d->step, d->why);
        return;
    }
    if (d->best < 0) {
        fl_progress_note(p, "step %lld: F stays %d, F=%d was requested: %s", (long long)d->step,
                         d->F, d->wanted, d->why);
        return;
    }
    const fl_decision_option *o = &d->option[d->best];
    char with[FL_NUMBER_TEXT_MAX], without[FL_NUMBER_TEXT_MAX], cost[FL_NUMBER_TEXT_MAX];
    fl_progress_note(p,
                     "step %lld: F stays %d: F=%d would not pay over the %lld steps that remain\n"
                     "  %s ms a step with it, %s without, %s ms to change (all predicted)",
                     (long long)d->step, d->F, d->wanted, (long long)d->left,
                     fl_number_text(o->step_ms, 4, with), fl_number_text(d->stay_ms, 4, without),
                     fl_number_text(o->change.cost_ms, 3, cost));
}

void fl_event_log_considered(fl_elastic *elastic)
{
    const fl_decision *d = &elastic->decide.decision;
    bool stays = d->chosen == FL_DECISION_STAY;
    fl_json *j = fl_event_log_begin(elastic->log, "plan.considered");
    fl_json_integer(j, "step", d->step);
    fl_json_integer(j, "f", d->wanted);
    fl_json_integer(j, "steps_left", d->left);
    fl_json_rounded(j, "measured_by_predicted", fl_measure_ratio(elastic), 4);
    fl_json_rounded(j, "stay_step_ms", d->stay_ms, 3);
    fl_json_array(j, "candidates");
    for (int i = 0; i < d->n_options; i++) {
        option_fields(j, d, &d->option[i]);
    }
    fl_json_close(j, ']');
    fl_json_text(j, "choice", stays ? "stay" : d->option[d->chosen].name);
    fl_json_text(j, "why", d->why);
    fl_event_log_end(elastic->log);
    if (stays) {
        tell_stay(elastic, d);
    }
}

/* ---- transitions ---- */

void fl_event_log_prepare(fl_elastic *elastic)
{
    const fl_transition *e = &elastic->transition;
    fl_json *j = fl_event_log_begin(elastic->log, "transition.prepare");
    fl_json_integer(j, "next_generation", e->next.generation);
    fl_fields_plan(j, &e->next);
    fl_json_text(j, "why", e->why);
    fl_json_integer(j, "due_step", e->due_step);
    fl_json_rounded(j, "step_ms", e->old_step_ms, 3);
    fl_json_rounded(j, "predicted_step_ms", e->predicted_ms, 3);
    fl_event_log_end(elastic->log);
}

void fl_event_log_cancel(fl_elastic *elastic, const char *why, bool again)
{
    fl_json *j = fl_event_log_begin(elastic->log, "transition.cancelled");
    fl_json_integer(j, "next_generation", elastic->transition.next.generation);
    fl_json_text(j, "why", why);
    fl_json_bool(j, "again", again);
    fl_event_log_end(elastic->log);
    if (again) {
        char to[FL_GRID_TEXT_MAX];
        fl_progress_note(&elastic->log->progress,
                         "step %lld: the change to F=%d, %s is tried again: %s",
                         (long long)elastic->transition.due_step, elastic->transition.next.F,
                         fl_grid_text(fl_plan_grid(&elastic->transition.next), to), why);
        return;
    }
    /* A loss cancels a comparison, too, and then changes the plan: "stays" would contradict that.
     */
    if (fl_tune_is_trial(elastic)) {
        fl_progress_note(&elastic->log->progress, "the comparison with M = %d was dropped: %s",
                         elastic->transition.next.M, why);
        return;
    }
    if (elastic->transition.told != 0 &&
        elastic->transition.next.generation == elastic->transition.told) {
        return;
    }
    fl_progress_note(&elastic->log->progress, "plan stays F=%d, K=%d x R=%d x M=%d: %s",
                     elastic->plan.F, elastic->plan.K, elastic->plan.R, elastic->plan.M, why);
}

/* "3 of 8 blocks frozen, K=2 x R=1 x M=4 -> K=1 x R=2 x M=1": the fields that differ. */
static void change_text(const fl_elastic *elastic, char *text, size_t size_bytes)
{
    const fl_plan *a = &elastic->transition.before, *b = &elastic->plan;
    fl_grid before = fl_plan_grid(a), after = fl_plan_grid(b);
    char from[FL_GRID_TEXT_MAX], to[FL_GRID_TEXT_MAX], frozen[64] = "";
    before.F = after.F; /* the caller has written it */
    if (a->F != b->F) {
        snprintf(frozen, sizeof frozen, "%d of %d blocks frozen, ", b->F, elastic->decide.norms.L);
    }
    if (fl_grid_is_same(before, after)) {
        snprintf(text, size_bytes, "%s%s%s", frozen, fl_grid_text(after, to),
                 fl_plan_has_same_cuts(a, b) ? "" : " repartitioned");
    } else {
        snprintf(text, size_bytes, "%s%s -> %s", frozen, fl_grid_text(before, from),
                 fl_grid_text(after, to));
    }
}

/* Uses of tied parameters above the frost line of F that stay frozen with a use below it; adds
 * their names to j unless that is NULL. */
static int list_frozen_uses(const fl_model *model, int F, fl_json *j)
{
    int n = 0, n_frozen = model == NULL ? 0 : fl_frozen_layers(model, F);
    for (int i = 0; model != NULL && i < fl_model_n_ties(model); i++) {
        const fl_tie *tie = fl_model_tie_at(model, i);
        for (int k = 0; k < tie->n && !fl_tie_trains(tie, n_frozen); k++) {
            const fl_param_place at = tie->use[k];
            char name[FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX];
            if (at.layer >= n_frozen) {
                snprintf(name, sizeof name, "%s.%s", fl_model_layer_name(model, at.layer),
                         fl_model_param_name(model, at.layer, at.param));
                n++;
                if (j != NULL) {
                    fl_json_text(j, NULL, name);
                }
            }
        }
    }
    return n;
}

static void frozen_uses_field(fl_json *j, const fl_elastic *elastic)
{
    const fl_model *model = elastic->run->options->model;
    if (list_frozen_uses(model, elastic->plan.F, NULL) > 0) {
        fl_json_array(j, "frozen_with_ties");
        (void)list_frozen_uses(model, elastic->plan.F, j);
        fl_json_close(j, ']');
    }
}

/* Layers that thaw with moments of zero, because the worker that kept theirs was lost. */
static void fresh_field(fl_json *j, const fl_elastic *elastic)
{
    const fl_decide *d = &elastic->decide;
    const fl_model *model = elastic->run->options->model;
    if (d->n_fresh == 0 || model == NULL) {
        return;
    }
    fl_json_array(j, "fresh_moments");
    for (int layer = 0; layer < elastic->plan.n_layers; layer++) {
        if (d->fresh[layer] && fl_model_params(model, layer)->n > 0) {
            fl_json_text(j, NULL, fl_model_layer_name(model, layer));
        }
    }
    fl_json_close(j, ']');
}

static void tell_fresh(const fl_elastic *elastic)
{
    int n = elastic->decide.n_fresh;
    if (n > 0) {
        fl_progress_note(&elastic->log->progress,
                         "  %d %s with new optimizer moments: the worker that kept the old ones "
                         "was lost",
                         n, n == 1 ? "layer thaws" : "layers thaw");
    }
}

/* As much of a reason as a line has room for: what stands before its details. */
static void put_cause(const char *why, char cause[64])
{
    enum { MOST = 30 };
    const char *details = strstr(why, ": ");
    size_t n = details == NULL ? strlen(why) : (size_t)(details - why);
    bool cut = n > MOST;
    for (n = cut ? MOST - 4 : n; cut && n > 0 && why[n] != ' ';) {
        n--;
    }
    snprintf(cause, 64, "%.*s%s", (int)n, why, cut ? " ..." : "");
}

/* Two lines of at most 100 columns, mostly 80: the change, its reason, its expected gain. The event
 * has the whole of `why`. */
static void tell_transition(fl_elastic *elastic)
{
    const fl_transition *e = &elastic->transition;
    char change[192], cause[64], before[FL_NUMBER_TEXT_MAX + 4] = "";
    char step[FL_NUMBER_TEXT_MAX], pause[FL_NUMBER_TEXT_MAX];
    change_text(elastic, change, sizeof change);
    if (e->policy_asked == elastic->plan.generation) {
        snprintf(cause, sizeof cause, "freeze.policy %s",
                 policy_text(elastic->run->options->job->freeze.policy));
    } else {
        put_cause(e->why, cause);
    }
    if (e->old_step_ms > 0.0) { /* the plan before may have run no step */
        snprintf(before, sizeof before, "%s -> ", fl_number_text(e->old_step_ms, 3, step));
    }
    fl_progress_note(&elastic->log->progress,
                     "step %lld: %s\n  %s; %s%s ms a step predicted, training paused %s ms",
                     (long long)e->first_step, change, cause, before,
                     fl_number_text(e->predicted_ms, 3, step),
                     fl_number_text((double)e->stall_us * 1e-3, 3, pause));
    const fl_model *model = elastic->run->options->model;
    int n = list_frozen_uses(model, elastic->plan.F, NULL);
    if (n > 0 && e->before.F == 0) {
        fl_progress_note(&elastic->log->progress,
                         "  layers above keep %d %s frozen: tied to one of a frozen block", n,
                         n == 1 ? "parameter" : "parameters");
    }
    tell_fresh(elastic);
}

/* Which ways the state of a transition went. */
static void moved_field(fl_json *j, const fl_transition *e)
{
    fl_json_array(j, "moved");
    for (int way = 0; way < FL_TRANSFER_WAYS; way++) {
        const fl_transfer_part *part = &e->part[way];
        if (part->bytes > 0) {
            fl_json_object(j, NULL);
            fl_json_text(j, "way", fl_transfer_way_text((fl_transfer_way)way));
            fl_json_integer(j, "pairs", part->pairs);
            fl_json_integer(j, "bytes", part->bytes);
            fl_json_rounded(j, "ms", (double)part->us * 1e-3, 3);
            fl_json_close(j, '}');
        }
    }
    fl_json_close(j, ']');
}

void fl_event_log_transition(fl_elastic *elastic)
{
    fl_mfu mfu = fl_mfu_now(elastic);
    const fl_transition *e = &elastic->transition;
    fl_json *j = fl_event_log_begin(elastic->log, "transition.done");
    fl_fields_plan(j, &elastic->plan);
    fl_fields_places(j, &elastic->plan);
    frozen_uses_field(j, elastic);
    fresh_field(j, elastic);
    fl_json_text(j, "why", e->why);
    fl_json_integer(j, "step", e->first_step);
    fl_json_rounded(j, "step_ms", e->old_step_ms, 3);
    fl_json_rounded(j, "predicted_step_ms", e->predicted_ms, 3);
    fl_json_rounded(j, "prepare_ms", (double)e->prepare_us * 1e-3, 3);
    if (e->comm != FL_COMM_NONE) {
        fl_json_text(j, "comm", fl_comm_way_text(e->comm));
        fl_json_rounded(j, "comm_ms", (double)e->comm_us * 1e-3, 3);
    }
    fl_json_rounded(j, "wait_ms", (double)e->wait_us * 1e-3, 3);
    fl_json_rounded(j, "vote_ms", (double)e->vote_us * 1e-3, 3);
    fl_json_rounded(j, "migrate_ms", (double)e->migrate_us * 1e-3, 3);
    fl_json_rounded(j, "switch_ms", (double)e->switch_us * 1e-3, 3);
    fl_json_rounded(j, "stall_ms", (double)e->stall_us * 1e-3, 3);
    fl_json_integer(j, "moved_bytes", e->moved_bytes);
    fl_json_integer(j, "kept_bytes", e->kept_bytes);
    fl_json_integer(j, "device_bytes", e->device_bytes);
    moved_field(j, e);
    fl_fields_mfu(j, &mfu);
    fl_event_log_end(elastic->log);
    /* Tuning makes many small ones, and fl_event_log_tuned reports their result; a recovery's line
     * has the plan after a loss. */
    if (!fl_tune_is_trial(elastic) && !e->forced) {
        tell_transition(elastic);
    }
}

void fl_event_log_measured(fl_elastic *elastic, double measured_ms, int64_t n_steps)
{
    const fl_transition *e = &elastic->transition;
    char before[FL_NUMBER_TEXT_MAX + 40] = "";
    char old[FL_NUMBER_TEXT_MAX], predicted[FL_NUMBER_TEXT_MAX], measured[FL_NUMBER_TEXT_MAX];
    fl_json *j = fl_event_log_begin(elastic->log, "transition.measured");
    fl_json_integer(j, "step", e->first_step);
    fl_json_integer(j, "steps", n_steps);
    fl_json_rounded(j, "before_step_ms", e->old_step_ms, 3);
    fl_json_rounded(j, "predicted_step_ms", e->predicted_ms, 3);
    fl_json_rounded(j, "measured_step_ms", measured_ms, 3);
    fl_event_log_end(elastic->log);
    if (e->old_step_ms > 0.0) {
        snprintf(before, sizeof before, ", %s before step %lld",
                 fl_number_text(e->old_step_ms, 3, old), (long long)e->first_step);
    }
    fl_progress_note(&elastic->log->progress, "step %lld: a step measured %s ms (%s predicted%s)",
                     (long long)elastic->run->stats->steps,
                     fl_number_text(measured_ms, 3, measured),
                     fl_number_text(e->predicted_ms, 3, predicted), before);
}

/* ---- tuning and learning ---- */

void fl_event_log_tried(fl_elastic *elastic, const fl_tuner_visit *visit)
{
    fl_json *j = fl_event_log_begin(elastic->log, "tune.tried");
    fl_json_integer(j, "step", elastic->run->stats->steps);
    fl_json_integer(j, "round", elastic->tune.tuner.round + 1);
    fl_json_integer(j, "m", elastic->plan.M);
    fl_json_rounded(j, "step_ms", visit->step_us * 1e-3, 3);
    fl_json_integer(j, "steps", visit->n_steps);
    fl_json_rounded(j, "elapsed_ms", visit->elapsed_us * 1e-3, 3);
    fl_event_log_end(elastic->log);
}

static void percent_field(fl_json *j, const char *key, double logarithm)
{
    fl_json_rounded(j, key, 100.0 * expm1(logarithm), 2);
}

static void candidate_fields(fl_json *j, const fl_tuner *t, int i)
{
    double slower, error;
    fl_json_object(j, NULL);
    fl_json_integer(j, "m", t->of[i].M);
    fl_json_integer(j, "visits", t->of[i].n_visits);
    if (fl_tuner_compare(t, i, &slower, &error)) {
        percent_field(j, "slower_percent", slower);
        percent_field(j, "slower_from_percent", slower - error);
        percent_field(j, "slower_to_percent", slower + error);
    }
    fl_json_close(j, '}');
}

void fl_event_log_tuned(fl_elastic *elastic)
{
    const fl_tune *t = &elastic->tune;
    const fl_tuner *race = &t->tuner;
    char why[FL_TUNER_WHY_MAX];
    int M = fl_tuner_m(race), n_visits = 0;
    fl_json *j = fl_event_log_begin(elastic->log, "tune.done");
    fl_json_integer(j, "step", elastic->run->stats->steps);
    fl_json_integer(j, "f", t->F);
    fl_json_integer(j, "k", t->K);
    fl_json_integer(j, "r", t->R);
    fl_json_integer(j, "m", M);
    fl_json_integer(j, "m_predicted", race->of[0].M);
    fl_json_array(j, "candidates");
    for (int i = 0; i < race->n; i++) {
        candidate_fields(j, race, i);
        n_visits += race->of[i].n_visits;
    }
    fl_json_close(j, ']');
    fl_json_integer(j, "rounds", race->round);
    fl_json_integer(j, "trials", n_visits);
    fl_json_rounded(j, "cost_ms", fl_tuner_cost_us(race) * 1e-3, 3);
    fl_json_rounded(j, "budget_ms", race->budget_us * 1e-3, 3);
    fl_json_text(j, "ended", fl_tuner_end_text(race->end));
    fl_json_text(j, "why", fl_tuner_explain(race, why));
    fl_event_log_end(elastic->log);
    if (M != race->of[0].M && fl_tune_is_of_plan(elastic)) {
        fl_progress_note(&elastic->log->progress, "step %lld: M=%d -> M=%d: %s",
                         (long long)elastic->run->stats->steps, race->of[0].M, M, why);
    }
}

void fl_event_log_learned(fl_elastic *elastic, const fl_live_stage *live,
                          const double *predicted_us)
{
    fl_json *j = fl_event_log_begin(elastic->log, "costs.learned");
    fl_json_array(j, "stages");
    for (int s = 0; s < elastic->plan.K; s++) {
        fl_json_object(j, NULL);
        fl_json_integer(j, "stage", s);
        fl_json_integer(j, "steps", live[s].n_steps);
        fl_json_rounded(j, "compute_ms", live[s].compute_us * 1e-3, 3);
        fl_json_rounded(j, "predicted_ms", predicted_us[s] * 1e-3, 3);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    fl_event_log_end(elastic->log);
}
