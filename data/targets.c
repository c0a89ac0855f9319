#include "data/loader.h"
#include "data/view.h"

#include "device/table_head.h"

_Static_assert(sizeof(int32_t) == FL_TARGET_BYTES && sizeof(float) == FL_TARGET_BYTES,
               "both types of targets fit one buffer");

fl_status fl_targets_check(const fl_dataset_ops *ops)
{
    bool classes = ops->targets != NULL, values = ops->targets_f32 != NULL;
    return classes != values
               ? FL_OK
               : fl_fail(FL_EINVAL, "data set (%s): %s found, allowed: targets or targets_f32",
                         ops->kind, classes ? "targets and targets_f32" : "no targets");
}

fl_status fl_dataset_check(const fl_dataset_ops *ops)
{
    if (ops == NULL) {
        return fl_fail(FL_EINVAL, "the data set has no table (ops is NULL)");
    }
    FL_TRY(fl_table_head_check(&ops->head, sizeof *ops, "fl_dataset_ops"));
    const char *missing = ops->kind == NULL        ? "kind"
                          : ops->count == NULL     ? "count"
                          : ops->shape == NULL     ? "shape"
                          : ops->max_shape == NULL ? "max_shape"
                          : ops->read == NULL      ? "read"
                                                   : NULL;
    if (missing != NULL) {
        return fl_fail(FL_EINVAL, "the data set's table has no %s", missing);
    }
    return fl_targets_check(ops);
}

static fl_status read_targets(const fl_dataset *dataset, fl_split split, int64_t id, void *out)
{
    const fl_dataset_ops *ops = dataset->ops;
    return ops->targets_f32 != NULL ? ops->targets_f32(dataset->self, split, id, out)
                                    : ops->targets(dataset->self, split, id, out);
}

fl_status fl_load_targets(const fl_dataset *dataset, fl_split split, const int64_t *ids, int64_t n,
                          void *data, int64_t capacity, int32_t *offsets, fl_tensor *out)
{
    int64_t used = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        fl_shape shape;
        int64_t n_targets = 0;
        FL_TRY(dataset->ops->shape(dataset->self, split, ids[i], &shape, &n_targets));
        if (n_targets < 0 || n_targets > capacity - used || used + n_targets > INT32_MAX) {
            char sample[FL_SAMPLE_TEXT_BYTES];
            return fl_fail(FL_EINVAL,
                           "the %lld targets of %s do not fit: %lld of %lld "
                           "in use",
                           (long long)n_targets, fl_sample_text(dataset, split, ids[i], sample),
                           (long long)used, (long long)capacity);
        }
        FL_TRY(read_targets(dataset, split, ids[i], (char *)data + used * FL_TARGET_BYTES));
        used += n_targets;
        offsets[i + 1] = (int32_t)used;
    }
    *out = (fl_tensor){.data = data,
                       .offsets = offsets,
                       .offsets_device = offsets,
                       .n_samples = n,
                       .n_tokens = used,
                       .width = 1,
                       .dtype = fl_dataset_target_dtype(dataset)};
    return FL_OK;
}
