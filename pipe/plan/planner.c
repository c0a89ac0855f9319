/* Choosing a plan:
 *   1  refuse what the job asks for and cannot be         fl_plan_options_check
 *   2  list every K, R and M that may be                  fl_plan_options_list
 *   3  in the order of what each takes at least:          consider_all
 *      lay it out on the devices in several ways,         fl_layouts_next
 *      split the layers, under the budget                 fl_stage_split_choose
 *      where there are few splits, take the best by step  fl_stage_split_polish
 *      price the step; keep the cheapest                  consider
 *   4  of the best K and R, the M that was tuned          prefer_tuned
 *   5  report them, cheapest first                        report
 */
#include "pipe/plan/planner.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "nn/model.h"
#include "pipe/cost/time/cost_model.h"
#include "pipe/cost/time/learn.h"
#include "pipe/plan/batch/capacity.h"
#include "pipe/plan/layouts.h"
#include "pipe/plan/plan_options.h"
#include "pipe/plan/stage_split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A candidate with its cuts and places. */
typedef struct placed_plan {
    fl_candidate c;
    int first[FL_MAX_STAGES + 1];
    int device_of[FL_MAX_WORKERS]; /* [R * K] */
} placed_plan;

typedef struct planner {
    const fl_plan_input *input;
    fl_stage_split_tables tables;
    fl_layout_hosts *hosts; /* NULL: no cluster */
    fl_plan_option *options;
    size_t n_options;
    fl_candidate *seen; /* [n_options + 1]: and the one that was tuned */
    int n_seen;
    placed_plan best;
    fl_candidate smallest; /* of those that do not fit, the one whose largest stage is smallest */
} planner;

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* ---- 3: split and price ---- */

static void copy_ints(int *to, const int *from, int n)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
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

static void take(placed_plan *to, const placed_plan *from)
{
    int K = from->c.grid.K, n = K * from->c.grid.R;
    to->c = from->c;
    copy_ints(to->first, from->first, K + 1);
    copy_ints(to->device_of, from->device_of, n);
}

/* A layout of one K, R and M. Its cuts are those of the layout before where the stages' devices
 * have the same memory and speed. */
typedef struct trial {
    fl_stage_split split;
    int first[FL_MAX_STAGES + 1];
    int64_t bytes;
    fl_status status;
} trial;

static void split_layout(const planner *p, fl_grid grid, const int *device_of, trial *t)
{
    fl_stage_split split;
    fl_stage_split_init(&split, &p->tables, grid, device_of);
    if (t->split.tables != NULL && fl_stage_split_is_same(&split, &t->split)) {
        t->split.device_of = device_of;
        return;
    }
    t->split = split;
    t->status = fl_stage_split_choose(&t->split, t->first, &t->bytes);
}

/* The price of the layout, and its memory. FL_EBUDGET is the candidate's. */
static fl_status price_layout(const planner *p, fl_grid grid, trial *t, placed_plan *f)
{
    split_layout(p, grid, f->device_of, t);
    f->c = (fl_candidate){.grid = grid, .step_us = INFINITY};
    if (t->status != FL_OK && t->status != FL_EBUDGET) {
        return t->status;
    }
    f->c.memory_bytes = t->bytes;
    f->c.why_not = t->status;
    if (t->status == FL_OK) {
        int stage;
        copy_ints(f->first, t->first, grid.K + 1);
        fl_cost_model_price(p->tables.price, grid, f->first, f->device_of, &f->c);
        fl_stage_split_polish(&t->split, f->first, &f->c);
        (void)fl_stage_split_fits(&t->split, f->first, &stage, &f->c.memory_bytes);
    }
    return FL_OK;
}

/* A plan that fits is better than one that does not; of those, the one that needs less is. */
static bool is_better_layout(const placed_plan *a, const placed_plan *b)
{
    return a->c.why_not == FL_OK || b->c.why_not == FL_OK
               ? a->c.step_us < b->c.step_us - NANOSECOND_US
               : a->c.memory_bytes < b->c.memory_bytes;
}

/* With hosts the bound is far below what most K, R and M take. Where there are many of them, those
 * whose estimate is well above the best are left out, and the search has an end. */
enum { MANY_OPTIONS = 2048, MOST_LOOKS = 64 };
static const double WELL_ABOVE = 1.15;

/* Whether what a layout computes is already more than the best takes: another layout of the same
 * K, R and M only changes the rest. */
static bool is_hopeless(const planner *p, const fl_candidate *c)
{
    return p->n_options > MANY_OPTIONS && c->step_us - c->reduce_us > p->best.c.step_us;
}

/* The best layout and split of this K, R and M. Where the bound says that it cannot be chosen, the
 * first layout that fits is enough for the report. */
static fl_status look_at(const planner *p, fl_grid grid, double bound_us, placed_plan *f)
{
    trial t = {.split.tables = NULL};
    if (p->hosts == NULL) {
        return price_layout(p, grid, &t, f);
    }
    placed_plan other;
    fl_layouts layouts;
    fl_layouts_init(&layouts, p->hosts, grid.K, grid.R);
    bool has_first = fl_layouts_next(&layouts, f->device_of);
    FL_TRY(price_layout(p, grid, &t, f));
    bool is_lost = f->c.why_not == FL_OK &&
                   (bound_us > p->best.c.step_us + NANOSECOND_US || is_hopeless(p, &f->c));
    while (has_first && !is_lost && fl_layouts_next(&layouts, other.device_of)) {
        FL_TRY(price_layout(p, grid, &t, &other));
        if (is_better_layout(&other, f)) {
            take(f, &other);
        }
    }
    return FL_OK;
}

static fl_status consider(planner *p, const fl_plan_option *option)
{
    placed_plan f;
    FL_TRY(look_at(p, option->grid, option->bound_us, &f));
    p->seen[p->n_seen++] = f.c;
    if (f.c.why_not == FL_OK && is_better(&f.c, &p->best.c)) {
        take(&p->best, &f);
    }
    if (f.c.why_not != FL_OK && f.c.memory_bytes < p->smallest.memory_bytes) {
        p->smallest = f.c;
    }
    return FL_OK;
}

static bool is_enough(const planner *p, const fl_plan_option *option)
{
    bool found_one = !isinf(p->best.c.step_us);
    return p->hosts != NULL && p->n_options > MANY_OPTIONS && found_one &&
           (p->n_seen >= MOST_LOOKS || option->estimate_us > WELL_ABOVE * p->best.c.step_us);
}

/* What is left when the bound passes the best can only be worse; it is looked at only as far as
 * the caller has room for the report. With a cluster, options do not rise by their bound. */
static fl_status consider_all(planner *p, int capacity)
{
    FL_TRY(fl_alloc_array(p->n_options + 1, sizeof *p->seen, (void **)&p->seen));
    for (size_t i = 0; i < p->n_options; i++) {
        const fl_plan_option *option = &p->options[i];
        bool is_worse =
            option->bound_us > p->best.c.step_us + NANOSECOND_US && p->n_seen >= capacity;
        if (is_enough(p, option) || (is_worse && p->hosts == NULL)) {
            break;
        }
        if (!is_worse) {
            FL_TRY(consider(p, option));
        }
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
                                         p->best.c.grid.K, p->best.c.grid.R);
    if (job->pipe.m != FL_JOB_AUTO || t == NULL || t->M == p->best.c.grid.M ||
        t->M < job->train.accumulate || t->M > fl_split_work_max(fl_sampler_batch(job), t->R)) {
        return FL_OK;
    }
    placed_plan f;
    fl_grid tuned = {.F = t->F, .K = t->K, .R = t->R, .M = t->M};
    FL_TRY(look_at(p, tuned, 0.0, &f));
    if (f.c.why_not == FL_OK) {
        take(&p->best, &f);
        note(p, &f.c);
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
    int cuts[FL_MAX_STAGES + 1], device_of[FL_MAX_WORKERS], s = 0;
    int64_t bytes;
    char text[7][32];
    fl_stage_memory m;
    char slots[FL_COUNT_BYTES];
    fl_stage_split q;
    if (p->hosts != NULL) {
        fl_layouts layouts;
        fl_layouts_init(&layouts, p->hosts, c->grid.K, c->grid.R);
        (void)fl_layouts_next(&layouts, device_of);
    }
    fl_stage_split_init(&q, &p->tables, c->grid, device_of);
    FL_TRY(fl_stage_split_measure(&q, FL_SPLIT_EXACTLY));
    FL_TRY(fl_stage_split_fast(&q, cuts));
    (void)fl_stage_split_fits(&q, cuts, &s, &bytes);
    int first = cuts[s], last = cuts[s + 1];
    fl_stage_split_bytes(&q, s, first, last, &m);
    return fl_fail_field(
        FL_EBUDGET, FL_FIELDS("devices.memory"),
        "stage %d (layers %d .. %d) of K = %d, R = %d, M = %d needs %s: "
        "parameters %s, activations %s (%s of %lld), temporaries %s, "
        "messages %s, samples read ahead %s; a device has %s%s",
        s, first, last - 1, c->grid.K, c->grid.R, c->grid.M, bytes_text(m.total_bytes, text[0]),
        bytes_text(m.params_bytes, text[1]), bytes_text(m.n_slots * m.slot_bytes, text[2]),
        fl_count(m.n_slots, "micro-batch", slots), (long long)q.n_samples,
        bytes_text(m.scratch_bytes, text[3]), bytes_text(m.channel_bytes, text[4]),
        bytes_text(m.loader_bytes, text[5]), bytes_text(q.budget_bytes[s], text[6]),
        p->n_options > 1 ? "; no other plan that is allowed fits either" : "");
}

static void fill_plan(const planner *p, fl_plan *plan)
{
    const fl_plan_input *input = p->input;
    *plan = (fl_plan){.generation = input->generation,
                      .F = input->F,
                      .K = p->best.c.grid.K,
                      .R = p->best.c.grid.R,
                      .M = p->best.c.grid.M,
                      .schedule = input->job->pipe.schedule,
                      .n_layers = p->tables.n_layers,
                      .n_workers = input->n_workers,
                      .predicted_step_us = p->best.c.step_us,
                      .predicted_bubble = p->best.c.bubble};
    copy_ints(plan->first, p->best.first, plan->K + 1);
    for (int i = 0; i < plan->K * plan->R; i++) {
        plan->rank_of[i] = p->hosts == NULL ? i : p->best.device_of[i];
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

static fl_status tables_init(fl_stage_split_tables *t, const fl_plan_input *input)
{
    *t = (fl_stage_split_tables){.input = input, .n_layers = fl_model_n_layers(input->model)};
    FL_TRY(fl_alloc(sizeof *t->memory, (void **)&t->memory));
    FL_TRY(fl_alloc(sizeof *t->price, (void **)&t->price));
    FL_TRY(fl_alloc_array((size_t)t->n_layers, sizeof *t->layers, (void **)&t->layers));
    fl_memory_table_init(t->memory, input->model, input->job, input->memory_one,
                         fl_frozen_layers(input->model, input->F));
    t->memory->graph_bytes = input->profile->graph_layer_bytes;
    fl_cost_table_init(t->price, input);
    return FL_OK;
}

static fl_status planner_init(planner *p, const fl_plan_input *input)
{
    *p = (planner){.input = input,
                   .best.c = {.step_us = INFINITY, .grid.K = INT32_MAX},
                   .smallest = {.memory_bytes = INT64_MAX}};
    FL_TRY(tables_init(&p->tables, input));
    if (input->cluster != NULL) {
        FL_TRY(fl_alloc(sizeof *p->hosts, (void **)&p->hosts));
        fl_layout_hosts_init(p->hosts, input->cluster);
    }
    return FL_OK;
}

static void planner_fini(planner *p)
{
    fl_free(p->tables.memory);
    fl_free(p->tables.layers);
    fl_free(p->tables.price);
    fl_free(p->hosts);
    fl_free(p->options);
    fl_free(p->seen);
}

/* Of what was chosen, the memory is told exactly, not by the bound. */
static fl_status measure_chosen(planner *p)
{
    int stage;
    fl_stage_split q;
    if (p->input->ragged == NULL) {
        return FL_OK;
    }
    fl_stage_split_init(&q, &p->tables, p->best.c.grid, p->best.device_of);
    FL_TRY(fl_stage_split_measure(&q, FL_SPLIT_EXACTLY));
    (void)fl_stage_split_fits(&q, p->best.first, &stage, &p->best.c.memory_bytes);
    for (int i = 0; i < p->n_seen; i++) {
        if (fl_grid_is_same(p->seen[i].grid, p->best.c.grid)) {
            p->seen[i].memory_bytes = p->best.c.memory_bytes;
        }
    }
    return FL_OK;
}

static fl_status choose(planner *p, int capacity)
{
    FL_TRY(fl_plan_options_list(p->input, p->tables.price, &p->options, &p->n_options));
    FL_TRY(consider_all(p, capacity));
    if (isinf(p->best.c.step_us)) {
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
    layers[place.first].graph_bytes =
        input->profile == NULL ? 0 : input->profile->graph_layer_bytes;
    fl_memory_stage(input->model, input->job, layers, n_frozen, &place, memory);
    return FL_OK;
}

/* The largest stage of a given plan. FL_EBUDGET: some device has not the memory for its stage. */
static fl_status check_bytes(const fl_plan_input *input, const fl_plan *plan, int64_t *most)
{
    bool fits = true;
    *most = 0;
    for (int s = 0; s < plan->K; s++) {
        fl_stage_memory memory;
        FL_TRY(fl_plan_memory(input, plan, s, &memory));
        *most = memory.total_bytes > *most ? memory.total_bytes : *most;
        for (int r = 0; r < plan->R; r++) {
            int rank = plan->rank_of[r * plan->K + s];
            fits =
                fits && memory.total_bytes <= fl_cluster_memory(input->cluster, input->job, rank);
        }
    }
    return fits ? FL_OK : FL_EBUDGET;
}

double fl_plan_predict(const fl_plan_input *input, const fl_plan *plan, fl_candidate *detail)
{
    fl_cost_table price;
    fl_candidate c;
    fl_cost_table_init(&price, input);
    fl_cost_model_price(&price, fl_plan_grid(plan), plan->first, plan->rank_of, &c);
    if (detail != NULL) {
        *detail = c;
        detail->why_not = check_bytes(input, plan, &detail->memory_bytes);
    }
    return c.step_us;
}
