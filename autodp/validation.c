#include "autodp/validation.h"

#include "autodp/sampler.h"
#include "data/view.h"
#include "device/random/random.h"
#include "device/system/alloc.h"

/* Stream of the permutation: no epoch of the sampler uses it. */
enum { SPLIT_EPOCH = -1 };

typedef struct view {
    fl_view base; /* the functions of the view, with the kind of the data set itself */
    int64_t n_train, n_validation;
    uint64_t seed;
    fl_permutation order; /* of the used training samples */
} view;

/* The position in the data set of a sample of the view. */
static fl_sample_id view_own(const void *self, fl_split split, int64_t id)
{
    const view *v = self;
    bool is_test = split == FL_TEST && id >= v->n_validation;
    int64_t at = split == FL_TRAIN ? id : v->n_train + id;
    return is_test ? (fl_sample_id){FL_TEST, id - v->n_validation}
                   : (fl_sample_id){FL_TRAIN, fl_permutation_at(&v->order, at)};
}

static int64_t view_count(const void *self, fl_split split)
{
    const view *v = self;
    return split == FL_TRAIN ? v->n_train
                             : v->n_validation + v->base.of.ops->count(v->base.of.self, FL_TEST);
}

static fl_status view_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                            int64_t *n_targets)
{
    const view *v = self;
    fl_sample_id own = view_own(v, split, id);
    return v->base.of.ops->shape(v->base.of.self, own.split, own.id, input, n_targets);
}

static fl_status view_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const view *v = self;
    return v->base.of.ops->max_shape(v->base.of.self, input, n_targets);
}

static fl_status view_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    const view *v = self;
    fl_sample_key inner_key = *key;
    fl_sample_id own = view_own(v, split, key->id);
    inner_key.id = own.id;
    return v->base.of.ops->read(v->base.of.self, own.split, &inner_key, input);
}

static fl_status view_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    const view *v = self;
    fl_sample_id own = view_own(v, split, id);
    return v->base.of.ops->targets(v->base.of.self, own.split, own.id, targets);
}

static fl_status view_targets_f32(const void *self, fl_split split, int64_t id, float *targets)
{
    const view *v = self;
    fl_sample_id own = view_own(v, split, id);
    return v->base.of.ops->targets_f32(v->base.of.self, own.split, own.id, targets);
}

static uint64_t view_fingerprint(const void *self)
{
    const view *v = self;
    const fl_dataset_ops *inner = v->base.of.ops;
    uint64_t print = inner->fingerprint == NULL ? 1 : inner->fingerprint(v->base.of.self);
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
                                        .destroy = fl_view_destroy};

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
    *v = (view){.base = {.ops = view_ops, .of = *inner, .own = view_own},
                .n_train = n_used - n_validation,
                .n_validation = n_validation,
                .seed = seed};
    fl_permutation_init(&v->order, n_used, seed, SPLIT_EPOCH);
    v->base.ops.kind = inner->ops->kind;
    if (inner->ops->targets_f32 != NULL) {
        v->base.ops.targets = NULL;
        v->base.ops.targets_f32 = view_targets_f32;
    }
    *out = (fl_dataset){.ops = &v->base.ops, .self = v};
    return FL_OK;
}
