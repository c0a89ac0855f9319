#include "support/data/text.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

enum { DIM = 24, HEADS = 3 };

typedef struct text {
    int64_t n[2];
} text;

static uint64_t draw(fl_split split, int64_t id, uint64_t what)
{
    return fl_mix64(fl_mix64((uint64_t)split + 5, (uint64_t)id), what) >> 16;
}

static int64_t count(const void *self, fl_split split)
{
    return ((const text *)self)->n[split];
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    (void)self;
    *input = (fl_shape){.tokens = TEXT_LONGEST, .width = 1, .dtype = FL_I32, .n_ids = TEXT_IDS};
    *n_targets = TEXT_LONGEST;
    return FL_OK;
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    FL_TRY(max_shape(self, input, n_targets));
    *n_targets = input->tokens = 1 + (int64_t)(draw(split, id, 1) % TEXT_LONGEST);
    return FL_OK;
}

/* Token `place` of a sample; each follows from the one before, but for every fifth. */
static int32_t token(fl_split split, int64_t id, int64_t place)
{
    uint64_t now = draw(split, id, 2) % TEXT_IDS;
    for (int64_t i = 1; i <= place; i++) {
        now = i % 5 == 0 ? draw(split, id, 2 + (uint64_t)i) % TEXT_IDS : (3 * now + 1) % TEXT_IDS;
    }
    return (int32_t)now;
}

static fl_status read_ids(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    fl_shape one;
    int64_t n_targets;
    FL_TRY(shape(self, split, key->id, &one, &n_targets));
    for (int64_t i = 0; i < one.tokens; i++) {
        ((int32_t *)input)[i] = token(split, key->id, i);
    }
    return FL_OK;
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    fl_shape one;
    int64_t n_targets;
    FL_TRY(shape(self, split, id, &one, &n_targets));
    for (int64_t i = 0; i < n_targets; i++) {
        out[i] = token(split, id, i + 1);
    }
    return FL_OK;
}

static uint64_t fingerprint(const void *self)
{
    return fl_mix64(3, (uint64_t)((const text *)self)->n[0]);
}

static const fl_dataset_ops ops = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                   .kind = "text",
                                   .count = count,
                                   .shape = shape,
                                   .max_shape = max_shape,
                                   .read = read_ids,
                                   .targets = targets,
                                   .fingerprint = fingerprint,
                                   .destroy = fl_free};

fl_status text_dataset(int64_t n, fl_dataset *out)
{
    void *self = NULL;
    FL_TRY(fl_alloc(sizeof(text), &self));
    *(text *)self = (text){.n = {n, n / 4}};
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

static fl_status add_block(fl_model *model, int64_t block, int64_t depth, float dropout)
{
    fl_layer l = {0};
    fl_status made = fl_layer_attention(&(fl_attention_config){.dim = DIM,
                                                               .heads = HEADS,
                                                               .depth = depth,
                                                               .causal = true,
                                                               .dropout = dropout,
                                                               .attention_dropout = dropout},
                                        &l);
    FL_TRY(add(model, block, made, &l));
    made = fl_layer_mlp(&(fl_mlp_config){.dim = DIM,
                                         .hidden = 2 * DIM,
                                         .depth = depth,
                                         .activation = FL_ACT_GELU_ERF,
                                         .dropout = dropout,
                                         .epsilon = 1e-12f},
                        &l);
    return add(model, block, made, &l);
}

static fl_status fill(fl_model *model, int64_t blocks, float dropout, int64_t n_rows)
{
    fl_layer l = {0};
    fl_loss loss = {0};
    fl_status made = fl_layer_embedding(
        &(fl_embedding_config){
            .rows = n_rows, .positions = TEXT_LONGEST, .dim = DIM, .dropout = dropout},
        &l);
    FL_TRY(add(model, 1, made, &l));
    for (int64_t b = 1; b <= blocks; b++) {
        FL_TRY(add_block(model, b, 2 * blocks, dropout));
    }
    made = fl_layer_norm(&(fl_norm_config){.dim = DIM, .kind = FL_NORM_RMS}, &l);
    FL_TRY(add(model, FL_BLOCK_HEAD, made, &l));
    made = fl_layer_linear(DIM, TEXT_IDS, &l);
    FL_TRY(add(model, FL_BLOCK_HEAD, made, &l));
    FL_TRY(fl_loss_cross_entropy(TEXT_IDS, &loss));
    return fl_model_set_loss(model, loss);
}

fl_status text_model(int64_t blocks, float dropout, int64_t n_rows, fl_model **out)
{
    fl_model *model = NULL;
    FL_TRY(fl_model_create("text", &model));
    fl_status status = fill(model, blocks, dropout, n_rows);
    if (status != FL_OK) {
        fl_model_destroy(&model);
    }
    *out = model;
    return status;
}
