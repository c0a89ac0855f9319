#include "pipe/plan/stage_split.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "nn/model.h"
#include "pipe/plan/batch/capacity.h"
#include "pipe/plan/partition.h"

#include <string.h>

/* ---- devices ---- */

static void init_stage(fl_stage_split *q, int stage)
{
    const fl_plan_input *input = q->tables->input;
    const fl_cluster *c = input->cluster;
    q->budget_bytes[stage] = input->job->devices.memory_bytes;
    double slowest = 0.0;
    q->slowness[stage] = 1.0;
    q->kind[stage] = 0;
    for (int r = 0; r < q->grid.R && c != NULL; r++) {
        int d = q->device_of[r * q->grid.K + stage];
        int64_t bytes = fl_cluster_memory(c, input->job, d);
        double slowness = 1.0 / fl_cluster_speed(c, d);
        bool is_least = r == 0 || bytes < q->budget_bytes[stage];
        bool is_slowest = slowness > slowest;
        slowest = is_slowest ? slowness : slowest;
        q->budget_bytes[stage] = is_least ? bytes : q->budget_bytes[stage];
        q->slowness[stage] = is_slowest ? 1.0 / c->speed[d] : q->slowness[stage];
        q->kind[stage] = is_slowest ? c->kind_of[d] : q->kind[stage];
    }
}

void fl_stage_split_init(fl_stage_split *q, const fl_stage_split_tables *tables, fl_grid grid,
                         const int *device_of)
{
    q->tables = tables;
    q->grid = grid;
    q->device_of = device_of;
    q->n_units = q->n_samples = 0;
    for (int s = 0; s < grid.K; s++) {
        init_stage(q, s);
    }
}

bool fl_stage_split_is_same(const fl_stage_split *a, const fl_stage_split *b)
{
    size_t n = (size_t)a->grid.K;
    return fl_grid_is_same(a->grid, b->grid) &&
           memcmp(a->budget_bytes, b->budget_bytes, n * sizeof *a->budget_bytes) == 0 &&
           memcmp(a->slowness, b->slowness, n * sizeof *a->slowness) == 0 &&
           memcmp(a->kind, b->kind, n * sizeof *a->kind) == 0;
}

/* ---- memory ---- */

static fl_status find_capacity(const fl_stage_split *q, fl_stage_split_precision how,
                               fl_capacity *capacity)
{
    fl_run_batches *batches = q->tables->input->batches;
    return how == FL_SPLIT_EXACTLY ? fl_capacity_of_grid(batches, q->grid.R, q->grid.M, capacity)
                                   : fl_capacity_bounds(batches, q->grid.R, q->grid.M,
                                                        how == FL_SPLIT_AT_LEAST ? capacity : NULL,
                                                        how == FL_SPLIT_AT_MOST ? capacity : NULL);
}

fl_status fl_stage_split_measure(fl_stage_split *q, fl_stage_split_precision precision)
{
    const fl_stage_split_tables *t = q->tables;
    const fl_plan_input *input = t->input;
    int64_t share = fl_split_work_max(fl_sampler_batch(input->job), q->grid.R);
    fl_capacity capacity;
    q->n_samples = q->n_units = fl_split_work_max(share, q->grid.M);
    if (input->ragged == NULL) {
        return FL_OK;
    }
    FL_TRY(find_capacity(q, precision, &capacity));
    fl_memory_model_at(input->ragged, &capacity, t->layers);
    fl_memory_table_init(t->memory, input->model, input->job, t->layers,
                         fl_frozen_layers(input->model, input->F));
    t->memory->graph_bytes = input->profile->graph_layer_bytes;
    q->n_units = 1;
    q->n_samples = fl_capacity_samples(&capacity);
    return FL_OK;
}

int64_t fl_stage_split_bytes(const fl_stage_split *q, int stage, int first, int last,
                             fl_stage_memory *memory)
{
    fl_stage_place place = {.schedule = q->tables->input->job->pipe.schedule,
                            .K = q->grid.K,
                            .M = q->grid.M,
                            .stage = stage,
                            .first = first,
                            .last = last};
    fl_memory_table_stage(q->tables->memory, q->n_units, &place, memory);
    return memory->total_bytes;
}

static bool stage_fits(void *context, int stage, int first, int last)
{
    const fl_stage_split *q = context;
    fl_stage_memory memory;
    return fl_stage_split_bytes(q, stage, first, last, &memory) <= q->budget_bytes[stage];
}

bool fl_stage_split_fits(const fl_stage_split *q, const int *first, int *stage, int64_t *bytes)
{
    bool fits = true;
    int64_t most = 0, worst = INT64_MIN;
    *stage = 0;
    for (int s = 0; s < q->grid.K; s++) {
        fl_stage_memory memory;
        int64_t needed = fl_stage_split_bytes(q, s, first[s], first[s + 1], &memory);
        int64_t beyond = needed - q->budget_bytes[s];
        fits = fits && beyond <= 0;
        most = needed > most ? needed : most;
        *stage = beyond > worst ? s : *stage;
        worst = beyond > worst ? beyond : worst;
    }
    *bytes = most;
    return fits;
}

/* No split needs less than this for its largest stage: the stage that reads the samples needs room
 * for them and for the first layer, and all stages together for every layer once. */
static int64_t least_bytes(const fl_stage_split *q)
{
    fl_stage_memory m;
    fl_stage_place all_layers = {
        .schedule = FL_1F1B, .K = 1, .M = 1, .first = 0, .last = q->tables->n_layers};
    int64_t first = fl_stage_split_bytes(q, 0, 0, 1, &m) - m.channel_bytes;
    fl_memory_table_stage(q->tables->memory, q->n_units, &all_layers, &m);
    int64_t all = (m.params_bytes + m.slot_bytes) / q->grid.K;
    return first > all ? first : all;
}

static int64_t largest_budget(const fl_stage_split *q)
{
    int64_t most = 0;
    for (int s = 0; s < q->grid.K; s++) {
        most = q->budget_bytes[s] > most ? q->budget_bytes[s] : most;
    }
    return most;
}

/* ---- cuts ---- */

static fl_status split_greedy(const fl_stage_split *q, int *first)
{
    int64_t n_params[FL_MAX_LAYERS];
    bool frozen[FL_MAX_LAYERS];
    const fl_plan_input *input = q->tables->input;
    for (int i = 0; i < q->tables->n_layers; i++) {
        n_params[i] = fl_model_layer_n_params(input->model, i);
        frozen[i] = fl_model_block_of(input->model, i) <= input->F;
    }
    return fl_partition_greedy(n_params, frozen, q->tables->n_layers, q->grid.K, first);
}

static fl_status split_optimal(const fl_stage_split *q, fl_stage_fits *fits, int *first)
{
    double cost[(1 + FL_KINDS_MAX) * FL_MAX_LAYERS];
    const fl_cluster *c = q->tables->input->cluster;
    int n_layers = q->tables->n_layers, n_kinds = 1 + (c == NULL ? 0 : c->n_kinds);
    for (int kind = 0; kind < n_kinds; kind++) {
        fl_cost_model_layers_of(q->tables->price, kind, q->grid, cost + kind * n_layers);
    }
    const fl_stage_costs costs = {.n_layers = n_layers,
                                  .n_kinds = n_kinds,
                                  .cost = cost,
                                  .kind = q->kind,
                                  .slowness = q->slowness};
    return fl_partition_on(&costs, q->grid.K, fits, (void *)q, first);
}

fl_status fl_stage_split_fast(const fl_stage_split *q, int *first)
{
    return q->tables->input->job->pipe.partition == FL_PARTITION_GREEDY
               ? split_greedy(q, first)
               : split_optimal(q, NULL, first);
}

/* The fastest split, or, if that is over the budget, the fastest that is not. */
static fl_status choose_measured(fl_stage_split *q, int *first, int64_t *bytes)
{
    int stage;
    *bytes = least_bytes(q);
    if (*bytes > largest_budget(q)) {
        return fl_fail(FL_EBUDGET, "no split fits");
    }
    FL_TRY(fl_stage_split_fast(q, first));
    if (fl_stage_split_fits(q, first, &stage, bytes)) {
        return FL_OK;
    }
    if (q->grid.K == 1 || q->tables->input->job->pipe.partition == FL_PARTITION_GREEDY) {
        return fl_fail(FL_EBUDGET, "no split fits");
    }
    FL_TRY(split_optimal(q, stage_fits, first));
    (void)fl_stage_split_fits(q, first, &stage, bytes);
    return FL_OK;
}

static fl_status choose_at(fl_stage_split *q, fl_stage_split_precision how, int *first,
                           int64_t *bytes)
{
    FL_TRY(fl_stage_split_measure(q, how));
    return choose_measured(q, first, bytes);
}

fl_status fl_stage_split_choose(fl_stage_split *q, int *first, int64_t *bytes)
{
    if (q->tables->input->ragged == NULL) {
        return choose_at(q, FL_SPLIT_EXACTLY, first, bytes);
    }
    fl_status status = choose_at(q, FL_SPLIT_AT_MOST, first, bytes);
    if (status == FL_EBUDGET) {
        status = choose_at(q, FL_SPLIT_AT_LEAST, first, bytes);
        status = status == FL_OK ? choose_at(q, FL_SPLIT_EXACTLY, first, bytes) : status;
    }
    return status;
}

/* ---- the best split by the whole step ---- */

enum { FEW_SPLITS = 128 };

static bool has_few_splits(const fl_stage_split *q)
{
    int64_t n = 1;
    for (int i = 1; i < q->grid.K && n <= FEW_SPLITS; i++) {
        n = n * (q->tables->n_layers - i) / i;
    }
    return n <= FEW_SPLITS && q->tables->input->job->pipe.partition == FL_PARTITION_OPTIMAL;
}

typedef struct polishing {
    const fl_stage_split *q;
    int cuts[FL_MAX_STAGES + 1];
    int *first; /* the best so far, */
    fl_candidate *best;
} polishing;

static void try_cuts(polishing *t, int stage)
{
    const fl_stage_split *q = t->q;
    int K = q->grid.K, n_layers = q->tables->n_layers;
    int last = stage == K - 1 ? n_layers : n_layers - (K - 1 - stage);
    for (int end = stage == K - 1 ? last : t->cuts[stage] + 1; end <= last; end++) {
        t->cuts[stage + 1] = end;
        if (!stage_fits((void *)q, stage, t->cuts[stage], end)) {
            continue;
        }
        if (stage < K - 1) {
            try_cuts(t, stage + 1);
            continue;
        }
        fl_candidate c;
        fl_cost_model_price(q->tables->price, q->grid, t->cuts, q->device_of, &c);
        if (c.step_us < t->best->step_us) {
            *t->best = c;
            memcpy(t->first, t->cuts, (size_t)(K + 1) * sizeof *t->cuts);
        }
    }
}

void fl_stage_split_polish(const fl_stage_split *q, int *first, fl_candidate *best)
{
    if (q->grid.K > 1 && has_few_splits(q)) {
        polishing t = {.q = q, .first = first, .best = best};
        try_cuts(&t, 0);
    }
}
