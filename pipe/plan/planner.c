/* Choosing a plan:
 *   1  refuse what the job asks for and cannot be         fl_plan_options_check
 *   2  list every K, R and M that may be                  fl_plan_options_list
 *   3  in the order of what each takes at least:          consider_all
 *      split the layers, under the budget                 split
 *      where there are few splits, take the best by step  polish
 *      price the step; keep the cheapest                  consider
 *   4  of the best K and R, the M that was tuned          prefer_tuned
 *   5  report them, cheapest first                        report
 */
#include "pipe/plan/planner.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/alloc.h"
#include "device/failure.h"
#include "device/plural.h"
#include "nn/model.h"
#include "pipe/cost/cost_model.h"
#include "pipe/cost/learn.h"
#include "pipe/plan/capacity.h"
#include "pipe/plan/migrate_schedule.h"
#include "pipe/plan/partition.h"
#include "pipe/plan/plan_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct planner {
    const fl_plan_input *input;
    int n_layers;
    fl_memory_table *memory; /* of a sample; where lengths differ: of the grid at work */
    fl_layer_memory *layers; /* [n_layers] of that grid */
    fl_cost_table *price;
    fl_plan_option *options;
    size_t n_options;
    fl_candidate *seen; /* [n_options + 1]: and the one that was tuned */
    int n_seen;
    fl_candidate best;
    int best_first[FL_MAX_STAGES + 1];
    fl_candidate smallest; /* of those that do not fit, the one whose largest stage is smallest */
} planner;

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* ---- 3: split and price ---- */

typedef struct fit_question {
    const planner *p;
    fl_grid grid;
    int64_t n_units;   /* a micro-batch is n_units times what p->memory holds */
    int64_t n_samples; /* of a micro-batch */
} fit_question;

/* Where samples differ in length, the largest micro-batch is known exactly only after all batches
 * of the run were split for this R and M. Bounds are quick, and enough for what fits anyway, or
 * never. */
typedef enum precision { AT_LEAST, AT_MOST, EXACTLY } precision;

static fl_status find_capacity(const planner *p, fl_grid grid, precision how, fl_capacity *capacity)
{
    fl_run_batches *batches = p->input->batches;
    return how == EXACTLY
               ? fl_capacity_of_grid(batches, grid.R, grid.M, capacity)
               : fl_capacity_bounds(batches, grid.R, grid.M, how == AT_LEAST ? capacity : NULL,
                                    how == AT_MOST ? capacity : NULL);
}

static fl_status ask(const planner *p, fl_grid grid, precision how, fit_question *q)
{
    const fl_plan_input *input = p->input;
    int64_t share = fl_split_work_max(fl_sampler_batch(input->job), grid.R);
    fl_capacity capacity;
    *q = (fit_question){.p = p, .grid = grid, .n_units = fl_split_work_max(share, grid.M)};
    q->n_samples = q->n_units;
    if (input->ragged == NULL) {
        return FL_OK;
    }
    FL_TRY(find_capacity(p, grid, how, &capacity));
    fl_memory_model_at(input->ragged, &capacity, p->layers);
    fl_memory_table_init(p->memory, input->model, input->job, p->layers,
                         fl_frozen_layers(input->model, input->F));
    q->n_units = 1;
    q->n_samples = fl_capacity_samples(&capacity);
    return FL_OK;
}

static int64_t stage_bytes(const fit_question *q, int stage, int first, int last,
                           fl_stage_memory *memory)
{
    fl_stage_place place = {.schedule = q->p->input->job->pipe.schedule,
                            .K = q->grid.K,
                            .M = q->grid.M,
                            .stage = stage,
                            .first = first,
                            .last = last};
    fl_memory_table_stage(q->p->memory, q->n_units, &place, memory);
    return memory->total_bytes;
}

static bool stage_fits(void *context, int stage, int first, int last)
{
    const fit_question *q = context;
    fl_stage_memory memory;
    return stage_bytes(q, stage, first, last, &memory) <= q->p->input->job->devices.memory_bytes;
}

static int64_t largest_stage(const fit_question *q, const int *first, int *stage)
{
    int64_t most = 0;
    for (int s = 0; s < q->grid.K; s++) {
        fl_stage_memory memory;
        int64_t bytes = stage_bytes(q, s, first[s], first[s + 1], &memory);
        if (bytes > most) {
            most = bytes;
            *stage = s;
        }
    }
    return most;
}

static fl_status split_greedy(const planner *p, int K, int *first)
{
    int64_t n_params[FL_MAX_LAYERS];
    bool frozen[FL_MAX_LAYERS];
    for (int i = 0; i < p->n_layers; i++) {
        n_params[i] = fl_model_layer_n_params(p->input->model, i);
        frozen[i] = fl_model_block_of(p->input->model, i) <= p->input->F;
    }
    return fl_partition_greedy(n_params, frozen, p->n_layers, K, first);
}

/* No split needs less than this for its largest stage: the stage that reads the samples needs room
 * for them and for the first layer, and all stages together for every layer once. */
static int64_t least_bytes(const fit_question *q)
{
    fl_stage_memory m;
    fl_stage_place all_layers = {
        .schedule = FL_1F1B, .K = 1, .M = 1, .first = 0, .last = q->p->n_layers};
    int64_t first = stage_bytes(q, 0, 0, 1, &m) - m.channel_bytes;
    fl_memory_table_stage(q->p->memory, q->n_units, &all_layers, &m);
    int64_t all = (m.params_bytes + m.slot_bytes) / q->grid.K;
    return first > all ? first : all;
}

static fl_status split_fast(const fit_question *q, int *first)
{
    const planner *p = q->p;
    double cost[FL_MAX_LAYERS];
    if (p->input->job->pipe.partition == FL_PARTITION_GREEDY) {
        return split_greedy(p, q->grid.K, first);
    }
    fl_cost_model_layers(p->price, q->grid, cost);
    return fl_partition_optimal(cost, p->n_layers, q->grid.K, NULL, NULL, first);
}

/* The fastest split, or, if that is over the budget, the fastest that is not. *bytes is what the
 * largest stage needs; with FL_EBUDGET, what it would need at least. */
static fl_status split(fit_question *q, int *first, int64_t *bytes)
{
    const planner *p = q->p;
    double cost[FL_MAX_LAYERS];
    int stage;
    *bytes = least_bytes(q);
    if (*bytes > p->input->job->devices.memory_bytes) {
        return fl_fail(FL_EBUDGET, "no split fits");
    }
    FL_TRY(split_fast(q, first));
    *bytes = largest_stage(q, first, &stage);
    if (*bytes <= p->input->job->devices.memory_bytes) {
        return FL_OK;
    }
    if (q->grid.K == 1 || p->input->job->pipe.partition == FL_PARTITION_GREEDY) {
        return fl_fail(FL_EBUDGET, "no split fits");
    }
    fl_cost_model_layers(p->price, q->grid, cost);
    FL_TRY(fl_partition_optimal(cost, p->n_layers, q->grid.K, stage_fits, q, first));
    *bytes = largest_stage(q, first, &stage);
    return FL_OK;
}

static void copy_cuts(int *to, const int *from, int K)
{
    for (int s = 0; s <= K; s++) {
        to[s] = from[s];
    }
}

/* Times are compared to the nanosecond: the same work added up in another order is no faster. */
static const double NANOSECOND_US = 1e-3;

/* Ties go to smaller K, then smaller M: the simpler plan. */
static bool is_better(const fl_candidate *a, const fl_candidate *b)
{
    double a_ns = rint(a->step_us / NANOSECOND_US), b_ns = rint(b->step_us / NANOSECOND_US);
    if (a_ns != b_ns) {
        return a_ns < b_ns;
    }
    fl_grid g = a->grid, h = b->grid;
    return g.K != h.K ? g.K < h.K : (g.M != h.M ? g.M < h.M : g.R < h.R);
}

/* ---- the best split by the whole step ---- */

/* The slowest stage decides most of a step, but not all of it: the pipeline fills and drains, and
 * gradients leave stage by stage. Where splits are few enough to look at each, that is done. */
enum { FEW_SPLITS = 128 };

static bool has_few_splits(const planner *p, int K)
{
    int64_t n = 1;
    for (int i = 1; i < K && n <= FEW_SPLITS; i++) {
        n = n * (p->n_layers - i) / i;
    }
    return n <= FEW_SPLITS && p->input->job->pipe.partition == FL_PARTITION_OPTIMAL;
}

typedef struct polishing {
    fit_question q;
    int cuts[FL_MAX_STAGES + 1];
    int *first; /* the best so far, */
    fl_candidate *best;
} polishing;

static void try_cuts(polishing *t, int stage)
{
    const planner *p = t->q.p;
    int K = t->q.grid.K, last = stage == K - 1 ? p->n_layers : p->n_layers - (K - 1 - stage);
    for (int end = stage == K - 1 ? last : t->cuts[stage] + 1; end <= last; end++) {
        t->cuts[stage + 1] = end;
        if (!stage_fits(&t->q, stage, t->cuts[stage], end)) {
            continue;
        }
        if (stage < K - 1) {
            try_cuts(t, stage + 1);
            continue;
        }
        fl_candidate c;
        fl_cost_model_price(p->price, t->q.grid, t->cuts, &c);
        if (c.step_us < t->best->step_us) {
            *t->best = c;
            copy_cuts(t->first, t->cuts, K);
        }
    }
}

/* c and first: those of the split with the fastest slowest stage, on the way in. */
static void polish(const fit_question *q, int *first, fl_candidate *c)
{
    if (q->grid.K > 1 && has_few_splits(q->p, q->grid.K)) {
        polishing t = {.q = *q, .first = first, .best = c};
        try_cuts(&t, 0);
    }
}

static fl_status split_with(const planner *p, fl_grid grid, precision how, fit_question *q,
                            int *first, int64_t *bytes)
{
    FL_TRY(ask(p, grid, how, q));
    return split(q, first, bytes);
}

static fl_status split_grid(const planner *p, fl_grid grid, fit_question *q, int *first,
                            int64_t *bytes)
{
    if (p->input->ragged == NULL) {
        return split_with(p, grid, EXACTLY, q, first, bytes);
    }
    fl_status status = split_with(p, grid, AT_MOST, q, first, bytes);
    if (status == FL_EBUDGET) {
        status = split_with(p, grid, AT_LEAST, q, first, bytes);
        status = status == FL_OK ? split_with(p, grid, EXACTLY, q, first, bytes) : status;
    }
    return status;
}

/* The best split of this K, R and M, its price and its memory. FL_EBUDGET is the candidate's. */
static fl_status look_at(const planner *p, fl_grid grid, int *first, fl_candidate *c)
{
    int64_t bytes = 0;
    fit_question q;
    *c = (fl_candidate){.grid = grid, .step_us = INFINITY};
    fl_status status = split_grid(p, grid, &q, first, &bytes);
    if (status != FL_OK && status != FL_EBUDGET) {
        return status;
    }
    if (status == FL_OK) {
        int stage;
        fl_cost_model_price(p->price, grid, first, c);
        polish(&q, first, c);
        bytes = largest_stage(&q, first, &stage);
    }
    c->memory_bytes = bytes;
    c->why_not = status;
    return FL_OK;
}

static void take(planner *p, const fl_candidate *c, const int *first)
{
    p->best = *c;
    copy_cuts(p->best_first, first, c->grid.K);
}

static fl_status consider(planner *p, fl_grid grid)
{
    int first[FL_MAX_STAGES + 1];
    fl_candidate *c = &p->seen[p->n_seen++];
    FL_TRY(look_at(p, grid, first, c));
    if (c->why_not == FL_OK && is_better(c, &p->best)) {
        take(p, c, first);
    }
    if (c->why_not != FL_OK && c->memory_bytes < p->smallest.memory_bytes) {
        p->smallest = *c;
    }
    return FL_OK;
}

/* What is left when the bound passes the best can only be worse; it is looked at only as far as
 * the caller has room for the report. */
static fl_status consider_all(planner *p, int capacity)
{
    FL_TRY(fl_alloc_array(p->n_options + 1, sizeof *p->seen, (void **)&p->seen));
    for (size_t i = 0; i < p->n_options; i++) {
        if (p->options[i].bound_us > p->best.step_us + NANOSECOND_US && p->n_seen >= capacity) {
            break;
        }
        FL_TRY(consider(p, p->options[i].grid));
    }
    return FL_OK;
}

/* The report always contains the chosen plan, even if it is not one of the options. */
static void note(planner *p, const fl_candidate *c)
{
    for (int i = 0; i < p->n_seen; i++) {
        if (fl_grid_is_same(p->seen[i].grid, c->grid)) {
            return;
        }
    }
    p->seen[p->n_seen++] = *c;
}

/* What was measured on live steps says more of M than a prediction does. */
static fl_status prefer_tuned(planner *p)
{
    const fl_job *job = p->input->job;
    const fl_tuned *t = fl_profile_tuned(p->input->profile, fl_sampler_batch(job), p->input->F,
                                         p->best.grid.K, p->best.grid.R);
    if (job->pipe.m != FL_JOB_AUTO || t == NULL || t->M == p->best.grid.M ||
        t->M < job->train.accumulate || t->M > fl_split_work_max(fl_sampler_batch(job), t->R)) {
        return FL_OK;
    }
    int first[FL_MAX_STAGES + 1];
    fl_candidate c;
    fl_grid tuned = {.F = t->F, .K = t->K, .R = t->R, .M = t->M};
    FL_TRY(look_at(p, tuned, first, &c));
    if (c.why_not == FL_OK) {
        take(p, &c, first);
        note(p, &c);
    }
    return FL_OK;
}

/* ---- 5: the answer ---- */

static const char *bytes_text(int64_t size_bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)size_bytes;
    size_t unit = 0;
    for (; value >= 1024.0 && unit + 1 < sizeof units / sizeof *units; unit++) {
        value /= 1024.0;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

/* The stage that is most over the budget in what comes nearest to it. */
static fl_status refuse(const planner *p)
{
    const fl_candidate *c = &p->smallest;
    int cuts[FL_MAX_STAGES + 1], s = 0;
    char text[7][32];
    fl_stage_memory m;
    char slots[FL_COUNT_BYTES];
    fit_question q;
    FL_TRY(ask(p, c->grid, EXACTLY, &q));
    FL_TRY(split_fast(&q, cuts));
    largest_stage(&q, cuts, &s);
    int first = cuts[s], last = cuts[s + 1];
    stage_bytes(&q, s, first, last, &m);
    return fl_fail_field(FL_EBUDGET, FL_FIELDS("devices.memory"),
                         "stage %d (layers %d .. %d) of K = %d, R = %d, M = %d needs %s: "
                         "parameters %s, activations %s (%s of %lld), temporaries %s, "
                         "messages %s, samples read ahead %s; a device has %s%s",
                         s, first, last - 1, c->grid.K, c->grid.R, c->grid.M,
                         bytes_text(m.total_bytes, text[0]), bytes_text(m.params_bytes, text[1]),
                         bytes_text(m.n_slots * m.slot_bytes, text[2]),
                         fl_count(m.n_slots, "micro-batch", slots), (long long)q.n_samples,
                         bytes_text(m.scratch_bytes, text[3]), bytes_text(m.channel_bytes, text[4]),
                         bytes_text(m.loader_bytes, text[5]),
                         bytes_text(p->input->job->devices.memory_bytes, text[6]),
                         p->n_options > 1 ? "; no other plan that is allowed fits either" : "");
}

static void fill_plan(const planner *p, fl_plan *plan)
{
    const fl_plan_input *input = p->input;
    *plan = (fl_plan){.generation = input->generation,
                      .F = input->F,
                      .K = p->best.grid.K,
                      .R = p->best.grid.R,
                      .M = p->best.grid.M,
                      .schedule = input->job->pipe.schedule,
                      .n_layers = p->n_layers,
                      .n_workers = input->n_workers,
                      .predicted_step_us = p->best.step_us,
                      .predicted_bubble = p->best.bubble};
    copy_cuts(plan->first, p->best_first, plan->K);
    for (int i = 0; i < plan->K * plan->R; i++) {
        plan->rank_of[i] = i;
    }
}

static int by_step(const void *a, const void *b)
{
    return is_better(a, b) ? -1 : (is_better(b, a) ? 1 : 0);
}

static void report(planner *p, fl_candidate *candidates, int capacity, int *n_candidates)
{
    qsort(p->seen, (size_t)p->n_seen, sizeof *p->seen, by_step);
    int n = smaller(p->n_seen, capacity);
    for (int i = 0; i < n; i++) {
        candidates[i] = p->seen[i];
    }
    if (n_candidates != NULL) {
        *n_candidates = n;
    }
}

static fl_status planner_init(planner *p, const fl_plan_input *input)
{
    *p = (planner){.input = input,
                   .n_layers = fl_model_n_layers(input->model),
                   .best = {.step_us = INFINITY, .grid.K = INT32_MAX},
                   .smallest = {.memory_bytes = INT64_MAX}};
    FL_TRY(fl_alloc(sizeof *p->memory, (void **)&p->memory));
    FL_TRY(fl_alloc(sizeof *p->price, (void **)&p->price));
    FL_TRY(fl_alloc_array((size_t)p->n_layers, sizeof *p->layers, (void **)&p->layers));
    fl_memory_table_init(p->memory, input->model, input->job, input->memory_one,
                         fl_frozen_layers(input->model, input->F));
    fl_cost_table_init(p->price, input);
    return FL_OK;
}

static void planner_fini(planner *p)
{
    fl_free(p->memory);
    fl_free(p->layers);
    fl_free(p->price);
    fl_free(p->options);
    fl_free(p->seen);
}

/* Of what was chosen, the memory is told exactly, not by the bound. */
static fl_status measure_chosen(planner *p)
{
    int stage;
    fit_question q;
    if (p->input->ragged == NULL) {
        return FL_OK;
    }
    FL_TRY(ask(p, p->best.grid, EXACTLY, &q));
    p->best.memory_bytes = largest_stage(&q, p->best_first, &stage);
    for (int i = 0; i < p->n_seen; i++) {
        if (fl_grid_is_same(p->seen[i].grid, p->best.grid)) {
            p->seen[i].memory_bytes = p->best.memory_bytes;
        }
    }
    return FL_OK;
}

static fl_status choose(planner *p, int capacity)
{
    FL_TRY(fl_plan_options_list(p->input, p->price, &p->options, &p->n_options));
    FL_TRY(consider_all(p, capacity));
    if (isinf(p->best.step_us)) {
        return refuse(p);
    }
    FL_TRY(prefer_tuned(p));
    return measure_chosen(p);
}

fl_status fl_plan_choose(const fl_plan_input *input, fl_plan *plan, fl_candidate *candidates,
                         int capacity, int *n_candidates)
{
    planner p;
    FL_TRY(fl_plan_options_check(input));
    fl_status status = planner_init(&p, input);
    status = status == FL_OK ? choose(&p, capacity) : status;
    if (status == FL_OK) {
        fill_plan(&p, plan);
        report(&p, candidates, capacity, n_candidates);
    }
    planner_fini(&p);
    return status;
}

static void scale_one(const fl_plan_input *input, const fl_plan *plan, int stage,
                      fl_layer_memory *scaled)
{
    int64_t n =
        fl_split_work_max(fl_split_work_max(fl_sampler_batch(input->job), plan->R), plan->M);
    for (int i = plan->first[stage]; i < plan->first[stage + 1]; i++) {
        const fl_layer_memory *one = &input->memory_one[i];
        scaled[i] = (fl_layer_memory){.n_samples = n * one->n_samples,
                                      .n_targets = n * one->n_targets,
                                      .kept_bytes = n * one->kept_bytes,
                                      .scratch_bytes = n * one->scratch_bytes,
                                      .in_bytes = n * one->in_bytes,
                                      .out_bytes = n * one->out_bytes,
                                      .frozen_kept_bytes = n * one->frozen_kept_bytes,
                                      .frozen_scratch_bytes = n * one->frozen_scratch_bytes};
    }
}

fl_status fl_plan_memory(const fl_plan_input *input, const fl_plan *plan, int stage,
                         fl_stage_memory *memory)
{
    fl_layer_memory layers[FL_MAX_LAYERS];
    fl_capacity capacity;
    int n_frozen = fl_frozen_layers(input->model, plan->F);
    fl_stage_place place = fl_plan_stage(plan, stage);
    if (input->ragged == NULL) {
        scale_one(input, plan, stage, layers);
    } else {
        FL_TRY(fl_capacity_of_plan(input->batches, plan, &capacity));
        fl_memory_model_at(input->ragged, &capacity, layers);
    }
    fl_memory_stage(input->model, input->job, layers, n_frozen, &place, memory);
    return FL_OK;
}

/* The largest stage of a given plan. */
static fl_status plan_bytes(const fl_plan_input *input, const fl_plan *plan, int64_t *most)
{
    *most = 0;
    for (int s = 0; s < plan->K; s++) {
        fl_stage_memory memory;
        FL_TRY(fl_plan_memory(input, plan, s, &memory));
        *most = memory.total_bytes > *most ? memory.total_bytes : *most;
    }
    return FL_OK;
}

double fl_plan_predict(const fl_plan_input *input, const fl_plan *plan, fl_candidate *detail)
{
    fl_cost_table price;
    fl_candidate c;
    fl_cost_table_init(&price, input);
    fl_cost_model_price(&price, fl_plan_grid(plan), plan->first, &c);
    if (detail != NULL) {
        *detail = c;
        detail->why_not = plan_bytes(input, plan, &detail->memory_bytes);
        if (detail->memory_bytes > input->job->devices.memory_bytes) {
            detail->why_not = FL_EBUDGET;
        }
    }
    return c.step_us;
}
