/* GPT-2, put together from the ready layers: "embed", "blocks.<b>.attn" and "blocks.<b>.mlp" for
 * each block b from 1, as freezing counts them, and "head", whose weight is the token embedding. */
#include "nn/models/assemble.h"

enum { MLP_RATIO = 4 };

/* Of all weights as the model begins. */
#define DEVIATION 0.02f

static fl_status add_block(fl_model *model, const fl_gpt2_config *c, int block)
{
    const fl_attention_config attention = {.dim = c->dim,
                                           .heads = c->heads,
                                           .depth = 2 * c->blocks,
                                           .causal = true,
                                           .dropout = c->dropout,
                                           .attention_dropout = c->attention_dropout,
                                           .epsilon = c->epsilon,
                                           .deviation = DEVIATION};
    const fl_mlp_config mlp = {.dim = c->dim,
                               .hidden = c->hidden == 0 ? MLP_RATIO * c->dim : c->hidden,
                               .depth = 2 * c->blocks,
                               .activation =
                                   c->activation == FL_ACT_NONE ? FL_ACT_GELU_TANH : c->activation,
                               .dropout = c->dropout,
                               .epsilon = c->epsilon,
                               .deviation = DEVIATION};
    return fl__model_take_block(model, block, &attention, &mlp);
}

static fl_status add_embedding(fl_model *model, const fl_gpt2_config *c)
{
    fl_layer layer = {0};
    const fl_embedding_config config = {.rows = fl_lm_head_rows(c->vocabulary),
                                        .n_ids = c->vocabulary,
                                        .positions = c->positions,
                                        .dim = c->dim,
                                        .dropout = c->embedding_dropout,
                                        .dtype = c->dtype};
    fl_status made = fl_layer_embedding(&config, &layer);
    return fl__model_take(model, 1, "embed", made, layer);
}

static fl_status add_head(fl_model *model, const fl_gpt2_config *c)
{
    fl_layer layer = {0};
    fl_loss loss = {0};
    const fl_lm_head_config config = {
        .dim = c->dim, .vocabulary = c->vocabulary, .epsilon = c->epsilon};
    fl_status made = fl_layer_lm_head(&config, &layer);
    FL_TRY(fl__model_take(model, FL_BLOCK_HEAD, "head", made, layer));
    FL_TRY(fl_model_tie(model, "embed.token", "head.fc.weight"));
    made = fl_loss_lm_head(&config, &loss);
    return fl__model_take_loss(model, made, loss);
}

static fl_status add_all(fl_model *model, const fl_gpt2_config *c)
{
    FL_TRY(add_embedding(model, c));
    for (int block = 1; block <= c->blocks; block++) {
        FL_TRY(add_block(model, c, block));
    }
    return add_head(model, c);
}

static fl_status check_size(const char *name, int64_t value, int64_t most)
{
    return value >= 1 && value <= most
               ? FL_OK
               : fl_fail(FL_EINVAL, "gpt2: %s is %lld, allowed is 1 to %lld", name,
                         (long long)value, (long long)most);
}

fl_status fl_model_gpt2(const fl_gpt2_config *config, fl_model **out)
{
    fl_model *model = NULL;
    FL_TRY(check_size("blocks", config->blocks, FL_BLOCK_HEAD - 1));
    FL_TRY(check_size("positions", config->positions, INT32_MAX));
    FL_TRY(check_size("vocabulary", config->vocabulary, INT32_MAX));
    FL_TRY(fl_model_create("gpt2", &model));
    fl_status status = add_all(model, config);
    if (status != FL_OK) {
        fl_model_destroy(&model);
        return fl_within(status, "gpt2");
    }
    *out = model;
    return FL_OK;
}
