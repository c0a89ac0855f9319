#include "pipe/measure/probe_chain.h"

#include "autodp/split_work.h"
#include "data/loader.h"
#include "device/cpu/bf16.h"
#include "device/errors/log.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "nn/model.h"

#include <math.h>
#include <string.h>

static const int64_t CHAIN_BYTES = (int64_t)64 << 20; /* more than a core's share of the caches */
enum { SLACK_BYTES = 4096, PAD_BYTES = 64 };

/* ---- which layers are alike, and which are run ---- */

static bool same_params(const fl_param_list *a, const fl_param_list *b)
{
    for (int i = 0; a->n == b->n && i < a->n; i++) {
        if (a->spec[i].rows != b->spec[i].rows || a->spec[i].cols != b->spec[i].cols) {
            return false;
        }
    }
    return a->n == b->n;
}

/* The first layer also differs because the gradient of its input is not needed. */
static bool alike(const fl_chain *c, int a, int b)
{
    const fl_model *model = c->o->model;
    return a != 0 && fl_model_layer(model, a)->ops == fl_model_layer(model, b)->ops &&
           same_params(fl_model_params(model, a), fl_model_params(model, b)) &&
           memcmp(&c->memory[a], &c->memory[b], sizeof *c->memory) == 0;
}

static void find_kinds(fl_chain *c)
{
    for (int i = 0; i < c->n_layers; i++) {
        c->kind_of[i] = i;
        for (int j = 0; j < i && c->kind_of[i] == i; j++) {
            c->kind_of[i] = alike(c, j, i) ? c->kind_of[j] : i;
        }
    }
}

static int64_t weight_bytes(const fl_chain *c, int layer)
{
    return fl_model_layer_n_params(c->o->model, layer) * (int64_t)sizeof(float) +
           fl_model_params(c->o->model, layer)->n * PAD_BYTES;
}

/* The memory of the chain when it has each kind at most `copies` times: weights and gradients, its
 * own input, and what lies in a slot. *n: how long it is. */
static int64_t chain_bytes(const fl_chain *c, int copies, int *n)
{
    int count[FL_MAX_LAYERS] = {0};
    int64_t bytes = 0;
    *n = 0;
    for (int i = 0; i < c->n_layers; i++) {
        if (count[c->kind_of[i]]++ < copies) {
            bytes += c->memory[i].kept_bytes + 2 * weight_bytes(c, i) + c->memory[i].in_bytes;
            (*n)++;
        }
    }
    return bytes;
}

/* The memory of one micro-batch of the first n_large samples, as long as they are. */
static fl_status measure_memory(fl_chain *c)
{
    fl_sample_sizes *sizes = NULL;
    FL_TRY(fl_sample_sizes_create(c->o->model, c->o->dataset, c->n_large, 0, &sizes));
    double tokens = sizes->mean_tokens * (double)c->n_large;
    fl_capacity all = {.n = 1, .at = {{.samples = c->n_large, .tokens = llround(tokens)}}};
    fl_status status = fl_memory_measure_capacity(c->o->model, sizes, &all, c->memory);
    c->max_targets = sizes->most_targets * c->n_large;
    fl_sample_sizes_destroy(&sizes);
    return status;
}

/* A replica's share of a batch is the largest micro-batch there will be; what does not fit the
 * device is not tried. Two samples tell a call's cost from a sample's. */
static fl_status choose_size(fl_chain *c)
{
    const fl_dataset *d = c->o->dataset;
    int64_t count = d->ops->count(d->self, FL_TRAIN);
    c->n_large = fl_split_work_max(c->o->job->train.batch, c->o->n_workers);
    c->n_large = c->n_large < 2 ? 2 : c->n_large;
    c->n_large = c->n_large < count ? c->n_large : count;
    for (;; c->n_large /= 2) {
        int n;
        FL_TRY(measure_memory(c));
        find_kinds(c);
        if (c->n_large <= 2 || chain_bytes(c, 1, &n) <= c->o->job->devices.memory_bytes) {
            return FL_OK;
        }
    }
}

static fl_status choose_layers(fl_chain *c)
{
    int count[FL_MAX_LAYERS] = {0};
    c->copies = 1;
    while (chain_bytes(c, c->copies, &c->n) < CHAIN_BYTES && c->n < c->n_layers) {
        c->copies++;
    }
    FL_TRY(fl_alloc_array((size_t)c->n, sizeof *c->at, (void **)&c->at));
    for (int i = 0, n = 0; i < c->n_layers; i++) {
        if (count[c->kind_of[i]]++ < c->copies) {
            c->at[n++] = (fl_probe_layer){.layer = i, .kind = c->kind_of[i]};
        }
    }
    return FL_OK;
}

/* ---- memory ---- */

static fl_status arena_create(fl_chain *c, fl_arena *arena, int64_t size_bytes)
{
    void *base = NULL;
    FL_TRY(fl_device_alloc(c->o->device, (size_t)size_bytes, "the profile", &base));
    fl_arena_init(arena, base, (size_t)size_bytes, "the profile");
    return FL_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static fl_status create_arenas(fl_chain *c)
{
    int64_t tensors = 0, keep = SLACK_BYTES, scratch = SLACK_BYTES, boundary = SLACK_BYTES;
    for (int i = 0; i < c->n; i++) {
        const fl_layer_memory *m = &c->memory[c->at[i].layer];
        tensors += 2 * weight_bytes(c, c->at[i].layer) + m->in_bytes + m->out_bytes + SLACK_BYTES;
        keep += m->kept_bytes;
        scratch = larger(scratch, m->scratch_bytes);
        boundary = larger(boundary, larger(m->in_bytes, m->out_bytes));
    }
    FL_TRY(arena_create(c, &c->tensors, tensors + 2 * (boundary + SLACK_BYTES) + SLACK_BYTES));
    FL_TRY(arena_create(c, &c->keep, keep));
    FL_TRY(arena_create(c, &c->scratch, scratch));
    FL_TRY(fl_arena_take(&c->tensors, sizeof *c->sums, (void **)&c->sums));
    FL_TRY(fl_arena_take(&c->tensors, (size_t)boundary, &c->grad[0]));
    return fl_arena_take(&c->tensors, (size_t)boundary, &c->grad[1]);
}

static fl_status put(const fl_chain *c, void *to, const void *from, size_t size_bytes)
{
    const fl_device_ops *ops = c->o->device->ops;
    FL_TRY(ops->copy_in(c->o->device, c->o->stream, to, from, size_bytes));
    return ops->sync(c->o->device, c->o->stream);
}

static fl_status create_weight(fl_chain *c, fl_probe_layer *l, int i)
{
    const fl_param_spec *spec = &fl_model_params(c->o->model, l->layer)->spec[i];
    size_t bytes = (size_t)(spec->rows * spec->cols) * sizeof(float);
    fl_weight *w = &l->params.weight[i];
    void *start = NULL;
    *w = (fl_weight){.rows = spec->rows, .cols = spec->cols, .version = 1};
    FL_TRY(fl_arena_take(&c->tensors, bytes, (void **)&w->data));
    FL_TRY(fl_arena_take(&c->tensors, bytes, (void **)&l->params.grad[i]));
    FL_TRY(fl_alloc(bytes, &start));
    fl_model_draw_param(c->o->model, l->layer, i, c->o->job->train.seed, start);
    fl_status status = put(c, w->data, start, bytes);
    fl_free(start);
    return status;
}

static fl_status create_params(fl_chain *c, fl_probe_layer *l)
{
    l->params.n = fl_model_params(c->o->model, l->layer)->n;
    size_t n = (size_t)l->params.n;
    FL_TRY(fl_alloc_array(n, sizeof(fl_weight), (void **)&l->params.weight));
    FL_TRY(fl_alloc_array(n, sizeof(float *), (void **)&l->params.grad));
    for (int i = 0; i < l->params.n; i++) {
        FL_TRY(create_weight(c, l, i));
    }
    return FL_OK;
}

/* ---- data ---- */

static size_t tables_bytes(const fl_chain *c)
{
    return fl_mirror_device_bytes(c->o->device, fl_batch_tables_bytes(&c->tables.max));
}

static fl_status create_tables(fl_chain *c)
{
    const fl_tables_size max = {.n_boundaries = 4 * c->n,
                                .samples = c->n_large,
                                .has_targets = true,
                                .targets = c->max_targets};
    c->tables.max = max;
    if (tables_bytes(c) > 0) {
        FL_TRY(fl_device_alloc(c->o->device, tables_bytes(c), "the profile", &c->tables_memory));
    }
    FL_TRY(fl_batch_tables_init(&c->tables, c->o->device, c->o->stream, c->tables_memory, &max));
    return fl_batch_tables_begin(&c->tables, c->n_large);
}

/* All that is the same for every size of micro-batch. */
static fl_status load_samples(fl_chain *c)
{
    const fl_dataset *d = c->o->dataset;
    fl_batch_tables *t = &c->tables;
    FL_TRY(create_tables(c));
    FL_TRY(fl_alloc_array((size_t)c->n_large, sizeof *c->raw, (void **)&c->raw));
    for (int64_t s = 0; s < c->n_large; s++) {
        int64_t n_targets;
        t->ids[s] = s;
        FL_TRY(d->ops->shape(d->self, FL_TRAIN, s, &c->raw[s], &n_targets));
        int64_t tokens = c->raw[s].tokens;
        c->shortest = s == 0 || tokens < c->shortest ? tokens : c->shortest;
        c->ragged = c->ragged || tokens != c->raw[0].tokens;
    }
    FL_TRY(fl_load_targets(d, FL_TRAIN, t->ids, t->n, t->targets, c->max_targets, t->target_offsets,
                           &c->targets));
    c->targets.data = fl_mirror_at(&t->mirror, t->targets);
    return FL_OK;
}

/* Where every sample begins behind `layer`. */
static fl_status lay_out_as(fl_chain *c, int layer, bool is_short, int32_t *offsets, fl_tensor *out)
{
    for (int64_t s = 0; s < c->n_large; s++) {
        fl_shape raw = c->raw[s], shape;
        raw.tokens = is_short ? c->shortest : raw.tokens;
        FL_TRY(fl_model_shape(c->o->model, layer, &raw, &shape));
        offsets[s + 1] = offsets[s] + (int32_t)shape.tokens;
        out->width = shape.width;
        out->dtype = shape.dtype;
    }
    return FL_OK;
}

/* boundary: where the offsets lie in the tables, and behind them those of the short samples */
static fl_status lay_out(fl_chain *c, int layer, int boundary, int32_t **offsets, fl_tensor *out)
{
    *offsets = fl_batch_tables_offsets(&c->tables, boundary);
    FL_TRY(lay_out_as(c, layer, false, *offsets, out));
    return lay_out_as(c, layer, true, *offsets + c->n_large + 1, out);
}

static void resize(const fl_chain *c, fl_tensor *t, const int32_t *offsets, int64_t n_samples)
{
    t->offsets = offsets;
    t->offsets_device = fl_mirror_at(&c->tables.mirror, offsets);
    t->n_samples = n_samples;
    t->n_tokens = t->offsets[n_samples];
}

int64_t fl_chain_resize(fl_chain *c, int64_t n_samples, bool is_short)
{
    int64_t begin = is_short ? c->n_large + 1 : 0, tokens = 0;
    for (int i = 0; i < c->n; i++) {
        resize(c, &c->at[i].in, c->at[i].in_offsets + begin, n_samples);
        resize(c, &c->at[i].out, c->at[i].out_offsets + begin, n_samples);
    }
    resize(c, &c->targets, c->tables.target_offsets, n_samples);
    for (int64_t s = 0; s < n_samples; s++) {
        tokens += is_short ? c->shortest : c->raw[s].tokens;
    }
    return tokens;
}

static size_t tensor_bytes(const fl_tensor *t)
{
    return (size_t)(t->n_tokens * t->width) * fl_dtype_size(t->dtype);
}

/* Numbers as they come out of a normalization; integers stay 0. */
static void draw_values(const fl_tensor *t, void *values)
{
    for (int64_t i = 0; t->dtype != FL_I32 && i < t->n_tokens * t->width; i++) {
        float value = 4.0f * fl_unit((uint32_t)(fl_mix64(1, (uint64_t)i) >> 32)) - 2.0f;
        if (t->dtype == FL_BF16) {
            fl_bf16_narrow(&value, 1, (uint16_t *)values + i);
        } else {
            ((float *)values)[i] = value;
        }
    }
}

static fl_status read_samples(const fl_chain *c, const fl_tensor *t, unsigned char *values)
{
    const fl_dataset *d = c->o->dataset;
    size_t row = (size_t)t->width * fl_dtype_size(t->dtype);
    for (int64_t s = 0; s < t->n_samples; s++) {
        fl_sample_key key = {.seed = c->o->job->train.seed, .id = c->tables.ids[s]};
        FL_TRY(d->ops->read(d->self, FL_TRAIN, &key, values + (size_t)t->offsets[s] * row));
    }
    return FL_OK;
}

static fl_status fill(const fl_chain *c, const fl_tensor *t, bool is_raw)
{
    void *values = NULL;
    fl_status status = FL_OK;
    FL_TRY(fl_alloc(tensor_bytes(t), &values));
    if (is_raw) {
        status = read_samples(c, t, values);
    } else {
        draw_values(t, values);
    }
    if (status == FL_OK) {
        status = put(c, t->data, values, tensor_bytes(t));
    }
    fl_free(values);
    return status;
}

static fl_status create_layer(fl_chain *c, int i)
{
    fl_probe_layer *l = &c->at[i];
    FL_TRY(create_params(c, l));
    FL_TRY(lay_out(c, l->layer - 1, 4 * i, &l->in_offsets, &l->in));
    FL_TRY(lay_out(c, l->layer, 4 * i + 2, &l->out_offsets, &l->out));
    resize(c, &l->in, l->in_offsets, c->n_large);
    resize(c, &l->out, l->out_offsets, c->n_large);
    FL_TRY(fl_arena_take(&c->tensors, tensor_bytes(&l->out), &l->out.data));
    if (i > 0 && c->at[i - 1].kind == c->kind_of[l->layer - 1]) {
        l->in.data = c->at[i - 1].out.data;
        return FL_OK;
    }
    FL_TRY(fl_arena_take(&c->tensors, tensor_bytes(&l->in), &l->in.data));
    return fill(c, &l->in, l->layer == 0);
}

fl_status fl_chain_init(fl_chain *c, const fl_probe_options *options)
{
    *c = (fl_chain){.o = options, .n_layers = fl_model_n_layers(options->model)};
    FL_TRY(choose_size(c));
    FL_TRY(choose_layers(c));
    FL_TRY(create_arenas(c));
    FL_TRY(load_samples(c));
    for (int i = 0; i < c->n; i++) {
        FL_TRY(create_layer(c, i));
    }
    return fl_batch_tables_send(&c->tables, c->targets.n_tokens);
}

void fl_chain_fini(fl_chain *c)
{
    fl_arena *arenas[] = {&c->tensors, &c->keep, &c->scratch};
    fl_device *d = c->o->device;
    if (d->ops->sync(d, c->o->stream) != FL_OK) { /* nothing may use the memory any more */
        fl_log(FL_LOG_WARN, "the profile: %s", fl_errmsg());
    }
    for (int i = 0; c->at != NULL && i < c->n; i++) {
        fl_free(c->at[i].params.weight);
        fl_free(c->at[i].params.grad);
    }
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) {
        fl_device_free(d, arenas[i]->base, arenas[i]->capacity_bytes);
    }
    fl_device_free(d, c->tables_memory, tables_bytes(c));
    fl_batch_tables_fini(&c->tables);
    fl_free(c->at);
    fl_free(c->raw);
}
