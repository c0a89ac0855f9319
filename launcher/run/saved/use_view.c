#include "launcher/run/saved/use_view.h"

#include "device/system/alloc.h"

#include <string.h>

typedef struct use_view {
    fl_view base; /* the functions of the view, with the kind of the data set itself */
    fl_split split;
    int64_t n;
    int64_t ids[]; /* [n] */
} use_view;

static fl_sample_id own_sample(const void *self, fl_split split, int64_t id)
{
    const use_view *v = self;
    (void)split;
    return (fl_sample_id){v->split, v->ids[id]};
}

static int64_t count_samples(const void *self, fl_split split)
{
    const use_view *v = self;
    (void)split;
    return v->n;
}

static fl_status sample_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                              int64_t *n_targets)
{
    const use_view *v = self;
    (void)split;
    return v->base.of.ops->shape(v->base.of.self, v->split, v->ids[id], input, n_targets);
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const use_view *v = self;
    return v->base.of.ops->max_shape(v->base.of.self, input, n_targets);
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const use_view *v = self;
    fl_sample_key inner = *key;
    (void)split;
    inner.id = v->ids[key->id];
    return v->base.of.ops->read(v->base.of.self, v->split, &inner, input);
}

static fl_status read_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    const use_view *v = self;
    (void)split;
    return v->base.of.ops->targets(v->base.of.self, v->split, v->ids[id], targets);
}

static fl_status read_targets_f32(const void *self, fl_split split, int64_t id, float *targets)
{
    const use_view *v = self;
    (void)split;
    return v->base.of.ops->targets_f32(v->base.of.self, v->split, v->ids[id], targets);
}

fl_status fl_use_view_create(const fl_dataset *inner, fl_split split, const int64_t *ids, int64_t n,
                             fl_dataset *out)
{
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(use_view) + (size_t)n * sizeof *ids, &memory));
    use_view *v = memory;
    v->split = split;
    v->n = n;
    memcpy(v->ids, ids, (size_t)n * sizeof *ids);
    v->base.of = *inner;
    v->base.own = own_sample;
    v->base.ops = (fl_dataset_ops){.head = FL_TABLE_HEAD(fl_dataset_ops),
                                   .kind = inner->ops->kind,
                                   .count = count_samples,
                                   .shape = sample_shape,
                                   .max_shape = max_shape,
                                   .read = read_sample,
                                   .destroy = fl_view_destroy};
    if (inner->ops->targets_f32 != NULL) {
        v->base.ops.targets_f32 = read_targets_f32;
    } else {
        v->base.ops.targets = read_targets;
    }
    *out = (fl_dataset){.ops = &v->base.ops, .self = v};
    return FL_OK;
}
