#include "pipe/params.h"

#include "device/alloc.h"
#include "nn/model.h"
#include "nn/optimizer.h"

#include <string.h>

enum { PAD_ELEMENTS = 16 }; /* 64 bytes of fp32 */

static int64_t padded(const fl_param_spec *spec)
{
    int64_t n = spec->rows * spec->cols;
    return (n + PAD_ELEMENTS - 1) / PAD_ELEMENTS * PAD_ELEMENTS;
}

static int64_t layer_count(const fl_model *model, int layer)
{
    const fl_param_list *list = fl_model_params(model, layer);
    int64_t n = 0;
    for (int i = 0; i < list->n; i++) {
        n += padded(&list->spec[i]);
    }
    return n;
}

int64_t fl_params_count(const fl_model *model, int first, int last)
{
    int64_t n = 0;
    for (int layer = first; layer < last; layer++) {
        n += layer_count(model, layer);
    }
    return n;
}

int64_t fl_params_grad_at(const fl_params *params, int layer)
{
    return params->layer_at[layer - params->first] -
           params->layer_at[params->first_trainable - params->first];
}

static fl_status draw(fl_params *p, int layer, int index, uint64_t seed)
{
    const fl_param_spec *spec = &fl_model_params(p->model, layer)->spec[index];
    size_t n = (size_t)(spec->rows * spec->cols);
    float *to = p->layer[layer - p->first].weight[index].data;
    void *start = NULL;
    FL_TRY(fl_alloc_array(n, sizeof(float), &start));
    fl_param_init(spec, seed, layer, index, start);
    fl_status status = p->device->ops->copy_in(p->device, NULL, to, start, n * sizeof(float));
    fl_free(start);
    return status;
}

/* Point the layer's weights and gradients into the big pieces and draw the starting weights. */
static fl_status layer_init(fl_params *p, int layer, const uint64_t *seed)
{
    const fl_param_list *list = fl_model_params(p->model, layer);
    fl_layer_params *mine = &p->layer[layer - p->first];
    if (list->n == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_array((size_t)list->n, sizeof *mine->weight, (void **)&mine->weight));
    FL_TRY(fl_alloc_array((size_t)list->n, sizeof *mine->grad, (void **)&mine->grad));
    mine->n = list->n;
    int64_t at = p->layer_at[layer - p->first];
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *spec = &list->spec[i];
        mine->weight[i] = (fl_weight){
            .data = p->weight + at, .rows = spec->rows, .cols = spec->cols, .version = 1};
        if (layer >= p->first_trainable) {
            mine->grad[i] = p->grad + (at - (p->n - p->n_trainable));
        }
        if (seed != NULL) {
            FL_TRY(draw(p, layer, i, *seed));
        }
        at += padded(spec);
    }
    return FL_OK;
}

static size_t float_bytes(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static fl_status fill(fl_params *p, const uint64_t *seed)
{
    size_t n_layers = (size_t)(p->last - p->first);
    FL_TRY(fl_alloc_array(n_layers, sizeof *p->layer, (void **)&p->layer));
    FL_TRY(fl_alloc_array(n_layers + 1, sizeof *p->layer_at, (void **)&p->layer_at));
    for (int layer = p->first; layer < p->last; layer++) {
        p->layer_at[layer - p->first + 1] =
            p->layer_at[layer - p->first] + layer_count(p->model, layer);
    }
    p->n = p->layer_at[n_layers];
    p->n_trainable = p->n - p->layer_at[p->first_trainable - p->first];
    FL_TRY(fl_device_alloc(p->device, float_bytes(p->n), "weights", (void **)&p->weight));
    FL_TRY(fl_device_alloc(p->device, float_bytes(p->n_trainable), "gradients", (void **)&p->grad));
    FL_TRY(fl_device_alloc(p->device, float_bytes(p->n_trainable * p->n_moments), "moments",
                           (void **)&p->moments));
    for (int layer = p->first; layer < p->last; layer++) {
        FL_TRY(layer_init(p, layer, seed));
    }
    return FL_OK;
}

fl_status fl_params_init(fl_params *params, fl_device *device, const fl_model *model, int first,
                         int last, int first_trainable, int n_moments, const uint64_t *seed)
{
    *params = (fl_params){.device = device,
                          .model = model,
                          .first = first,
                          .last = last,
                          .first_trainable = first_trainable,
                          .n_moments = n_moments};
    fl_status status = fill(params, seed);
    if (status != FL_OK) {
        fl_params_fini(params);
    }
    return status;
}

void fl_params_fini(fl_params *p)
{
    for (int i = 0; p->layer != NULL && i < p->last - p->first; i++) {
        for (int j = 0; j < p->layer[i].n; j++) {
            p->device->ops->weight_release(p->device, &p->layer[i].weight[j]);
        }
        fl_free(p->layer[i].weight);
        fl_free(p->layer[i].grad);
    }
    fl_free(p->layer);
    fl_free(p->layer_at);
    fl_device_free(p->device, p->weight, float_bytes(p->n));
    fl_device_free(p->device, p->grad, float_bytes(p->n_trainable));
    fl_device_free(p->device, p->moments, float_bytes(p->n_trainable * p->n_moments));
    memset(p, 0, sizeof *p);
}

fl_status fl_params_step(fl_params *p, fl_stream *stream, const fl_job *job, int64_t step,
                         double lr, double grad_scale)
{
    for (int layer = p->first_trainable; layer < p->last; layer++) {
        const fl_param_list *list = fl_model_params(p->model, layer);
        int64_t at = fl_params_grad_at(p, layer);
        for (int i = 0; i < list->n; i++) {
            fl_weight *w = &p->layer[layer - p->first].weight[i];
            FL_TRY(fl_optimizer_step(p->device, stream, job, step, lr, grad_scale,
                                     list->spec[i].decay, w->data, p->grad + at, p->moments + at,
                                     p->n_trainable, list->spec[i].rows * list->spec[i].cols));
            w->version++;
            at += padded(&list->spec[i]);
        }
    }
    return p->device->ops->fill_zero(p->device, stream, p->grad, float_bytes(p->n_trainable));
}
