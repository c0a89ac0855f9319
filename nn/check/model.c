/* The samples and shapes that the checks of a model start from. */
#include "device/system/alloc.h"
#include "device/table_head.h"
#include "nn/check/layer.h"
#include "nn/check/loss.h"

#include <string.h>

static const double TOLERANCE = 1e-3;

fl_check_options fl_check_defaults(void)
{
    return (fl_check_options){.layer = -1, .n_samples = 4, .tolerance = TOLERANCE};
}

typedef struct samples {
    int n;
    fl_shape shape[FL_CHECK_SAMPLES_MAX]; /* raw, then the input of the current layer */
    void *input;
    void *targets; /* 4 bytes each, of either type */
    int32_t target_offsets[FL_CHECK_SAMPLES_MAX + 1];
} samples;

static fl_status check_options(const fl_model *model, const fl_check_options *o)
{
    int n_layers = fl_model_n_layers(model);
    if (o->layer < -1 || o->layer > n_layers) {
        return fl_fail(FL_EINVAL, "layer: found %d, allowed: 0 to %d, and %d for the loss",
                       o->layer, n_layers - 1, n_layers);
    }
    if (o->n_samples < 2 || o->n_samples > FL_CHECK_SAMPLES_MAX) {
        return fl_fail(FL_EINVAL, "samples: found %d, allowed: 2 to %d", o->n_samples,
                       FL_CHECK_SAMPLES_MAX);
    }
    if (!(o->tolerance > 0) || !(o->tolerance < 1)) {
        return fl_fail(FL_EINVAL, "tolerance: found %g, allowed: a number above 0 and below 1",
                       o->tolerance);
    }
    return FL_OK;
}

/* Shapes of the first samples, and room for them and their targets. */
static fl_status measure_samples(const fl_dataset *data, samples *s, size_t *bytes)
{
    int64_t n_targets = 0;
    for (int i = 0; i < s->n; i++) {
        FL_TRY(data->ops->shape(data->self, FL_TRAIN, i, &s->shape[i], &n_targets));
        s->target_offsets[i + 1] = (int32_t)(s->target_offsets[i] + n_targets);
        *bytes +=
            (size_t)(s->shape[i].tokens * s->shape[i].width) * fl_dtype_size(s->shape[i].dtype);
    }
    FL_TRY(fl_alloc(*bytes, &s->input));
    return fl_alloc_array((size_t)s->target_offsets[s->n], sizeof(int32_t), &s->targets);
}

static fl_status read_targets(const fl_dataset *data, const samples *s, int i)
{
    const fl_dataset_ops *ops = data->ops;
    return ops->targets_f32 != NULL ? ops->targets_f32(data->self, FL_TRAIN, i,
                                                       (float *)s->targets + s->target_offsets[i])
                                    : ops->targets(data->self, FL_TRAIN, i,
                                                   (int32_t *)s->targets + s->target_offsets[i]);
}

static fl_status read_samples(const fl_dataset *data, samples *s)
{
    size_t bytes = 0, at = 0;
    if (data->ops->count(data->self, FL_TRAIN) < s->n) {
        return fl_fail(FL_EINVAL, "samples: found %d, allowed: at most the data's %lld", s->n,
                       (long long)data->ops->count(data->self, FL_TRAIN));
    }
    FL_TRY(measure_samples(data, s, &bytes));
    for (int i = 0; i < s->n; i++) {
        const fl_sample_key key = {.id = i};
        FL_TRY(data->ops->read(data->self, FL_TRAIN, &key, (char *)s->input + at));
        FL_TRY(read_targets(data, s, i));
        at += (size_t)(s->shape[i].tokens * s->shape[i].width) * fl_dtype_size(s->shape[i].dtype);
    }
    return FL_OK;
}

static fl_status check_layers(const fl_model *model, samples *s, fl_dtype target_dtype,
                              const fl_check_options *o, int *n_failed)
{
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        const fl_layer *l = fl_model_layer(model, i);
        if (o->layer < 0 || o->layer == i) {
            FL_TRY(fl__check_layer(model, i, s->shape, s->n, i == 0 ? s->input : NULL, i > 0, o,
                                   n_failed));
        }
        for (int k = 0; k < s->n; k++) {
            fl_shape out = {0};
            FL_TRY(l->ops->shape(l->self, &s->shape[k], &out));
            s->shape[k] = out;
        }
    }
    if (o->layer >= 0 && o->layer < fl_model_n_layers(model)) {
        return FL_OK;
    }
    const fl_tensor targets = {.data = s->targets,
                               .offsets = s->target_offsets,
                               .offsets_device = s->target_offsets,
                               .n_samples = s->n,
                               .n_tokens = s->target_offsets[s->n],
                               .width = 1,
                               .dtype = target_dtype};
    return fl__check_loss(model, s->shape, &targets, o, n_failed);
}

fl_status fl_check_model(const fl_model *model, const fl_dataset *dataset,
                         const fl_check_options *options, int *n_failed)
{
    const fl_check_options defaults = fl_check_defaults(), *o = options ? options : &defaults;
    fl_shape raw;
    int64_t n_targets = 0;
    *n_failed = 0;
    FL_TRY(check_options(model, o));
    FL_TRY(fl_table_head_check(&dataset->ops->head, sizeof *dataset->ops, "fl_dataset_ops"));
    FL_TRY(dataset->ops->max_shape(dataset->self, &raw, &n_targets));
    FL_TRY(fl_model_check(model, &raw));
    samples s = {.n = o->n_samples};
    fl_status status = read_samples(dataset, &s);
    if (status == FL_OK) {
        status = check_layers(model, &s, fl_dataset_target_dtype(dataset), o, n_failed);
    }
    fl_free(s.input);
    fl_free(s.targets);
    return status;
}
