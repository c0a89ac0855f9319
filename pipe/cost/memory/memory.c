/* The dry run: every layer forward and backward on the null device, with arenas so large that their
 * peaks are what counts. No page stands behind memory that no layer touches. */
#include "pipe/cost/memory/memory.h"

#include "device/system/alloc.h"
#include "nn/exec.h"
#include "nn/model.h"

#include <string.h>

static const size_t LARGEST_ARENA_BYTES = (size_t)1 << 40;
static const size_t SMALLEST_ARENA_BYTES = (size_t)1 << 28;

enum { TENSORS, KEEP, SCRATCH, N_ARENAS };
enum { INPUT, OUTPUT, TARGETS, N_OFFSETS }; /* of a layer; of the loss */

/* The samples of a dry run have at most three lengths: the first n_longest are as long as can be,
 * one lies between, and the others are as short as can be. */
enum { LONGEST, BETWEEN, SHORTEST, N_LENGTHS };

typedef struct dry_run {
    const fl_model *model;
    const fl_sample_shape *sample; /* the longest */
    int64_t n_samples, n_longest;
    fl_shape now[N_LENGTHS]; /* one sample of each, at the current boundary */
    volatile int *layer_now; /* the layer whose code runs, for another process */
    fl_device *device;
    fl_arena arena[N_ARENAS];
    int64_t *ids;                /* [n_samples], zeros */
    int32_t *offsets[N_OFFSETS]; /* [n_samples + 1] */
    fl_batch batch;
} dry_run;

/* Address space may be limited: take the largest power of two that there is. */
static fl_status arena_init(dry_run *d, int which)
{
    const char *what[N_ARENAS] = {"dry run's tensors", "dry run's micro-batch",
                                  "dry run's temporaries"};
    fl_status status = FL_OK;
    for (size_t size = LARGEST_ARENA_BYTES; size >= SMALLEST_ARENA_BYTES; size /= 2) {
        void *base = NULL;
        status = d->device->ops->memory_take(d->device, size, &base);
        if (status == FL_OK) {
            fl_arena_init(&d->arena[which], base, size, what[which]);
            return FL_OK;
        }
    }
    return status;
}

static fl_status dry_run_init(dry_run *d)
{
    size_t n = (size_t)d->n_samples;
    FL_TRY(fl_device_null_create(&d->device));
    for (int i = 0; i < N_ARENAS; i++) {
        FL_TRY(arena_init(d, i));
    }
    FL_TRY(fl_alloc_array(n, sizeof *d->ids, (void **)&d->ids));
    for (int i = 0; i < N_OFFSETS; i++) {
        FL_TRY(fl_alloc_array(n + 1, sizeof *d->offsets[i], (void **)&d->offsets[i]));
    }
    d->batch = (fl_batch){.n_samples = d->n_samples,
                          .sample_ids = d->ids,
                          .sample_ids_device = d->ids,
                          .n_global = d->n_samples};
    return FL_OK;
}

static void dry_run_fini(dry_run *d)
{
    for (int i = 0; i < N_ARENAS; i++) {
        if (d->arena[i].base != NULL) {
            d->device->ops->memory_give(d->device, d->arena[i].base, d->arena[i].capacity_bytes);
        }
    }
    fl_free(d->ids);
    for (int i = 0; i < N_OFFSETS; i++) {
        fl_free(d->offsets[i]);
    }
    fl_device_destroy(&d->device);
}

static int length_of(const dry_run *d, int64_t sample)
{
    return sample < d->n_longest ? LONGEST : sample == d->n_longest ? BETWEEN : SHORTEST;
}

/* Where the samples begin at the current boundary. least_rows: the last sample gets what the others
 * lack of it. */
static fl_status lay_out(const dry_run *d, int64_t least_rows, int32_t *offsets, fl_tensor *out)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < d->n_samples; i++) {
        offsets[i] = (int32_t)rows;
        rows += d->now[length_of(d, i)].tokens;
        rows = i == d->n_samples - 1 && rows < least_rows ? least_rows : rows;
        if (rows > INT32_MAX) {
            return fl_fail(FL_EINVAL,
                           "a micro-batch of %lld samples has more than %d rows between two "
                           "layers; allowed: up to that many; smaller batches or more "
                           "micro-batches (train.batch, pipe.m) have fewer",
                           (long long)d->n_samples, INT32_MAX);
        }
    }
    offsets[d->n_samples] = (int32_t)rows;
    *out = (fl_tensor){.offsets = offsets,
                       .offsets_device = offsets,
                       .n_samples = d->n_samples,
                       .n_tokens = rows,
                       .width = d->now[LONGEST].width,
                       .dtype = d->now[LONGEST].dtype};
    return FL_OK;
}

static int64_t tensor_bytes(const fl_tensor *t)
{
    return t->n_tokens * t->width * (int64_t)fl_dtype_size(t->dtype);
}

/* Ids and targets are zeros, which all layers and losses take: what an earlier layer left in the
 * arena may be no id at all. */
static fl_status take_data(dry_run *d, fl_tensor *t)
{
    size_t bytes = (size_t)tensor_bytes(t);
    FL_TRY(fl_arena_take(&d->arena[TENSORS], bytes, &t->data));
    if (t->dtype == FL_I32) {
        memset(t->data, 0, bytes);
    }
    return FL_OK;
}

/* Weights and gradients of one layer, from the arena of tensors. */
static fl_status take_params(dry_run *d, int layer, fl_layer_params *params)
{
    const fl_param_list *list = fl_model_params(d->model, layer);
    fl_arena *arena = &d->arena[TENSORS];
    size_t n = (size_t)list->n;
    params->n = list->n;
    FL_TRY(fl_arena_take(arena, n * sizeof *params->weight, (void **)&params->weight));
    FL_TRY(fl_arena_take(arena, n * sizeof *params->grad, (void **)&params->grad));
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *spec = &list->spec[i];
        size_t bytes = (size_t)(spec->rows * spec->cols) * sizeof(float);
        params->weight[i] = (fl_weight){.rows = spec->rows, .cols = spec->cols, .version = 1};
        FL_TRY(fl_arena_take(arena, bytes, (void **)&params->weight[i].data));
        FL_TRY(fl_arena_take(arena, bytes, (void **)&params->grad[i]));
    }
    return FL_OK;
}

/* The targets of the data set's type. Where the longest sample has as many for each of its rows,
 * which is so in classification, in language models and in regression, every row has these; else
 * every sample has those of the longest. */
static fl_status lay_out_targets(dry_run *d, const fl_tensor *out, fl_tensor *targets)
{
    int64_t n = d->sample->n_targets, rows = d->now[LONGEST].tokens;
    bool by_row = rows > 0 && n % rows == 0;
    int32_t *offsets = d->offsets[TARGETS];
    for (int64_t i = 0; i <= d->n_samples; i++) {
        int64_t at = by_row ? out->offsets[i] * (n / rows) : i * n;
        if (at > INT32_MAX) {
            return fl_fail(FL_EINVAL, "%lld samples have more than %d targets",
                           (long long)d->n_samples, INT32_MAX);
        }
        offsets[i] = (int32_t)at;
    }
    *targets = (fl_tensor){.offsets = offsets,
                           .offsets_device = offsets,
                           .n_samples = d->n_samples,
                           .n_tokens = offsets[d->n_samples],
                           .width = 1,
                           .dtype = d->sample->target_dtype};
    return take_data(d, targets);
}

static fl_status run_loss(dry_run *d, const fl_exec *x, const fl_layer_params *params,
                          const fl_tensor *out, fl_tensor *grad)
{
    fl_tensor targets;
    fl_loss_sums sums = {0};
    fl_exec of_loss = *x;
    of_loss.params = params;
    FL_TRY(lay_out_targets(d, out, &targets));
    return fl_exec_loss(&of_loss, d->model, out, &targets, 1.0f, grad, &sums);
}

static int64_t flops_since(const dry_run *d, int64_t *before)
{
    int64_t now = fl_device_null_flops(d->device), n = now - *before;
    *before = now;
    return n;
}

/* All that a layer is ever asked to do; the arenas' peaks tell the rest. Nothing needs the gradient
 * of raw input, and a layer may not be able to give it. */
static fl_status run_layer(dry_run *d, int layer, const fl_layer_params *params, fl_tensor *in,
                           fl_tensor *out, fl_layer_memory *memory)
{
    fl_exec_frame frame;
    fl_tensor grad_in = *in, grad_out = *out;
    fl_exec x = {.device = d->device,
                 .batch = &d->batch,
                 .training = false,
                 .keep = &d->arena[KEEP],
                 .scratch = &d->arena[SCRATCH]};
    fl_arena *tensors = &d->arena[TENSORS];
    FL_TRY(fl_arena_take(tensors, (size_t)tensor_bytes(in), &grad_in.data));
    FL_TRY(fl_arena_take(tensors, (size_t)tensor_bytes(out), &grad_out.data));
    FL_TRY(fl_exec_forward(&x, d->model, layer, params, &frame, in, out));
    memory->frozen_scratch_bytes = (int64_t)d->arena[SCRATCH].peak_bytes;
    int64_t before = fl_device_null_flops(d->device);
    x.training = true;
    FL_TRY(fl_exec_forward(&x, d->model, layer, params, &frame, in, out));
    memory->forward_flops = flops_since(d, &before);
    int64_t of_loss = 0;
    if (layer == fl_model_n_layers(d->model) - 1) {
        FL_TRY(run_loss(d, &x, params, out, &grad_out));
        of_loss = flops_since(d, &before); /* with the gradient: they count as backward */
    }
    FL_TRY(fl_exec_backward(&x, d->model, layer, params, &frame, &grad_out, NULL));
    memory->backward_flops = memory->lowest_backward_flops = of_loss + flops_since(d, &before);
    if (layer > 0) {
        FL_TRY(fl_exec_backward(&x, d->model, layer, params, &frame, &grad_out, &grad_in));
        memory->backward_flops = of_loss + flops_since(d, &before);
    }
    return FL_OK;
}

/* in: laid out at the boundary below, without data. */
static fl_status measure_layer(dry_run *d, int layer, fl_tensor *in, fl_tensor *out,
                               fl_layer_memory *memory)
{
    fl_layer_params params;
    for (int i = 0; i < N_ARENAS; i++) {
        fl_arena_release(&d->arena[i], 0);
        d->arena[i].peak_bytes = 0;
    }
    FL_TRY(take_params(d, layer, &params));
    FL_TRY(take_data(d, in));
    size_t before = fl_arena_mark(&d->arena[TENSORS]);
    FL_TRY(take_data(d, out));
    size_t out_rounded = fl_arena_mark(&d->arena[TENSORS]) - before;
    *memory = (fl_layer_memory){0};
    FL_TRY(run_layer(d, layer, &params, in, out, memory));
    memory->kept_bytes = (int64_t)(out_rounded + d->arena[KEEP].peak_bytes);
    memory->scratch_bytes = (int64_t)d->arena[SCRATCH].peak_bytes;
    memory->in_bytes = tensor_bytes(in);
    memory->out_bytes = tensor_bytes(out);
    memory->frozen_kept_bytes = (int64_t)out_rounded;
    memory->n_samples = in->n_samples;
    memory->n_targets = out->n_tokens;
    return FL_OK;
}

static fl_status pass_layer(dry_run *d, int layer)
{
    const fl_layer *l = fl_model_layer(d->model, layer);
    for (int i = 0; i < N_LENGTHS; i++) {
        fl_shape in = d->now[i];
        FL_TRY(l->ops->shape(l->self, &in, &d->now[i]));
    }
    return FL_OK;
}

/* rows: at each boundary, at least; NULL: those of the samples. */
static fl_status measure_all(dry_run *d, const fl_growth *rows, fl_extent extent,
                             fl_layer_memory *memory)
{
    FL_TRY(dry_run_init(d));
    for (int i = 0; i < fl_model_n_layers(d->model); i++) {
        fl_tensor in, out;
        int64_t below = rows == NULL ? 0 : fl_growth_at(&rows[i], extent);
        int64_t above = rows == NULL ? 0 : fl_growth_at(&rows[i + 1], extent);
        *d->layer_now = i;
        FL_TRY(lay_out(d, below, d->offsets[INPUT], &in));
        FL_TRY(pass_layer(d, i));
        FL_TRY(lay_out(d, above, d->offsets[OUTPUT], &out));
        FL_TRY(measure_layer(d, i, &in, &out, &memory[i]));
    }
    return FL_OK;
}

fl_status fl_memory_measure_watched(const fl_model *model, const fl_sample_shape *sample,
                                    int64_t n_samples, fl_layer_memory *memory, volatile int *layer)
{
    dry_run d = {.model = model,
                 .sample = sample,
                 .n_samples = n_samples,
                 .n_longest = n_samples,
                 .layer_now = layer,
                 .now = {sample->input, sample->input, sample->input}};
    fl_status status = measure_all(&d, NULL, (fl_extent){0}, memory);
    dry_run_fini(&d);
    return status;
}

fl_status fl_memory_measure(const fl_model *model, const fl_sample_shape *sample, int64_t n_samples,
                            fl_layer_memory *memory)
{
    int layer;
    return fl_memory_measure_watched(model, sample, n_samples, memory, &layer);
}

/* ---- samples of different length ---- */

/* With `extent`, as many samples are as long as possible as its tokens allow. */
static fl_status measure_extent(const fl_model *model, const fl_sample_sizes *s, fl_extent extent,
                                fl_layer_memory *memory)
{
    int64_t spread = s->longest.tokens - s->shortest;
    int64_t above = extent.tokens - extent.samples * s->shortest;
    int layer_now;
    const fl_sample_shape longest = fl_sample_longest(s);
    dry_run d = {.model = model,
                 .sample = &longest,
                 .n_samples = extent.samples,
                 .n_longest = spread == 0 ? extent.samples : above / spread,
                 .layer_now = &layer_now,
                 .now = {s->longest, s->longest, s->longest}};
    d.now[BETWEEN].tokens = s->shortest + (spread == 0 ? 0 : above % spread);
    d.now[SHORTEST].tokens = s->shortest;
    fl_status status = measure_all(&d, s->rows, extent, memory);
    dry_run_fini(&d);
    return status;
}

static void take_larger(int64_t *a, int64_t b)
{
    *a = b > *a ? b : *a;
}

static void take_largest(fl_layer_memory *a, const fl_layer_memory *b)
{
    take_larger(&a->kept_bytes, b->kept_bytes);
    take_larger(&a->scratch_bytes, b->scratch_bytes);
    take_larger(&a->in_bytes, b->in_bytes);
    take_larger(&a->out_bytes, b->out_bytes);
    take_larger(&a->frozen_kept_bytes, b->frozen_kept_bytes);
    take_larger(&a->frozen_scratch_bytes, b->frozen_scratch_bytes);
    take_larger(&a->forward_flops, b->forward_flops);
    take_larger(&a->backward_flops, b->backward_flops);
    take_larger(&a->lowest_backward_flops, b->lowest_backward_flops);
}

void fl_memory_set_ahead(const fl_sample_sizes *s, fl_extent ahead, fl_layer_memory *memory)
{
    for (int i = 0; i < s->n_layers; i++) {
        memory[i].in_ahead_bytes = fl_growth_at(&s->rows[i], ahead) * (int64_t)s->row_bytes[i];
        memory[i].out_ahead_bytes =
            fl_growth_at(&s->rows[i + 1], ahead) * (int64_t)s->row_bytes[i + 1];
    }
}

void fl_memory_set_counts(const fl_capacity *capacity, int n_layers, fl_layer_memory *memory)
{
    for (int i = 0; i < n_layers; i++) {
        memory[i].n_samples = fl_capacity_samples(capacity);
        memory[i].n_targets = capacity->n_targets;
    }
}

fl_status fl_memory_measure_capacity(const fl_model *model, const fl_sample_sizes *s,
                                     const fl_capacity *capacity, fl_layer_memory *memory)
{
    void *layers = NULL;
    size_t n = (size_t)s->n_layers;
    if (s->equal) {
        const fl_sample_shape sample = fl_sample_longest(s);
        FL_TRY(fl_memory_measure(model, &sample, fl_capacity_samples(capacity), memory));
        fl_memory_set_counts(capacity, s->n_layers, memory);
        return FL_OK;
    }
    FL_TRY(fl_alloc_array(n, sizeof *memory, &layers));
    fl_layer_memory *one = layers;
    memset(memory, 0, n * sizeof *memory);
    fl_status status = FL_OK;
    for (int i = 0; i < capacity->n && status == FL_OK; i++) {
        status = measure_extent(model, s, capacity->at[i], one);
        for (size_t l = 0; l < n && status == FL_OK; l++) {
            take_largest(&memory[l], &one[l]);
        }
    }
    fl_memory_set_counts(capacity, s->n_layers, memory);
    fl_memory_set_ahead(s, capacity->ahead, memory);
    fl_free(layers);
    return status;
}
