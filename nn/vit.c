/* The vision transformer, put together from the ready layers: "embed", "blocks.<b>.attn" and
 * "blocks.<b>.mlp" for each block b from 1, as freezing counts them, and "head". */
#include <frostline/model.h>

#include <stdio.h>

enum { MLP_RATIO = 4 };

/* Takes over what a constructor made: into the model, or away. */
static fl_status add(fl_model *model, int block, const char *name, fl_status made, fl_layer layer)
{
    if (made != FL_OK) {
        return made;
    }
    fl_status status = fl_model_add_named(model, block, name, layer);
    if (status != FL_OK) {
        layer.ops->destroy(layer.self);
    }
    return status;
}

/* Of the last block, the classifier reads the class token alone. */
static fl_status add_block(fl_model *model, const fl_vit_config *c, int block)
{
    const int64_t depth = 2 * c->blocks;
    fl_layer layer = {0};
    char name[FL_LAYER_NAME_MAX];
    const fl_attention_config attention = {.dim = c->dim,
                                           .heads = c->heads,
                                           .depth = depth,
                                           .dropout = c->dropout,
                                           .first = block == c->blocks};
    const fl_mlp_config mlp = {.dim = c->dim,
                               .hidden = MLP_RATIO * c->dim,
                               .depth = depth,
                               .activation = FL_ACT_GELU_TANH,
                               .dropout = c->dropout};
    fl_status made = fl_layer_attention(&attention, &layer);
    snprintf(name, sizeof name, "blocks.%d.attn", block);
    FL_TRY(add(model, block, name, made, layer));
    made = fl_layer_mlp(&mlp, &layer);
    snprintf(name, sizeof name, "blocks.%d.mlp", block);
    return add(model, block, name, made, layer);
}

static fl_status add_all(fl_model *model, const fl_vit_config *c)
{
    fl_layer layer = {0};
    fl_status made =
        fl_layer_patch_embed(c->channels, c->height, c->width, c->patch, c->dim, &layer);
    FL_TRY(add(model, 1, "embed", made, layer));
    for (int block = 1; block <= c->blocks; block++) {
        FL_TRY(add_block(model, c, block));
    }
    made = fl_layer_classifier(c->dim, c->n_classes, &layer);
    FL_TRY(add(model, FL_BLOCK_HEAD, "head", made, layer));

    fl_loss loss = {0};
    FL_TRY(fl_loss_cross_entropy(c->n_classes, &loss));
    fl_status status = fl_model_set_loss(model, loss);
    if (status != FL_OK) {
        loss.ops->destroy(loss.self);
    }
    return status;
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
