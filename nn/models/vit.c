/* The vision transformer, put together from the ready layers: "embed", "blocks.<b>.attn" and
 * "blocks.<b>.mlp" for each block b from 1, as freezing counts them, and "head". */
#include "nn/models/assemble.h"

enum { MLP_RATIO = 4 };

/* Of the last block, the classifier reads the class token alone. */
static fl_status add_block(fl_model *model, const fl_vit_config *c, int block)
{
    const int64_t depth = 2 * c->blocks;
    const fl_attention_config attention = {.dim = c->dim,
                                           .heads = c->heads,
                                           .depth = depth,
                                           .dropout = c->dropout,
                                           .attention_dropout = c->attention_dropout,
                                           .epsilon = c->epsilon,
                                           .first = block == c->blocks,
                                           .deviation = c->deviation};
    const fl_mlp_config mlp = {.dim = c->dim,
                               .hidden = c->hidden == 0 ? MLP_RATIO * c->dim : c->hidden,
                               .depth = depth,
                               .activation =
                                   c->activation == FL_ACT_NONE ? FL_ACT_GELU_TANH : c->activation,
                               .dropout = c->dropout,
                               .epsilon = c->epsilon,
                               .deviation = c->deviation};
    return fl__model_take_block(model, block, &attention, &mlp);
}

static fl_status add_all(fl_model *model, const fl_vit_config *c)
{
    fl_layer layer = {0};
    const fl_patch_embed_config embed = {.channels = c->channels,
                                         .height = c->height,
                                         .width = c->width,
                                         .patch = c->patch,
                                         .dim = c->dim,
                                         .dropout = c->embedding_dropout,
                                         .dtype = c->dtype};
    const fl_classifier_config head = {
        .dim = c->dim, .n_classes = c->n_classes, .epsilon = c->epsilon, .deviation = c->deviation};
    fl_status made = fl_layer_patch_embed_with(&embed, &layer);
    FL_TRY(fl__model_take(model, 1, "embed", made, layer));
    for (int block = 1; block <= c->blocks; block++) {
        FL_TRY(add_block(model, c, block));
    }
    made = fl_layer_classifier_with(&head, &layer);
    FL_TRY(fl__model_take(model, FL_BLOCK_HEAD, "head", made, layer));

    fl_loss loss = {0};
    made = fl_loss_cross_entropy(c->n_classes, &loss);
    return fl__model_take_loss(model, made, loss);
}

fl_status fl_model_vit(const fl_vit_config *config, fl_model **out)
{
    if (config->blocks < 1 || config->blocks > FL_BLOCK_HEAD - 1) {
        return fl_fail(FL_EINVAL, "vit: blocks is %lld, allowed is 1 or more",
                       (long long)config->blocks);
    }
    fl_model *model = NULL;
    FL_TRY(fl_model_create("vit", &model));
    fl_status status = add_all(model, config);
    if (status != FL_OK) {
        fl_model_destroy(&model);
        return fl_within(status, "vit");
    }
    *out = model;
    return FL_OK;
}
