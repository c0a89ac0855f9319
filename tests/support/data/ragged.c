#include "support/data/ragged.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

#include <math.h>

enum { DIM = 24, HEADS = 3 };

typedef struct ragged {
    int64_t n[2];
    ragged_length *length;
    bool per_token;
} ragged;

static float draw(fl_split split, int64_t id, uint64_t what)
{
    uint64_t key = fl_mix64((uint64_t)split + 17, (uint64_t)id);
    return fl_unit((uint32_t)(fl_mix64(key, what) >> 32));
}

int64_t ragged_like_sst2(fl_split split, int64_t id)
{
    double u = (double)draw(split, id, 1);
    int64_t length = RAGGED_SHORTEST + (int64_t)(-10.0 * log(1.0 - u));
    return length < RAGGED_LONGEST ? length : RAGGED_LONGEST;
}

int64_t ragged_all_ones(fl_split split, int64_t id)
{
    (void)split, (void)id;
    return 1;
}

int64_t ragged_one_giant(fl_split split, int64_t id)
{
    return split == FL_TRAIN && id == 7 ? RAGGED_LONGEST : 1 + id % 3;
}

int64_t ragged_two_lengths(fl_split split, int64_t id)
{
    return draw(split, id, 2) < 0.5f ? RAGGED_SHORTEST : RAGGED_LONGEST;
}

static int64_t count(const void *self, fl_split split)
{
    return ((const ragged *)self)->n[split];
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    const ragged *r = self;
    *input = (fl_shape){.tokens = r->length(split, id), .width = RAGGED_WIDTH, .dtype = FL_F32};
    *n_targets = r->per_token ? input->tokens : 1;
    return FL_OK;
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const ragged *r = self;
    *input = (fl_shape){.tokens = RAGGED_LONGEST, .width = RAGGED_WIDTH, .dtype = FL_F32};
    *n_targets = r->per_token ? RAGGED_LONGEST : 1;
    return FL_OK;
}

static int class_of(fl_split split, int64_t id, int64_t token)
{
    return (int)(draw(split, id, 3 + (uint64_t)token) * RAGGED_CLASSES);
}

/* Of which class a token tells: its own, or its sample's. */
static int told_class(const ragged *r, fl_split split, int64_t id, int64_t token)
{
    return class_of(split, id, r->per_token ? token : 0);
}

/* Noise, and a sign of the class in one of the features. Augmentation draws other noise. */
static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const ragged *r = self;
    int64_t tokens = r->length(split, key->id);
    uint64_t epoch = key->augment ? fl_mix64(key->seed, (uint64_t)key->epoch) : 0;
    float *value = input;
    for (int64_t t = 0; t < tokens; t++) {
        int which = told_class(r, split, key->id, t);
        for (int i = 0; i < RAGGED_WIDTH; i++) {
            uint64_t element = (uint64_t)(t * RAGGED_WIDTH + i) + 1000;
            *value++ = draw(split, key->id, element + 7919 * (epoch % 1000)) - 0.5f +
                       (i == which ? 1.0f : 0.0f);
        }
    }
    return FL_OK;
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    const ragged *r = self;
    for (int64_t t = 0; t < (r->per_token ? r->length(split, id) : 1); t++) {
        out[t] = told_class(r, split, id, t);
    }
    return FL_OK;
}

static uint64_t fingerprint(const void *self)
{
    const ragged *r = self;
    return fl_mix64((uint64_t)r->n[0], (uint64_t)r->length(FL_TRAIN, 7) + r->per_token);
}

static const fl_dataset_ops ops = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                   .kind = "ragged",
                                   .count = count,
                                   .shape = shape,
                                   .max_shape = max_shape,
                                   .read = read_sample,
                                   .targets = targets,
                                   .fingerprint = fingerprint,
                                   .destroy = fl_free};

fl_status ragged_dataset(int64_t n, ragged_length *length, bool per_token, fl_dataset *out)
{
    void *self = NULL;
    FL_TRY(fl_alloc(sizeof(ragged), &self));
    *(ragged *)self = (ragged){.n = {n, n / 4}, .length = length, .per_token = per_token};
    *out = (fl_dataset){.ops = &ops, .self = self};
    return FL_OK;
}

/* ---- the model ---- */

static fl_status add(fl_model *model, int64_t block, fl_status made, const fl_layer *layer)
{
    FL_TRY(made);
    fl_status status = fl_model_add(model, (int)block, *layer);
    if (status != FL_OK && layer->ops->destroy != NULL) {
        layer->ops->destroy(layer->self);
    }
    return status;
}

static fl_status add_blocks(fl_model *model, int64_t blocks, float dropout, bool per_token)
{
    int64_t depth = 2 * blocks;
    fl_layer l = {0};
    for (int64_t b = 1; b <= blocks; b++) {
        const fl_attention_config attention = {.dim = DIM,
                                               .heads = HEADS,
                                               .depth = depth,
                                               .dropout = dropout,
                                               .first = b == blocks && !per_token};
        fl_status made = fl_layer_attention(&attention, &l);
        FL_TRY(add(model, b, made, &l));
        made = fl_layer_mlp(&(fl_mlp_config){.dim = DIM,
                                             .hidden = 4 * DIM,
                                             .dropout = dropout,
                                             .depth = depth,
                                             .activation = FL_ACT_GELU_TANH},
                            &l);
        FL_TRY(add(model, b, made, &l));
    }
    return FL_OK;
}

static fl_status fill(fl_model *model, int64_t blocks, float dropout, bool per_token)
{
    fl_layer l = {0};
    fl_loss loss = {0};
    fl_status made = fl_layer_linear(RAGGED_WIDTH, DIM, &l);
    FL_TRY(add(model, 1, made, &l));
    FL_TRY(add_blocks(model, blocks, dropout, per_token));
    made = per_token ? fl_layer_linear(DIM, RAGGED_CLASSES, &l)
                     : fl_layer_classifier(DIM, RAGGED_CLASSES, &l);
    FL_TRY(add(model, FL_BLOCK_HEAD, made, &l));
    FL_TRY(fl_loss_cross_entropy(RAGGED_CLASSES, &loss));
    return fl_model_set_loss(model, loss);
}

fl_status ragged_model(int64_t blocks, float dropout, bool per_token, fl_model **out)
{
    fl_model *model = NULL;
    FL_TRY(fl_model_create("ragged", &model));
    fl_status status = fill(model, blocks, dropout, per_token);
    if (status != FL_OK) {
        fl_model_destroy(&model);
    }
    *out = model;
    return status;
}
