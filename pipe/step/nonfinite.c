#include "pipe/step/nonfinite.h"

#include "device/cpu/bf16.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/step/input/augmentation.h"
#include "pipe/step/pipeline_state.h"

#include <math.h>
#include <string.h>

enum { KINDS = 8, CHUNK = 2048, MEMBERS_AT_ONCE = FL_GROUP_ALL_REDUCE_MAX / 2 };

/* What this worker has found so far. */
struct fl_nonfinite_search {
    double key;          /* 0: nothing */
    int64_t sample;      /* -1: of no single one */
    unsigned char *rows; /* [n_rows * stride] the samples of a micro-batch, host memory */
    size_t stride;       /* bytes */
    size_t *place;       /* [n_rows] where each begins */
    int32_t *which;      /* [n_rows] 0, 1, ... */
    int64_t n_rows;      /* samples that there is room for */
};

/* ---- the order of findings ---- */

double fl_nonfinite_key(fl_nonfinite_where where, int layer, int n_layers)
{
    int order = where == FL_NONFINITE_LOSS       ? n_layers
                : where == FL_NONFINITE_GRADIENT ? 2 * n_layers - layer
                                                 : layer;
    return where == FL_NONFINITE_NOWHERE ? 0.0 : (double)(order * KINDS + (int)where);
}

void fl_nonfinite_of_key(double key, int n_layers, fl_nonfinite *out)
{
    int order = (int)key / KINDS;
    out->where = (fl_nonfinite_where)((int)key % KINDS);
    out->layer = out->where == FL_NONFINITE_GRADIENT ? 2 * n_layers - order : order;
    if (out->where == FL_NONFINITE_NOWHERE || out->where == FL_NONFINITE_LOSS) {
        out->layer = -1;
    }
}

static void note(fl_pipeline *p, fl_nonfinite_where where, int layer, int64_t sample)
{
    fl_nonfinite_search *s = p->search;
    double key = fl_nonfinite_key(where, layer, fl_model_n_layers(p->o.model));
    if (s->key == 0.0 || key < s->key) {
        s->key = key;
        s->sample = sample;
    }
}

/* ---- looking at values ---- */

/* The index of the first of n values in device memory that is not finite; n: all are. dtype: FL_F32
 * or FL_BF16, which is widened in its place. */
static fl_status find_value(fl_pipeline *p, fl_dtype dtype, const void *values, int64_t n,
                            int64_t *at)
{
    float chunk[CHUNK] = {0};
    fl_device *d = p->o.device;
    const size_t element = fl_dtype_size(dtype);
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t left = n - first < CHUNK ? n - first : CHUNK;
        unsigned char *to = (unsigned char *)(chunk + left) - (size_t)left * element;
        FL_TRY(d->ops->copy_out(d, p->stream, to,
                                (const unsigned char *)values + (size_t)first * element,
                                (size_t)left * element));
        FL_TRY(d->ops->sync(d, p->stream));
        if (dtype == FL_BF16) {
            fl_bf16_widen(to, left, chunk);
        }
        for (int64_t i = 0; i < left; i++) {
            if (!isfinite(chunk[i])) {
                *at = first + i;
                return FL_OK;
            }
        }
    }
    *at = n;
    return FL_OK;
}

/* Of a micro-batch's tensor: the sample whose rows hold the first such value; -1: none does. */
static fl_status find_sample(fl_pipeline *p, int slot, const fl_tensor *t, int64_t *sample)
{
    int64_t n = t->n_tokens * t->width, at, i = 0;
    *sample = -1;
    if (t->data == NULL || t->dtype == FL_I32) {
        return FL_OK;
    }
    FL_TRY(find_value(p, t->dtype, t->data, n, &at));
    if (at < n) {
        while (t->offsets[i + 1] <= at / t->width) {
            i++;
        }
        *sample = fl_stage_sample(p->stage, slot, i);
    }
    return FL_OK;
}

static fl_status look_at_weights(fl_pipeline *p, int layer)
{
    const fl_params *params = fl_stage_params(p->stage);
    const fl_layer_params *mine = &params->layer[layer - params->first];
    for (int i = 0; i < mine->n; i++) {
        int64_t n = mine->weight[i].rows * mine->weight[i].cols, at;
        FL_TRY(find_value(p, FL_F32, mine->weight[i].data, n, &at));
        if (at < n) {
            note(p, FL_NONFINITE_WEIGHT, layer, -1);
        }
    }
    return FL_OK;
}

/* ---- the hooks ---- */

static fl_status make_room(fl_pipeline *p, const fl_tensor *input)
{
    fl_nonfinite_search *s = p->search;
    const fl_dataset *d = p->o.dataset;
    fl_shape raw;
    int64_t n_targets;
    FL_TRY(d->ops->max_shape(d->self, &raw, &n_targets));
    size_t stride = (size_t)(raw.tokens * raw.width) * fl_dtype_size(raw.dtype);
    for (int64_t i = 0; i < input->n_samples; i++) {
        size_t bytes = (size_t)((input->offsets[i + 1] - input->offsets[i]) * input->width) *
                       fl_dtype_size(input->dtype);
        stride = bytes > stride ? bytes : stride;
    }
    if (input->n_samples <= s->n_rows && stride <= s->stride) {
        return FL_OK;
    }
    fl_free(s->rows);
    fl_free(s->which);
    fl_free(s->place);
    s->rows = NULL;
    s->which = NULL;
    s->place = NULL;
    s->n_rows = input->n_samples;
    s->stride = (stride + 63) / 64 * 64;
    FL_TRY(fl_alloc_array((size_t)s->n_rows, s->stride, (void **)&s->rows));
    FL_TRY(fl_alloc_array((size_t)s->n_rows, sizeof *s->place, (void **)&s->place));
    return fl_alloc_array((size_t)s->n_rows, sizeof *s->which, (void **)&s->which);
}

static fl_status read_sample(fl_pipeline *p, const fl_micro_batch *what, int64_t i, void *out)
{
    const fl_dataset *d = p->o.dataset;
    int F = p->o.plan->F;
    fl_sample_key key = {.seed = what->seed,
                         .epoch = fl_augment_epoch(p->o.job, F, what->epoch),
                         .id = what->ids[i],
                         .augment = fl_augment_applies(p->o.job, F)};
    fl_shape shape;
    int64_t n_targets;
    FL_TRY(d->ops->shape(d->self, what->split, key.id, &shape, &n_targets));
    FL_TRY(d->ops->read(d->self, what->split, &key, out));
    const float *values = out;
    for (int64_t v = 0; shape.dtype == FL_F32 && v < shape.tokens * shape.width; v++) {
        if (!isfinite(values[v])) {
            note(p, FL_NONFINITE_INPUT, 0, key.id);
            break;
        }
    }
    return FL_OK;
}

/* What the frozen layers make of the samples is computed, not read from the cache. */
fl_status fl__nonfinite_read(fl_pipeline *p, int slot, const fl_micro_batch *what,
                             const fl_tensor *input)
{
    FL_TRY(make_room(p, input));
    fl_nonfinite_search *s = p->search;
    for (int64_t i = 0; i < what->n; i++) {
        s->which[i] = (int32_t)i;
        s->place[i] = (size_t)i * s->stride;
        FL_TRY(read_sample(p, what, i, s->rows + s->place[i]));
    }
    fl_tensor entry = *input;
    if (p->stage_input.feed != NULL && what->n > 0) {
        FL_TRY(fl_stage_fill(p->stage, slot, 0, s->which, what->n, s->rows, s->place));
        entry = fl_stage_boundary(p->stage, slot, p->stage_input.o.n_frozen);
    }
    const fl_stage_rows rows = {.last = what->n, .base = s->rows, .place = s->place};
    FL_TRY(fl_stage_put_rows(p->stage, &entry, &rows));
    return fl_pipeline_wait(p); /* the next micro-batch's samples come to the same rows */
}

fl_status fl__nonfinite_forward(fl_pipeline *p, int slot)
{
    int first = p->o.plan->first[p->place.stage];
    int n = p->o.plan->first[p->place.stage + 1] - first;
    for (int i = 1; i <= n; i++) {
        fl_tensor out = fl_stage_boundary(p->stage, slot, i);
        int64_t sample;
        FL_TRY(find_sample(p, slot, &out, &sample));
        if (sample >= 0) {
            note(p, FL_NONFINITE_OUTPUT, first + i - 1, sample);
            return look_at_weights(p, first + i - 1);
        }
    }
    return FL_OK;
}

fl_status fl__nonfinite_loss(fl_pipeline *p, int slot)
{
    fl_tensor grad;
    int64_t sample;
    fl_stage_grad_out(p->stage, slot, &grad);
    FL_TRY(find_sample(p, slot, &grad, &sample));
    FL_TRY(fl__pipeline_read_sums(p));
    if (sample >= 0 || !isfinite(p->sums.loss)) {
        note(p, FL_NONFINITE_LOSS, 0, sample);
    }
    return FL_OK;
}

/* The sums over the micro-batches so far of a layer's gradients. */
static fl_status look_at_grads(fl_pipeline *p, int layer, bool *bad)
{
    const fl_params *params = fl_stage_params(p->stage);
    const fl_layer_params *mine = &params->layer[layer - params->first];
    for (int i = 0; i < mine->n && !*bad; i++) {
        int64_t n = mine->weight[i].rows * mine->weight[i].cols, at = n;
        if (mine->grad[i] != NULL) {
            FL_TRY(find_value(p, FL_F32, mine->grad[i], n, &at));
        }
        *bad = at < n;
    }
    return FL_OK;
}

fl_status fl__nonfinite_backward(fl_pipeline *p, int slot, int layer)
{
    const fl_params *params = fl_stage_params(p->stage);
    int64_t sample = -1;
    bool bad = false;
    bool has_grad_in = layer > params->first_trainable ||
                       (p->trains_below && params->first_trainable == params->first);
    if (has_grad_in) {
        fl_tensor grad = fl_stage_grad_in(p->stage, slot, layer);
        FL_TRY(find_sample(p, slot, &grad, &sample));
    }
    FL_TRY(look_at_grads(p, layer, &bad));
    if (sample >= 0 || bad) {
        note(p, FL_NONFINITE_GRADIENT, layer, sample);
    }
    return FL_OK;
}

/* ---- the search ---- */

/* Gather the findings of all workers, as key and sample; all of them take the earliest. */
static fl_status agree(fl_pipeline *p, fl_nonfinite *found)
{
    int n_members = p->K * p->R, me = p->place.replica * p->K + p->place.stage;
    double values[2 * MEMBERS_AT_ONCE], earliest = 0.0;
    *found = (fl_nonfinite){.layer = -1, .rank = -1, .sample = -1};
    for (int first = 0; first < n_members; first += MEMBERS_AT_ONCE) {
        int n = n_members - first < MEMBERS_AT_ONCE ? n_members - first : MEMBERS_AT_ONCE;
        memset(values, 0, sizeof values);
        if (me >= first && me < first + n) {
            values[2 * (me - first)] = p->search->key;
            values[2 * (me - first) + 1] = (double)p->search->sample;
        }
        FL_TRY(fl_group_all_reduce(p->o.group, values, 2 * n, fl__pipeline_deadline_us(p)));
        for (int i = 0; i < n; i++) {
            if (values[2 * i] > 0.0 && (earliest == 0.0 || values[2 * i] < earliest)) {
                earliest = values[2 * i];
                found->rank = fl_plan_active(p->o.plan, first + i);
                found->sample = (int64_t)values[2 * i + 1];
            }
        }
    }
    fl_nonfinite_of_key(earliest, fl_model_n_layers(p->o.model), found);
    return FL_OK;
}

static fl_status search(fl_pipeline *p, fl_nonfinite *found)
{
    fl_params *params = fl_stage_params(p->stage);
    int64_t not_counted[FL_CLOCK_PARTS];
    FL_TRY(fl__pipeline_clear_sums(p));
    FL_TRY(fl__pipeline_run_ops(p));
    FL_TRY(fl_params_clear_grad(params));
    FL_TRY(fl_pipeline_wait(p));
    FL_TRY(fl_device_clock_read(&p->clock, not_counted, NULL, NULL));
    return agree(p, found);
}

fl_status fl_pipeline_find_nonfinite(fl_pipeline *p, const fl_global_batch *batch,
                                     fl_nonfinite *found)
{
    fl_nonfinite_search mine = {.sample = -1};
    if (batch->step != p->now.batch.step || batch->split != FL_TRAIN) {
        return fl_fail(FL_EINTERNAL, "step %lld is not the one that was computed last",
                       (long long)batch->step);
    }
    p->search = &mine;
    fl_captured_step_interrupt(&p->captured);
    fl_status status = search(p, found);
    p->search = NULL;
    if (status != FL_OK) {
        fl__pipeline_settle(p); /* the stream may still use the rows */
    }
    fl_free(mine.rows);
    fl_free(mine.which);
    fl_free(mine.place);
    return status;
}
