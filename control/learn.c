/* What the run at hand teaches the profile: each worker's computing of each step, gathered by
 * generation, and given to pipe/learn.h when a generation ends. */
#include "control/controller.h"

#include "device/alloc.h"
#include "pipe/price.h"
#include "pipe/probe.h"

enum { WARM_UP_STEPS = 2 };

static bool is_on(const fl_head *head)
{
    return head->options->learned != NULL && head->options->plan_input != NULL;
}

fl_status fl_learn_open(fl_head *head)
{
    fl_learn *l = &head->learn;
    if (!is_on(head)) {
        return FL_OK;
    }
    l->generation = head->plan.generation;
    return fl_alloc_array((size_t)head->n_workers, sizeof *l->of, (void **)&l->of);
}

void fl_learn_close(fl_head *head)
{
    fl_free(head->learn.of);
    head->learn.of = NULL;
}

/* Some of the last reports of a generation come when the head has left it: they are few. */
void fl_learn_time(fl_head *head, int rank, uint32_t generation, const fl_time_report *report)
{
    fl_learn *l = &head->learn;
    if (l->of != NULL && generation == l->generation) {
        fl_learn_worker *w = &l->of[rank];
        w->compute_us[w->n++ % FL_LEARN_STEPS] = (double)report->compute_us;
    }
}

/* The steps of a generation that count are those after its warm-up. Of their times the lower
 * quartile does: what is above it is mostly somebody else's use of the processor. */
static fl_live_stage of_worker(const fl_learn_worker *w)
{
    double us[FL_LEARN_STEPS];
    int n = 0;
    int64_t oldest = w->n > FL_LEARN_STEPS ? w->n - FL_LEARN_STEPS : 0;
    for (int64_t i = oldest > WARM_UP_STEPS ? oldest : WARM_UP_STEPS; i < w->n; i++) {
        us[n++] = w->compute_us[i % FL_LEARN_STEPS];
    }
    fl_live_stage stage = {.n_steps = n};
    if (n > 0) {
        stage.compute_us = fl_probe_quartile(us, n);
    }
    return stage;
}

/* The mean of a stage's replicas: shares differ by a sample at most. */
static fl_live_stage of_stage(const fl_head *head, int stage)
{
    const fl_plan *plan = &head->plan;
    fl_live_stage all = {.n_steps = INT64_MAX};
    for (int r = 0; r < plan->R; r++) {
        fl_live_stage one = of_worker(&head->learn.of[plan->rank_of[r * plan->K + stage]]);
        all.n_steps = one.n_steps < all.n_steps ? one.n_steps : all.n_steps;
        all.compute_us += one.compute_us / plan->R;
    }
    return all;
}

/* With the profile as this run has it, for the event. */
static void predict(const fl_head *head, double *us)
{
    const fl_plan *plan = &head->plan;
    fl_plan_input input = *head->options->plan_input;
    fl_price_table price;
    input.F = plan->F;
    fl_price_table_init(&price, &input);
    for (int s = 0; s < plan->K; s++) {
        us[s] = fl_price_compute(&price, plan->K, plan->R, plan->M, plan->first, s);
    }
}

/* A frozen layer whose output comes from the cache computes nothing: its time would teach that it
 * is cheap. */
static bool is_cached(const fl_head *head)
{
    return head->plan.F > 0 && head->options->job->cache.policy != FL_CACHE_OFF;
}

void fl_learn_end(fl_head *head)
{
    fl_learn *l = &head->learn;
    fl_live_stage live[FL_MAX_STAGES];
    double predicted_us[FL_MAX_STAGES];
    if (l->of == NULL || is_cached(head)) {
        return;
    }
    for (int s = 0; s < head->plan.K; s++) {
        live[s] = of_stage(head, s);
    }
    predict(head, predicted_us);
    fl_story_learned(head, live, predicted_us);
    fl_profile_learn(head->options->learned, head->options->plan_input, &head->plan, live);
}

void fl_learn_begin(fl_head *head)
{
    fl_learn *l = &head->learn;
    l->generation = head->plan.generation;
    for (int i = 0; l->of != NULL && i < head->n_workers; i++) {
        l->of[i].n = 0;
    }
}
