/* Corrects the profile by the run's own times: gathers each worker's compute time of each step by
 * generation, and passes the times to pipe/cost/time/learn.h when a generation ends. */
#include "control/elastic/elastic.h"
#include "control/elastic/elastic_events.h"

#include "device/system/alloc.h"
#include "pipe/cost/schedule.h"
#include "pipe/cost/time/cost_model.h"
#include "pipe/measure/quantile.h"

enum { WARM_UP_STEPS = 2 };

static bool is_on(const fl_elastic *elastic)
{
    return elastic->run->options->learned != NULL && elastic->run->options->plan_input != NULL;
}

fl_status fl_learn_open(fl_elastic *elastic)
{
    fl_learn *l = &elastic->learn;
    if (!is_on(elastic)) {
        return FL_OK;
    }
    l->generation = elastic->plan.generation;
    return fl_alloc_array((size_t)elastic->run->n_workers, sizeof *l->of, (void **)&l->of);
}

void fl_learn_close(fl_elastic *elastic)
{
    fl_free(elastic->learn.of);
    elastic->learn.of = NULL;
}

/* The last reports of a generation may arrive after the controller has switched. They are
 * few, and are dropped. */
void fl_learn_time(fl_elastic *elastic, int rank, uint32_t generation, const fl_time_report *report)
{
    fl_learn *l = &elastic->learn;
    if (l->of != NULL && generation == l->generation) {
        fl_learn_worker *w = &l->of[rank];
        w->compute_us[w->n++ % FL_LEARN_STEPS] = (double)report->compute_us;
    }
}

void fl_learn_graphs(fl_elastic *elastic, int rank, const fl_graphs_report *report)
{
    fl_learn *l = &elastic->learn;
    const fl_plan *plan = &elastic->plan;
    fl_place place = fl_plan_place(plan, rank);
    if (l->of == NULL || report->generation != l->generation || !place.active) {
        return;
    }
    int n_layers = plan->first[place.stage + 1] - plan->first[place.stage];
    int n_slots = fl_schedule_in_flight(plan->schedule, plan->K, plan->M, place.stage);
    fl_profile_learn_graphs(elastic->run->options->learned, n_layers, n_slots, report->graphs.bytes,
                            !l->knows_graphs);
    l->knows_graphs = true;
}

/* The steps of a generation after its warm-up count. Of their times the lower quartile is used:
 * higher times mostly come from other programs on the processor. */
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
        stage.compute_us = fl_quantile_lower(us, n);
    }
    return stage;
}

/* How fast a worker's device is, relative to the profile's; 0: it is of another kind, and its times
 * say nothing of the profile. */
static double speed_of(const fl_elastic *elastic, int rank)
{
    const fl_cluster *c = elastic->run->options->plan_input->cluster;
    return c == NULL || rank >= c->n_devices ? 1.0 : c->kind_of[rank] > 0 ? 0.0 : c->speed[rank];
}

/* The mean of a stage's replicas on devices of the profile's kind: shares differ by a sample at
 * most. */
static fl_live_stage of_stage(const fl_elastic *elastic, int stage)
{
    const fl_plan *plan = &elastic->plan;
    fl_live_stage all = {.n_steps = INT64_MAX};
    int n = 0;
    for (int r = 0; r < plan->R; r++) {
        int rank = fl_plan_rank(plan, r, stage);
        double speed = speed_of(elastic, rank);
        fl_live_stage one = of_worker(&elastic->learn.of[rank]);
        if (speed > 0.0) {
            n++;
            all.n_steps = one.n_steps < all.n_steps ? one.n_steps : all.n_steps;
            all.compute_us += one.compute_us * speed;
        }
    }
    const fl_live_stage none = {.n_steps = 0};
    all.compute_us /= n == 0 ? 1 : n;
    return n == 0 ? none : all;
}

/* The profile as corrected so far, for the event. */
static void predict(const fl_elastic *elastic, double *us)
{
    const fl_plan *plan = &elastic->plan;
    fl_plan_input input = *elastic->run->options->plan_input;
    fl_cost_table price;
    input.F = plan->F;
    fl_cost_table_init(&price, &input);
    for (int s = 0; s < plan->K; s++) {
        us[s] = fl_cost_model_compute(&price, fl_plan_grid(plan), plan->first, s);
    }
}

/* A frozen layer whose output comes from the cache computes nothing: its time would make the layer
 * look cheap. */
static bool is_cached(const fl_elastic *elastic)
{
    return elastic->plan.F > 0 && elastic->run->options->job->cache.policy != FL_CACHE_OFF;
}

void fl_learn_end(fl_elastic *elastic)
{
    fl_learn *l = &elastic->learn;
    fl_live_stage live[FL_MAX_STAGES];
    double predicted_us[FL_MAX_STAGES];
    if (l->of == NULL || is_cached(elastic)) {
        return;
    }
    for (int s = 0; s < elastic->plan.K; s++) {
        live[s] = of_stage(elastic, s);
    }
    predict(elastic, predicted_us);
    fl_event_log_learned(elastic, live, predicted_us);
    fl_profile_learn(elastic->run->options->learned, elastic->run->options->plan_input,
                     &elastic->plan, live);
}

void fl_learn_begin(fl_elastic *elastic)
{
    fl_learn *l = &elastic->learn;
    l->generation = elastic->plan.generation;
    for (int i = 0; l->of != NULL && i < elastic->run->n_workers; i++) {
        l->of[i].n = 0;
    }
}
