#include "pipe/state/params.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/cost/layout.h"

#include <string.h>

int64_t fl_params_grad_at(const fl_params *params, int layer)
{
    return params->grad_at[layer - params->first];
}

static size_t float_bytes(int64_t n)
{
    return (size_t)n * fl_dtype_size(FL_F32);
}

/* One part of a parameter to `to`: where the host cannot write there, through host memory of its
 * size. */
static fl_status load_tensor(fl_params *p, const fl_state_source *source, int layer, int index,
                             int part, float *to)
{
    const fl_param_spec *spec = &fl_model_params(p->model, layer)->spec[index];
    const fl_device_ops *ops = p->device->ops;
    size_t size_bytes = float_bytes(spec->rows * spec->cols);
    void *start = NULL;
    if (ops->host_memory) {
        FL_TRY(ops->sync(p->device, p->stream));
        return source->read(source->self, layer, index, part, to);
    }
    FL_TRY(fl_alloc(size_bytes, &start));
    fl_status status = source->read(source->self, layer, index, part, start);
    if (status == FL_OK) {
        status = ops->copy_in(p->device, p->stream, to, start, size_bytes);
    }
    fl_status copied = ops->sync(p->device, p->stream); /* `start` is the copy's until then */
    status = status == FL_OK ? copied : status;
    fl_free(start);
    return status;
}

static fl_status load_layer(fl_params *p, const fl_state_source *source, int layer)
{
    const fl_layer_params *mine = &p->layer[layer - p->first];
    float *moments = p->moments[layer - p->first];
    int64_t n = fl_params_layer_count(p, layer), at = 0;
    int n_moments = moments != NULL && source->has_moments ? p->n_moments : 0;
    for (int i = 0; i < mine->n; i++) {
        FL_TRY(load_tensor(p, source, layer, i, FL_STATE_WEIGHT, mine->weight[i].data));
    }
    for (int i = 0; i < mine->n; i++) {
        for (int k = 0; k < n_moments; k++) {
            FL_TRY(load_tensor(p, source, layer, i, FL_STATE_MOMENT + k, moments + k * n + at));
        }
        at += fl_layout_param(&fl_model_params(p->model, layer)->spec[i]);
    }
    return FL_OK;
}

void fl_params_take_weight(fl_params *p, int layer, float *weight)
{
    const fl_param_list *list = fl_model_params(p->model, layer);
    fl_layer_params *mine = &p->layer[layer - p->first];
    int64_t at = 0;
    p->weight[layer - p->first] = weight;
    for (int i = 0; i < mine->n; i++) {
        mine->weight[i].data = weight + at;
        at += fl_layout_param(&list->spec[i]);
    }
}

/* The gradient of a tied parameter; NULL: it is frozen. */
static float *tie_grad(const fl_params *p, int tie)
{
    for (int i = 0; i < p->n_ties; i++) {
        if (p->tie[i].tie == tie) {
            return p->grad + p->tie[i].at;
        }
    }
    return NULL;
}

/* Where the layer's parameters and gradients lie, as far as they are there. */
static fl_status layer_init(fl_params *p, int layer)
{
    const fl_param_list *list = fl_model_params(p->model, layer);
    fl_layer_params *mine = &p->layer[layer - p->first];
    if (list->n == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_array((size_t)list->n, sizeof *mine->weight, (void **)&mine->weight));
    FL_TRY(fl_alloc_array((size_t)list->n, sizeof *mine->grad, (void **)&mine->grad));
    mine->n = list->n;
    int64_t at = fl_params_grad_at(p, layer);
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *spec = &list->spec[i];
        int tie = fl_model_tie_of(p->model, layer, i);
        mine->weight[i] = (fl_weight){.rows = spec->rows, .cols = spec->cols, .version = 1};
        if (layer >= p->first_trainable) {
            mine->grad[i] = tie < 0 ? p->grad + at : tie_grad(p, tie);
            at += tie < 0 ? fl_layout_param(spec) : 0;
        }
    }
    return FL_OK;
}

static fl_status take(const fl_params_options *o, int64_t n, const char *what, float **out)
{
    return o->reserve ? fl_device_reserve(o->device, float_bytes(n), (void **)out)
                      : fl_device_alloc(o->device, float_bytes(n), what, (void **)out);
}

int64_t fl_params_layer_count(const fl_params *p, int layer)
{
    return p->layer_at[layer - p->first + 1] - p->layer_at[layer - p->first];
}

/* The layer's own memory, but for what will be handed over. */
static fl_status layer_take(fl_params *p, const fl_params_options *o, int layer)
{
    int i = layer - p->first;
    int64_t n = fl_params_layer_count(p, layer);
    int handed = o->handed == NULL ? 0 : o->handed[layer];
    float *weight = NULL;
    FL_TRY(layer_init(p, layer));
    if (n > 0 && (handed & FL_HANDED_WEIGHT) == 0) {
        FL_TRY(take(o, n, "weights", &weight));
        fl_params_take_weight(p, layer, weight);
    }
    if (n * p->n_moments > 0 && layer >= p->first_trainable && (handed & FL_HANDED_MOMENTS) == 0) {
        FL_TRY(take(o, n * p->n_moments, "moments", &p->moments[i]));
    }
    return o->source != NULL && weight != NULL ? load_layer(p, o->source, layer) : FL_OK;
}

/* Touched before the first step if they count from now on: it is not to be slower. */
static fl_status take_grad(fl_params *p, const fl_params_options *o)
{
    size_t size_bytes = float_bytes(p->n_grad);
    if (!o->reserve) {
        FL_TRY(fl_device_claim(p->device, size_bytes, "gradients"));
        p->grad_counted = true;
    }
    FL_TRY(fl_device_share(p->device, size_bytes, (void **)&p->grad, &p->grad_shared));
    return o->reserve ? FL_OK
                      : p->device->ops->fill_zero(p->device, p->stream, p->grad, size_bytes);
}

/* Elements of the gradients of a layer's untied parameters. */
static int64_t untied_count(const fl_params *p, int layer)
{
    const fl_param_list *list = fl_model_params(p->model, layer);
    int64_t n = 0;
    for (int i = 0; i < list->n; i++) {
        n += list->spec[i].tie == 0 ? fl_layout_param(&list->spec[i]) : 0;
    }
    return n;
}

/* Whether some use of the tie trains here, and the layer that its norm counts for. */
static bool find_tie(const fl_params *p, const fl_tie *tie, int n_frozen, int *norm_of)
{
    bool here = false;
    for (int k = 0; k < tie->n; k++) {
        here = here || (tie->use[k].layer >= p->first && tie->use[k].layer < p->last);
    }
    int first = tie->use[0].layer;
    *norm_of = first >= p->first && first < p->last ? first : -1;
    return here && fl_tie_trains(tie, n_frozen);
}

static fl_status lay_out_grad(fl_params *p, int n_frozen)
{
    size_t n_layers = (size_t)(p->last - p->first);
    FL_TRY(fl_alloc_array(n_layers + 1, sizeof *p->grad_at, (void **)&p->grad_at));
    FL_TRY(fl_alloc_array((size_t)fl_model_n_ties(p->model), sizeof *p->tie, (void **)&p->tie));
    for (int layer = p->first; layer < p->last; layer++) {
        int64_t n = layer < p->first_trainable ? 0 : untied_count(p, layer);
        p->grad_at[layer - p->first + 1] = p->grad_at[layer - p->first] + n;
    }
    p->n_grad = p->grad_at[n_layers];
    for (int i = 0; i < fl_model_n_ties(p->model); i++) {
        const fl_tie *tie = fl_model_tie_at(p->model, i);
        fl_params_tie *mine = &p->tie[p->n_ties];
        if (find_tie(p, tie, n_frozen, &mine->norm_of)) {
            const fl_param_place first = tie->use[0];
            mine->tie = i;
            mine->at = p->n_grad;
            mine->n = fl_layout_param(&fl_model_params(p->model, first.layer)->spec[first.param]);
            p->n_grad += mine->n;
            p->n_ties++;
        }
    }
    return FL_OK;
}

/* The lists that a step fills. */
static fl_status take_lists(fl_params *p)
{
    size_t n_layers = (size_t)(p->last - p->first);
    for (int layer = p->first_trainable; layer < p->last; layer++) {
        p->n_updates += fl_model_params(p->model, layer)->n;
    }
    FL_TRY(fl_alloc_array((size_t)p->n_updates, sizeof *p->update, (void **)&p->update));
    FL_TRY(
        fl_alloc_array((size_t)p->n_updates, sizeof *p->update_since, (void **)&p->update_since));
    size_t n_sums = n_layers + (size_t)p->n_ties;
    FL_TRY(fl_alloc_array(n_sums, sizeof *p->square_sum, (void **)&p->square_sum));
    FL_TRY(fl_alloc_array((size_t)p->n_ties, sizeof *p->tie_square, (void **)&p->tie_square));
    return fl_device_reserve(p->device, n_sums * sizeof *p->squares, (void **)&p->squares);
}

static fl_status fill(fl_params *p, const fl_params_options *o)
{
    size_t n_layers = (size_t)(p->last - p->first);
    FL_TRY(fl_alloc_array(n_layers, sizeof *p->layer, (void **)&p->layer));
    FL_TRY(fl_alloc_array(n_layers, sizeof *p->weight, (void **)&p->weight));
    FL_TRY(fl_alloc_array(n_layers, sizeof *p->moments, (void **)&p->moments));
    FL_TRY(fl_alloc_array(n_layers + 1, sizeof *p->layer_at, (void **)&p->layer_at));
    for (int layer = p->first; layer < p->last; layer++) {
        p->layer_at[layer - p->first + 1] =
            p->layer_at[layer - p->first] + fl_layout_count(p->model, layer, layer + 1);
    }
    p->n = p->layer_at[n_layers];
    FL_TRY(lay_out_grad(p, o->n_frozen));
    FL_TRY(take_lists(p));
    FL_TRY(take_grad(p, o));
    for (int layer = p->first; layer < p->last; layer++) {
        FL_TRY(layer_take(p, o, layer));
    }
    return FL_OK;
}

fl_status fl_params_init(fl_params *params, const fl_params_options *o)
{
    *params = (fl_params){.device = o->device,
                          .stream = o->stream,
                          .model = o->model,
                          .first = o->first,
                          .last = o->last,
                          .first_trainable = o->first_trainable,
                          .n_moments = o->n_moments,
                          .state_counted = !o->reserve};
    fl_status status = fill(params, o);
    if (status != FL_OK) {
        fl_params_fini(params);
    }
    return status;
}

static void give(fl_params *p, bool counted, float **memory, int64_t n)
{
    (counted ? fl_device_free : fl_device_drop)(p->device, *memory, float_bytes(n));
    *memory = NULL;
}

void fl_params_drop_grad(fl_params *p)
{
    size_t size_bytes = float_bytes(p->n_grad);
    fl_device_unshare(p->device, p->grad, size_bytes, &p->grad_shared);
    p->grad = NULL;
    if (p->grad_counted) {
        fl_device_disclaim(p->device, size_bytes);
        p->grad_counted = false;
    }
}

void fl_params_drop_state(fl_params *p)
{
    for (int layer = p->first; p->layer_at != NULL && layer < p->last; layer++) {
        int64_t n = fl_params_layer_count(p, layer);
        give(p, p->state_counted, &p->weight[layer - p->first], n);
        give(p, p->state_counted, &p->moments[layer - p->first], n * p->n_moments);
    }
}

fl_status fl_params_claim_state(fl_params *p)
{
    int64_t n = 0;
    if (p->state_counted) {
        return FL_OK;
    }
    for (int layer = p->first; layer < p->last; layer++) {
        int64_t count = fl_params_layer_count(p, layer);
        n += p->weight[layer - p->first] != NULL ? count : 0;
        n += p->moments[layer - p->first] != NULL ? count * p->n_moments : 0;
    }
    FL_TRY(fl_device_claim(p->device, float_bytes(n), "weights and moments"));
    p->state_counted = true;
    return FL_OK;
}

fl_status fl_params_claim_grad(fl_params *p)
{
    if (!p->grad_counted) {
        FL_TRY(fl_device_claim(p->device, float_bytes(p->n_grad), "gradients"));
    }
    p->grad_counted = true;
    return FL_OK;
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
    fl_params_drop_grad(p);
    if (p->weight != NULL && p->moments != NULL) {
        fl_params_drop_state(p);
    }
    fl_device_drop(p->device, p->squares,
                   (size_t)(p->last - p->first + p->n_ties) * sizeof *p->squares);
    fl_free(p->tie_square);
    fl_free(p->update);
    fl_free(p->update_since);
    fl_free(p->square_sum);
    fl_free(p->layer);
    fl_free(p->weight);
    fl_free(p->moments);
    fl_free(p->layer_at);
    fl_free(p->grad_at);
    fl_free(p->tie);
    memset(p, 0, sizeof *p);
}

static int64_t since_of(const fl_params *p, int layer, int param)
{
    int tie = p->since == NULL ? -1 : fl_model_tie_of(p->model, layer, param);
    int64_t since = p->since == NULL ? 0 : p->since[layer];
    const fl_tie *uses = tie < 0 ? NULL : fl_model_tie_at(p->model, tie);
    for (int k = 0; uses != NULL && k < uses->n; k++) {
        int64_t other = p->since[uses->use[k].layer];
        since = other > since ? other : since;
    }
    return since;
}

/* The updates of one layer's parameters, from p->update[at] on; returns how many. */
static int list_updates(fl_params *p, const fl_job *job, int layer, int at)
{
    fl_update *list = p->update + at;
    const fl_param_list *params = fl_model_params(p->model, layer);
    const fl_layer_params *mine = &p->layer[layer - p->first];
    int64_t n = fl_params_layer_count(p, layer), in = 0;
    float *moments = p->moments[layer - p->first];
    int n_updates = 0;
    for (int i = 0; i < params->n; i++) {
        const fl_param_spec *spec = &params->spec[i];
        fl_weight *w = &mine->weight[i];
        if (mine->grad[i] != NULL) { /* a tied parameter may be frozen in a layer that trains */
            p->update_since[at + n_updates] = since_of(p, layer, i);
            fl_update *update = &list[n_updates++];
            w->version++;
            *update =
                (fl_update){.w = w->data,
                            .g = mine->grad[i],
                            .n = spec->rows * spec->cols,
                            .weight_decay = spec->decay ? (float)job->train.weight_decay : 0.0f,
                            .rate = (float)fl_layer_rate(job, p->model, layer, i)};
            for (int k = 0; k < p->n_moments; k++) {
                update->moment[k] = moments + k * n + in;
            }
        }
        in += fl_layout_param(spec);
    }
    return n_updates;
}

fl_status fl_params_read_weights(const fl_params *p, int layer, float *room, const float **out)
{
    const fl_device_ops *ops = p->device->ops;
    const float *weight = p->weight[layer - p->first];
    size_t size_bytes = float_bytes(fl_params_layer_count(p, layer));
    *out = ops->host_memory ? weight : room;
    if (!ops->host_memory && size_bytes > 0) {
        FL_TRY(ops->copy_out(p->device, p->stream, room, weight, size_bytes));
    }
    return ops->sync(p->device, p->stream);
}

fl_status fl_params_step(fl_params *p, const fl_job *job, int64_t step, double lr,
                         double grad_scale)
{
    int n = 0;
    for (int layer = p->first_trainable; layer < p->last; layer++) {
        n += list_updates(p, job, layer, n);
    }
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && p->update_since[end] == p->update_since[i]; end++) {
        }
        FL_TRY(fl_optimizer_step(p->device, p->stream, job, step - p->update_since[i], lr,
                                 grad_scale, p->update + i, end - i));
    }
    return fl_params_clear_grad(p);
}

fl_status fl_params_clear_grad(fl_params *p)
{
    return p->device->ops->fill_zero(p->device, p->stream, p->grad, float_bytes(p->n_grad));
}
