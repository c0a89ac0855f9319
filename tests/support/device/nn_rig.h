/* A whole model on one device in one micro-batch, as tests and benchmarks drive it: what pipe/ does
 * for a stage, without any of its distribution. */
#ifndef FL_TESTS_SUPPORT_DEVICE_NN_RIG_H
#define FL_TESTS_SUPPORT_DEVICE_NN_RIG_H

#include "device/system/alloc.h"
#include "nn/exec.h"
#include "nn/model.h"

#include <string.h>

enum { RIG_MAX_LAYERS = 64, RIG_MAX_PARAMS = 8, RIG_MAX_SAMPLES = 1024 };

typedef struct rig {
    fl_device *device; /* borrowed, like the model */
    fl_model *model;
    fl_exec x;
    fl_batch batch;
    fl_arena keep, scratch;
    void *memory; /* both arenas */
    size_t memory_bytes;
    int n_layers;
    int64_t ids[RIG_MAX_SAMPLES];
    fl_tensor act[RIG_MAX_LAYERS + 1];  /* act[i]: what layer i reads */
    fl_tensor grad[RIG_MAX_LAYERS + 1]; /* its gradient */
    int32_t *offsets[RIG_MAX_LAYERS + 1];
    fl_exec_frame frame[RIG_MAX_LAYERS];
    fl_layer_params params[RIG_MAX_LAYERS];
    fl_weight weight[RIG_MAX_LAYERS][RIG_MAX_PARAMS];
    float *wgrad[RIG_MAX_LAYERS][RIG_MAX_PARAMS]; /* memory of the gradients */
    float *want[RIG_MAX_LAYERS][RIG_MAX_PARAMS];  /* what the layer gets: wgrad, or NULL */
} rig;

static inline int64_t rig_elements(const fl_tensor *t)
{
    return t->n_tokens * t->width;
}

static inline fl_status rig_floats(rig *r, int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl_device_alloc(r->device, (size_t)n * sizeof(float), "test", &memory));
    *out = memory;
    return FL_OK;
}

static inline void rig_free(rig *r, void *memory, int64_t n)
{
    fl_device_free(r->device, memory, (size_t)n * sizeof(float));
}

/* Boundary `i` for samples of `length` tokens of the raw width. */
static inline fl_status rig_boundary(rig *r, int i, const int64_t *length, const fl_shape *raw)
{
    void *offsets = NULL;
    int64_t n = r->batch.n_samples;
    FL_TRY(fl_alloc_array((size_t)n + 1, sizeof(int32_t), &offsets));
    r->offsets[i] = offsets;
    fl_tensor *t = &r->act[i];
    fl_shape shape = *raw;
    FL_TRY(fl_model_shape(r->model, i - 1, raw, &shape));
    *t = (fl_tensor){.offsets = offsets,
                     .offsets_device = offsets,
                     .n_samples = n,
                     .width = shape.width,
                     .dtype = shape.dtype};
    for (int64_t s = 0; s < n; s++) {
        fl_shape one = *raw;
        one.tokens = length[s];
        FL_TRY(fl_model_shape(r->model, i - 1, &one, &shape));
        t->n_tokens += shape.tokens;
        r->offsets[i][s + 1] = (int32_t)t->n_tokens;
    }
    r->grad[i] = *t;
    float *data = NULL;
    FL_TRY(rig_floats(r, rig_elements(t), &data));
    t->data = data;
    FL_TRY(rig_floats(r, rig_elements(t), &data));
    r->grad[i].data = data;
    return FL_OK;
}

static inline fl_status rig_params(rig *r, int layer, uint64_t seed)
{
    const fl_param_list *list = fl_model_params(r->model, layer);
    r->params[layer] =
        (fl_layer_params){.n = list->n, .weight = r->weight[layer], .grad = r->want[layer]};
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *spec = &list->spec[i];
        int64_t n = spec->rows * spec->cols;
        fl_weight *w = &r->weight[layer][i];
        *w = (fl_weight){.rows = spec->rows, .cols = spec->cols, .version = 1};
        FL_TRY(rig_floats(r, n, &w->data));
        FL_TRY(rig_floats(r, n, &r->wgrad[layer][i]));
        fl_model_draw_param(r->model, layer, i, seed, w->data);
        r->want[layer][i] = r->wgrad[layer][i];
    }
    return FL_OK;
}

/* length [n_samples] tokens of each raw sample; raw: the shape of one, its tokens unused but at
 * least 1. On failure call rig_fini all the same. */
static inline fl_status rig_init(rig *r, fl_device *device, fl_model *model, const fl_shape *raw,
                                 const int64_t *length, int64_t n_samples, size_t arena_bytes)
{
    memset(r, 0, sizeof *r);
    r->device = device;
    r->model = model;
    r->n_layers = fl_model_n_layers(model);
    if (r->n_layers < 1 || r->n_layers > RIG_MAX_LAYERS || n_samples > RIG_MAX_SAMPLES) {
        return fl_fail(FL_EINVAL, "the rig takes 1 to %d layers and %d samples", RIG_MAX_LAYERS,
                       RIG_MAX_SAMPLES);
    }
    for (int64_t s = 0; s < n_samples; s++) {
        r->ids[s] = 1000 + 7 * s;
    }
    r->batch = (fl_batch){.n_samples = n_samples,
                          .sample_ids = r->ids,
                          .sample_ids_device = r->ids,
                          .seed = 11,
                          .epoch = 3,
                          .n_global = n_samples};
    for (int i = 0; i <= r->n_layers; i++) {
        FL_TRY(rig_boundary(r, i, length, raw));
    }
    for (int i = 0; i < r->n_layers; i++) {
        FL_TRY(rig_params(r, i, 5));
    }
    FL_TRY(fl_device_alloc(device, 2 * arena_bytes, "test arenas", &r->memory));
    r->memory_bytes = 2 * arena_bytes;
    fl_arena_init(&r->keep, r->memory, arena_bytes, "kept");
    fl_arena_init(&r->scratch, (char *)r->memory + arena_bytes, arena_bytes, "scratch");
    r->x = (fl_exec){.device = device,
                     .batch = &r->batch,
                     .training = true,
                     .keep = &r->keep,
                     .scratch = &r->scratch};
    return FL_OK;
}

static inline void rig_fini(rig *r)
{
    for (int i = 0; i <= r->n_layers && i <= RIG_MAX_LAYERS; i++) {
        rig_free(r, r->act[i].data, rig_elements(&r->act[i]));
        rig_free(r, r->grad[i].data, rig_elements(&r->grad[i]));
        fl_free(r->offsets[i]);
    }
    for (int i = 0; i < r->n_layers; i++) {
        for (int j = 0; j < r->params[i].n; j++) {
            fl_weight *w = &r->weight[i][j];
            r->device->ops->weight_release(r->device, w);
            rig_free(r, w->data, w->rows * w->cols);
            rig_free(r, r->wgrad[i][j], w->rows * w->cols);
        }
    }
    fl_device_free(r->device, r->memory, r->memory_bytes);
}

/* Call it after changing a weight. */
static inline void rig_changed(rig *r)
{
    for (int i = 0; i < r->n_layers; i++) {
        for (int j = 0; j < r->params[i].n; j++) {
            r->weight[i][j].version++;
        }
    }
}

static inline fl_status rig_clear_grads(rig *r)
{
    for (int i = 0; i < r->n_layers; i++) {
        for (int j = 0; j < r->params[i].n; j++) {
            const fl_weight *w = &r->weight[i][j];
            FL_TRY(r->device->ops->fill_zero(r->device, r->x.stream, r->wgrad[i][j],
                                             (size_t)(w->rows * w->cols) * sizeof(float)));
        }
    }
    return FL_OK;
}

static inline fl_status rig_forward(rig *r)
{
    fl_arena_release(&r->keep, 0);
    for (int i = 0; i < r->n_layers; i++) {
        FL_TRY(fl_exec_forward(&r->x, r->model, i, &r->params[i], &r->frame[i], &r->act[i],
                               &r->act[i + 1]));
    }
    return FL_OK;
}

/* From grad[n_layers] down; the gradient of the raw input only when it is wanted. */
static inline fl_status rig_backward(rig *r, bool want_input)
{
    for (int i = r->n_layers - 1; i >= 0; i--) {
        FL_TRY(fl_exec_backward(&r->x, r->model, i, &r->params[i], &r->frame[i], &r->grad[i + 1],
                                i == 0 && !want_input ? NULL : &r->grad[i]));
    }
    return FL_OK;
}

#endif
