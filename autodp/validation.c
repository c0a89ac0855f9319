#include "autodp/validation.h"

#include "autodp/sampler.h"
#include "device/alloc.h"
#include "device/random.h"

/* Stream of the permutation: no epoch of the sampler uses it. */
enum { SPLIT_EPOCH = -1 };

typedef struct view {
    fl_dataset_ops ops; /* the functions of the view, with the kind of the data set itself */
    fl_dataset inner;
    int64_t n_train, n_validation;
    uint64_t seed;
    fl_permutation order; /* of the used training samples */
} view;

/* The position in the data set of a sample of the view. */
static int64_t find(const view *v, fl_split split, int64_t id, fl_split *inner)
{
    bool is_test = split == FL_TEST && id >= v->n_validation;
    *inner = is_test ? FL_TEST : FL_TRAIN;
    return is_test             ? id - v->n_validation
           : split == FL_TRAIN ? fl_permutation_at(&v->order, id)
                               : fl_permutation_at(&v->order, v->n_train + id);
}

static int64_t view_count(const void *self, fl_split split)
{
    const view *v = self;
    return split == FL_TRAIN ? v->n_train
                             : v->n_validation + v->inner.ops->count(v->inner.self, FL_TEST);
}

static fl_status view_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                            int64_t *n_targets)
{
    const view *v = self;
    fl_split inner;
    int64_t at = find(v, split, id, &inner);
    return v->inner.ops->shape(v->inner.self, inner, at, input, n_targets);
}

static fl_status view_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const view *v = self;
    return v->inner.ops->max_shape(v->inner.self, input, n_targets);
}

static fl_status view_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    const view *v = self;
    fl_sample_key inner_key = *key;
    fl_split inner;
    inner_key.id = find(v, split, key->id, &inner);
    return v->inner.ops->read(v->inner.self, inner, &inner_key, input);
}

static fl_status view_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    const view *v = self;
    fl_split inner;
    int64_t at = find(v, split, id, &inner);
    return v->inner.ops->targets(v->inner.self, inner, at, targets);
}

static fl_status view_targets_f32(const void *self, fl_split split, int64_t id, float *targets)
{
    const view *v = self;
    fl_split inner;
    int64_t at = find(v, split, id, &inner);
    return v->inner.ops->targets_f32(v->inner.self, inner, at, targets);
}

static uint64_t view_fingerprint(const void *self)
{
    const view *v = self;
    const fl_dataset_ops *inner = v->inner.ops;
    uint64_t print = inner->fingerprint == NULL ? 1 : inner->fingerprint(v->inner.self);
    print = fl_mix64(print, (uint64_t)v->n_train);
    return fl_mix64(fl_mix64(print, (uint64_t)v->n_validation), v->seed);
}

static const fl_dataset_ops view_ops = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                        .count = view_count,
                                        .shape = view_shape,
                                        .max_shape = view_max_shape,
                                        .read = view_read,
                                        .targets = view_targets,
                                        .fingerprint = view_fingerprint,
                                        .destroy = fl_free};

fl_status fl_validation_create(const fl_dataset *inner, int64_t n_used, int64_t n_validation,
                               uint64_t seed, fl_dataset *out)
{
    void *memory = NULL;
    if (n_validation < 1 || n_validation >= n_used) {
        return fl_fail(FL_EINVAL, "%lld validation samples of %lld; allowed: 1 .. %lld",
                       (long long)n_validation, (long long)n_used, (long long)n_used - 1);
    }
    FL_TRY(fl_alloc(sizeof(view), &memory));
    view *v = memory;
    *v = (view){.ops = view_ops,
                .inner = *inner,
                .n_train = n_used - n_validation,
                .n_validation = n_validation,
                .seed = seed};
    fl_permutation_init(&v->order, n_used, seed, SPLIT_EPOCH);
    v->ops.kind = inner->ops->kind;
    if (inner->ops->targets_f32 != NULL) {
        v->ops.targets = NULL;
        v->ops.targets_f32 = view_targets_f32;
    }
    *out = (fl_dataset){.ops = &v->ops, .self = v};
    return FL_OK;
}

int64_t fl_validation_inner_id(const fl_dataset *dataset, int64_t id)
{
    return dataset->ops->count == view_count
               ? fl_permutation_at(&((const view *)dataset->self)->order, id)
               : id;
}
