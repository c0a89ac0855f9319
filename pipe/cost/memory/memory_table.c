/* Composes what a stage needs from sums and maxima over its layers: once by walking them, once from
 * a table that answers for any run of layers in O(1). */
#include "device/device.h"
#include "nn/optimizer.h"
#include "pipe/cost/layout.h"
#include "pipe/cost/memory/batch_tables.h"
#include "pipe/cost/memory/memory.h"
#include "pipe/cost/schedule.h"

enum { PIECE_BYTES = 64 }; /* what an arena rounds to */

/* A run of layers, for one unit of samples. Of the trainable ones: n_trainable, n_grad, out_max. */
typedef struct layers {
    int64_t n_weights, n_trainable, n_grad, kept_bytes, in_bytes, out_bytes, out_max, scratch_max;
    int64_t n_samples, n_targets, graph_bytes;
    int64_t frozen_out_max; /* of the frozen ones, when the frost line lies inside; else 0 */
    int64_t frozen_out;     /* the same of the last of them: what the cache keeps */
    int64_t in_ahead_bytes, frozen_out_ahead_max; /* the same of what is read ahead */
    bool trains, trains_below;                    /* some layer of the run; some layer below it */
} layers;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t rounded(int64_t size_bytes)
{
    return (size_bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
}

/* Samples, or outputs of frozen layers, for the step at work and the one after it. */
static int64_t ahead_bytes(const layers *l, int64_t n, const fl_job *job, int M)
{
    bool cached = job->cache.policy != FL_CACHE_OFF;
    if (l->in_ahead_bytes > 0) {
        return n * larger(l->in_ahead_bytes, cached ? l->frozen_out_ahead_max : 0);
    }
    return 2 * M * n * larger(l->in_bytes, cached ? l->frozen_out_max : 0);
}

/* A first stage with the frost line inside may fill its frozen layers apart from the others. */
static int64_t tables_bytes(const layers *l, int64_t n, const fl_job *job,
                            const fl_stage_place *place, int64_t n_slots)
{
    bool is_last = place->stage == place->K - 1;
    int n_layers = place->last - place->first;
    int n_filled = place->stage == 0 && l->frozen_out_max > 0 ? n_layers : 0;
    fl_tables_size size = {.n_boundaries = n_layers + 1,
                           .samples = n * l->n_samples,
                           .has_targets = is_last,
                           .targets = is_last ? n * l->n_targets : 0};
    return fl_device_kind_has_host_memory(job->devices.kind)
               ? 0
               : (int64_t)fl_stage_tables_bytes(&size, (int)n_slots, n_filled);
}

/* The cache of a first stage with the frost line inside: pipe/step/input/cache_tiers.h. */
static void count_cache(const layers *l, int64_t n, const fl_job *job, const fl_stage_place *place,
                        fl_stage_memory *out)
{
    bool used = place->stage == 0 && l->frozen_out > 0 && job->cache.policy != FL_CACHE_OFF &&
                !fl_device_kind_has_host_memory(job->devices.kind);
    out->window_bytes = used ? n * l->frozen_out : 0;
    out->tier_bytes = used ? job->cache.device_bytes : 0;
}

/* A GPU's products in bf16 read bf16 copies of weights and biases. */
static int64_t copies_bytes(const layers *l, const fl_job *job)
{
    bool copied = job->devices.kind == FL_DEVICE_CUDA && job->train.precision == FL_PRECISION_BF16;
    return copied ? (int64_t)fl_dtype_size(FL_BF16) * l->n_weights : 0;
}

/* Captured work lies outside the budget, where there is room for some of it. */
static int64_t graphs_bytes(const layers *l, const fl_job *job, const fl_stage_place *place,
                            int64_t n_slots)
{
    int64_t all = (place->last - place->first) * n_slots * l->graph_bytes;
    bool captured = job->devices.kind == FL_DEVICE_CUDA;
    return captured ? larger(0, all - FL_DEVICE_GRAPH_ROOM_BYTES) : 0;
}

/* n: how many units of samples a micro-batch has. */
static void compose(const layers *l, int64_t n, const fl_job *job, const fl_stage_place *place,
                    fl_stage_memory *out)
{
    bool is_first = place->stage == 0, is_last = place->stage == place->K - 1;
    int64_t in = n * l->in_bytes;
    /* No layer needs the gradient of raw input, or a gradient below the frost line. */
    int64_t boundary = n * (l->trains_below ? larger(l->out_max, l->in_bytes) : l->out_max);
    int64_t n_moments = fl_optimizer_n_moments(job->train.optimizer);
    out->params_bytes = 4 * (l->n_weights + l->n_grad + n_moments * l->n_trainable);
    out->slot_bytes = rounded(in) + n * l->kept_bytes;
    out->n_slots = fl_schedule_in_flight(place->schedule, place->K, place->M, place->stage);
    out->scratch_bytes = 2 * rounded(boundary) + n * l->scratch_max;
    /* Each cut has one channel up and, if something below it trains, one down. A sender has one
     * buffer more than messages are in flight. */
    int64_t receiving = FL_QUEUE_DEPTH, sending = FL_QUEUE_DEPTH + 1;
    int64_t below = is_first ? 0 : receiving + (l->trains_below ? sending : 0);
    int64_t above = is_last ? 0 : sending + (l->trains ? receiving : 0);
    out->channel_bytes = below * in + above * n * l->out_bytes;
    out->loader_bytes = is_first ? ahead_bytes(l, n, job, place->M) : 0;
    out->tables_bytes = tables_bytes(l, n, job, place, out->n_slots);
    out->copies_bytes = copies_bytes(l, job);
    out->graphs_bytes = graphs_bytes(l, job, place, out->n_slots);
    count_cache(l, n, job, place, out);
    out->in_bytes = in;
    out->out_bytes = n * l->out_bytes;
    out->grad_bytes = boundary;
    out->total_bytes = out->params_bytes + out->n_slots * out->slot_bytes + out->scratch_bytes +
                       out->channel_bytes + out->loader_bytes + out->tables_bytes +
                       out->copies_bytes + out->window_bytes + out->tier_bytes + out->graphs_bytes;
}

fl_stage_place fl_plan_stage(const fl_plan *plan, int stage)
{
    return (fl_stage_place){.schedule = plan->schedule,
                            .K = plan->K,
                            .M = plan->M,
                            .stage = stage,
                            .first = plan->first[stage],
                            .last = plan->first[stage + 1]};
}

/* Where the trainable layers of a run begin. */
static int trainable_from(int n_frozen, int first, int last)
{
    return n_frozen < first ? first : (n_frozen < last ? n_frozen : last);
}

void fl_memory_stage(const fl_model *model, const fl_job *job, const fl_layer_memory *memory,
                     int n_frozen, const fl_stage_place *place, fl_stage_memory *out)
{
    int first = place->first, last = place->last;
    int trainable = trainable_from(n_frozen, first, last);
    layers l = {.n_weights = fl_layout_count(model, first, last),
                .n_trainable = fl_layout_count(model, trainable, last),
                .n_samples = memory[first].n_samples,
                .n_targets = memory[last - 1].n_targets,
                .graph_bytes = memory[first].graph_bytes,
                .in_bytes = memory[first].in_bytes,
                .in_ahead_bytes = memory[first].in_ahead_bytes,
                .out_bytes = memory[last - 1].out_bytes,
                .trains = n_frozen < last,
                .trains_below = n_frozen < first};
    l.n_grad = l.n_trainable - fl_layout_grad_spared(model, trainable, last, n_frozen);
    l.frozen_out = first < trainable && trainable < last ? memory[trainable - 1].out_bytes : 0;
    for (int i = first; i < trainable; i++) {
        l.kept_bytes += memory[i].frozen_kept_bytes;
        if (trainable < last) {
            l.frozen_out_max = larger(l.frozen_out_max, memory[i].out_bytes);
            l.frozen_out_ahead_max = larger(l.frozen_out_ahead_max, memory[i].out_ahead_bytes);
        }
        l.scratch_max = larger(l.scratch_max, memory[i].frozen_scratch_bytes);
    }
    for (int i = trainable; i < last; i++) {
        l.kept_bytes += memory[i].kept_bytes;
        l.out_max = larger(l.out_max, memory[i].out_bytes);
        l.scratch_max = larger(l.scratch_max, memory[i].scratch_bytes);
    }
    compose(&l, 1, job, place, out);
}

/* [l][i] from [l - 1]: the larger of two neighbouring runs of half the length. */
static void fill_levels(int64_t (*level)[FL_MAX_LAYERS], int n)
{
    for (int l = 1; l < FL_MEMORY_LEVELS; l++) {
        for (int i = 0; i + (1 << l) <= n; i++) {
            level[l][i] = larger(level[l - 1][i], level[l - 1][i + (1 << (l - 1))]);
        }
    }
}

static int64_t run_max(const int64_t (*level)[FL_MAX_LAYERS], int first, int last)
{
    if (first == last) {
        return 0;
    }
    int l = 31 - __builtin_clz((unsigned)(last - first));
    return larger(level[l][first], level[l][last - (1 << l)]);
}

void fl_memory_table_init(fl_memory_table *table, const fl_model *model, const fl_job *job,
                          const fl_layer_memory *memory, int n_frozen)
{
    int n = fl_model_n_layers(model);
    table->model = model;
    table->job = job;
    table->n_frozen = n_frozen;
    table->n_weights[0] = 0;
    table->kept_bytes[0] = 0;
    table->n_samples = memory[0].n_samples;
    table->n_targets = memory[n - 1].n_targets;
    table->graph_bytes = memory[0].graph_bytes;
    table->in_ahead_bytes = memory[0].in_ahead_bytes;
    table->frozen_out_bytes = n_frozen > 0 ? memory[n_frozen - 1].out_bytes : 0;
    table->out_ahead_bytes_max[0] = 0;
    for (int i = 0; i < n; i++) {
        table->n_weights[i + 1] = table->n_weights[i] + fl_layout_count(model, i, i + 1);
        bool frozen = i < n_frozen;
        table->kept_bytes[i + 1] =
            table->kept_bytes[i] + (frozen ? memory[i].frozen_kept_bytes : memory[i].kept_bytes);
        table->in_bytes[i] = memory[i].in_bytes;
        table->out_bytes[i] = memory[i].out_bytes;
        table->out_ahead_bytes_max[i + 1] =
            larger(table->out_ahead_bytes_max[i], memory[i].out_ahead_bytes);
        table->scratch_max[0][i] =
            frozen ? memory[i].frozen_scratch_bytes : memory[i].scratch_bytes;
        table->out_max[0][i] = memory[i].out_bytes;
    }
    fill_levels(table->scratch_max, n);
    fill_levels(table->out_max, n);
}

void fl_memory_table_stage(const fl_memory_table *table, int64_t n_samples,
                           const fl_stage_place *place, fl_stage_memory *out)
{
    int first = place->first, last = place->last;
    int trainable = trainable_from(table->n_frozen, first, last);
    layers l = {.n_weights = table->n_weights[last] - table->n_weights[first],
                .n_trainable = table->n_weights[last] - table->n_weights[trainable],
                .trains = table->n_frozen < last,
                .trains_below = table->n_frozen < first,
                .kept_bytes = table->kept_bytes[last] - table->kept_bytes[first],
                .n_samples = table->n_samples,
                .n_targets = table->n_targets,
                .graph_bytes = table->graph_bytes,
                .in_bytes = table->in_bytes[first],
                .out_bytes = table->out_bytes[last - 1],
                .out_max = run_max(table->out_max, trainable, last),
                .frozen_out_max = trainable < last ? run_max(table->out_max, first, trainable) : 0,
                .frozen_out = first < trainable && trainable < last ? table->frozen_out_bytes : 0,
                .scratch_max = run_max(table->scratch_max, first, last)};
    if (first == 0) {
        l.in_ahead_bytes = table->in_ahead_bytes;
        l.frozen_out_ahead_max = trainable < last ? table->out_ahead_bytes_max[trainable] : 0;
    }
    l.n_grad =
        l.n_trainable - fl_layout_grad_spared(table->model, trainable, last, table->n_frozen);
    compose(&l, n_samples, table->job, place, out);
}
