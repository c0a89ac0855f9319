#include "data/loader.h"

fl_status fl_load_targets(const fl_dataset *dataset, fl_split split, const int64_t *ids, int64_t n,
                          int32_t *data, int64_t capacity, int32_t *offsets, fl_tensor *out)
{
    int64_t used = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        fl_shape shape;
        int64_t n_targets = 0;
        FL_TRY(dataset->ops->shape(dataset->self, split, ids[i], &shape, &n_targets));
        if (n_targets < 0 || n_targets > capacity - used || used + n_targets > INT32_MAX) {
            return fl_fail(FL_EINVAL,
                           "the %lld targets of sample %lld do not fit: %lld of %lld "
                           "in use",
                           (long long)n_targets, (long long)ids[i], (long long)used,
                           (long long)capacity);
        }
        FL_TRY(dataset->ops->targets(dataset->self, split, ids[i], data + used));
        used += n_targets;
        offsets[i + 1] = (int32_t)used;
    }
    *out = (fl_tensor){.data = data,
                       .offsets = offsets,
                       .offsets_device = offsets,
                       .n_samples = n,
                       .n_tokens = used,
                       .width = 1,
                       .dtype = FL_I32};
    return FL_OK;
}
