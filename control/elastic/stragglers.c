/* Finds workers that are slow by their own computing, from their reports of each step. */
#include "autodp/sampler.h"
#include "control/elastic/elastic.h"
#include "pipe/cost/plan.h"

#include "control/observe/slow.h"
#include "device/system/alloc.h"
#include "pipe/plan/migrate_schedule.h"

#include <inttypes.h>

enum { WINDOW = 50 }; /* steps over which compute times are compared */

/* A named worker has recovered only below this ratio, so that swings around the limit do not count.
 */
static const double RECOVERED = 1.0 + (FL_SLOW_RATIO - 1.0) / 2.0;

struct fl_stragglers {
    uint32_t generation; /* the generation of the sums */
    int named;           /* the worker named last, -1: none */
    int64_t n_named;     /* how often a worker was named */
    struct {
        int64_t n_steps, n_named;
        double own_us;
    } of[]; /* [n_workers] */
};

fl_status fl_stragglers_open(fl_elastic *elastic)
{
    fl_stragglers *s = NULL;
    size_t n = (size_t)elastic->run->n_workers;
    FL_TRY(fl_alloc(sizeof *s + n * sizeof s->of[0], (void **)&s));
    s->named = -1;
    elastic->stragglers = s;
    return FL_OK;
}

void fl_stragglers_close(fl_elastic *elastic)
{
    fl_free(elastic->stragglers);
    elastic->stragglers = NULL;
}

int fl_stragglers_named(const fl_elastic *elastic)
{
    return elastic->stragglers->named;
}

int64_t fl_stragglers_count(const fl_elastic *elastic)
{
    return elastic->stragglers->n_named;
}

static void restart_sums(const fl_elastic *elastic, fl_stragglers *s)
{
    for (int rank = 0; rank < elastic->run->n_workers; rank++) {
        s->of[rank].n_steps = 0;
        s->of[rank].own_us = 0.0;
    }
    s->generation = elastic->plan.generation;
}

static void report_worker(fl_elastic *elastic, const char *event, int rank, double slowness,
                          double own_us, double expected_us)
{
    fl_json *j = fl_event_log_begin(elastic->log, event);
    fl_json_integer(j, "rank", rank);
    fl_fields_host(j, elastic->run->hosts, rank);
    fl_json_rounded(j, "slowness", slowness, 3);
    fl_json_rounded(j, "own_ms", own_us * 1e-3, 3);
    fl_json_rounded(j, "expected_ms", expected_us * 1e-3, 3);
    fl_json_integer(j, "steps", WINDOW);
    fl_event_log_end(elastic->log);
}

/* A worker on a busy processor may be slow again and again: the terminal has the first time, and
 * the number at the end. */
static void note_slow(fl_elastic *elastic, int rank, double slowness)
{
    if (elastic->stragglers->of[rank].n_named++ == 0) {
        fl_progress_note(&elastic->log->progress,
                         "worker %d computes slowly: %.1f times as long as the others, measured by "
                         "its layers",
                         rank, slowness);
    }
}

void fl_stragglers_end(fl_elastic *elastic)
{
    for (int rank = 0; rank < elastic->run->n_workers; rank++) {
        int64_t n = elastic->stragglers->of[rank].n_named;
        if (n > 1) {
            fl_progress_note(&elastic->log->progress,
                             "worker %d computed slowly %" PRId64
                             " times; events.jsonl has each (worker.slow)",
                             rank, n);
        }
    }
}

/* own, expected  [n_workers] microseconds a step, 0 for a worker that does not train. */
static void judge_workers(fl_elastic *elastic, const double *own, const double *expected)
{
    fl_stragglers *s = elastic->stragglers;
    double slowness[FL_MAX_WORKERS];
    int slowest = fl_slow_find(own, expected, elastic->run->n_workers, slowness);
    int before = s->named;
    bool is_known = before >= 0 && slowness[before] > 0.0;
    if (is_known && slowest != before && slowness[before] < RECOVERED) {
        report_worker(elastic, "worker.recovered", before, slowness[before], own[before],
                      expected[before]);
    }
    /* Unknown: it does not train any more, or nobody is left to compare it with. */
    if (!is_known || slowness[before] < RECOVERED) {
        s->named = -1;
    }
    if (slowest >= 0 && slowest != before) {
        report_worker(elastic, "worker.slow", slowest, slowness[slowest], own[slowest],
                      expected[slowest]);
        note_slow(elastic, slowest, slowness[slowest]);
        s->named = slowest;
        s->n_named++;
    }
}

static bool is_full(const fl_elastic *elastic)
{
    for (int i = 0; i < elastic->plan.K * elastic->plan.R; i++) {
        if (elastic->stragglers->of[fl_plan_active(&elastic->plan, i)].n_steps < WINDOW) {
            return false;
        }
    }
    return true;
}

static void compare_workers(fl_elastic *elastic)
{
    const fl_plan_input *input = elastic->run->options->plan_input;
    const fl_plan *plan = &elastic->plan;
    fl_slow_layer layers[FL_MAX_LAYERS];
    double own[FL_MAX_WORKERS] = {0}, expected[FL_MAX_WORKERS] = {0};
    for (int i = 0; i < input->profile->n_layers; i++) {
        const fl_layer_cost *c = &input->profile->layer[i];
        layers[i] = (fl_slow_layer){c->fwd_us, c->bwd_us, c->fwd_call_us + c->bwd_call_us};
    }
    int n_frozen = fl_frozen_layers(input->model, plan->F);
    for (int i = 0; i < plan->K * plan->R; i++) {
        int rank = fl_plan_active(plan, i);
        own[rank] =
            elastic->stragglers->of[rank].own_us / (double)elastic->stragglers->of[rank].n_steps;
        expected[rank] = fl_slow_expected_us(plan, n_frozen, i % plan->K,
                                             fl_sampler_batch(elastic->run->options->job), layers);
    }
    judge_workers(elastic, own, expected);
}

void fl_stragglers_add(fl_elastic *elastic, int rank, const fl_time_report *report)
{
    fl_stragglers *s = elastic->stragglers;
    const fl_plan_input *input = elastic->run->options->plan_input;
    /* How much the cache saves a stage is unknown here, so only replicas with all layers compare
     * then. */
    bool spared = elastic->plan.F > 0 && elastic->plan.K > 1 &&
                  elastic->run->options->job->cache.policy != FL_CACHE_OFF;
    if (input == NULL || input->profile == NULL || spared) {
        return;
    }
    if (s->generation != elastic->plan.generation) {
        restart_sums(elastic, s);
    }
    s->of[rank].n_steps++;
    s->of[rank].own_us += (double)report->compute_us;
    if (is_full(elastic)) {
        compare_workers(elastic);
        restart_sums(elastic, s);
    }
}
