#include "data/read_sample.h"

#include <inttypes.h>

#include "data/view.h"

/* The first element that is no id; -1: none. */
static int64_t find_bad_id(const int32_t *ids, int64_t n, int32_t n_ids)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_ids) {
            return i;
        }
    }
    return -1;
}

fl_status fl_read_sample(const fl_dataset *dataset, fl_split split, const fl_sample_key *key,
                         const fl_shape *shape, void *input)
{
    FL_TRY(dataset->ops->read(dataset->self, split, key, input));
    if (shape->dtype != FL_I32 || shape->n_ids == 0) {
        return FL_OK;
    }
    char sample[FL_SAMPLE_TEXT_BYTES];
    const int32_t *ids = input;
    int64_t at = find_bad_id(ids, shape->tokens * shape->width, shape->n_ids);
    return at < 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s, row %lld: id %d, but the data set (%s) promised 0 to %d",
                         fl_sample_text(dataset, split, key->id, sample),
                         (long long)(at / shape->width), ids[at], dataset->ops->kind,
                         shape->n_ids - 1);
}

fl_status fl__sample_check_id(int64_t id, int64_t n_samples)
{
    return id >= 0 && id < n_samples
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "sample %" PRId64 " does not exist: ids of this split are 0 to %" PRId64,
                         id, n_samples - 1);
}
