/* BERT, put together from the ready layers: "embed", "blocks.<b>.attn" and "blocks.<b>.mlp" for
 * each block b from 1, as freezing counts them, and "head". */
#include "nn/models/assemble.h"

/* What the original has where a configuration leaves it open. */
#define EPSILON 1e-12f
#define DEVIATION 0.02f

/* Of the last block, a head that classifies reads the first token alone. */
static fl_status add_block(fl_model *model, const fl_bert_config *c, int block)
{
    const fl_attention_config attention = {.dim = c->dim,
                                           .heads = c->heads,
                                           .depth = 1,
                                           .dropout = c->dropout,
                                           .attention_dropout = c->attention_dropout,
                                           .epsilon = c->epsilon,
                                           .first =
                                               block == c->blocks && c->head == FL_BERT_CLASSIFIES,
                                           .norm = FL_NORM_AFTER,
                                           .deviation = c->deviation};
    const fl_mlp_config mlp = {.dim = c->dim,
                               .hidden = c->hidden,
                               .depth = 1,
                               .activation = c->activation,
                               .dropout = c->dropout,
                               .epsilon = c->epsilon,
                               .norm = FL_NORM_AFTER,
                               .deviation = c->deviation};
    return fl__model_take_block(model, block, &attention, &mlp);
}

static fl_status add_embedding(fl_model *model, const fl_bert_config *c)
{
    fl_layer layer = {0};
    const fl_embedding_config embedding = {.rows = c->vocabulary,
                                           .positions = c->positions,
                                           .types = c->types,
                                           .dim = c->dim,
                                           .dropout = c->dropout,
                                           .norm = true,
                                           .epsilon = c->epsilon,
                                           .deviation = c->deviation,
                                           .has_padding = c->has_padding,
                                           .padding = c->padding,
                                           .dtype = c->dtype};
    fl_status made = fl_layer_embedding(&embedding, &layer);
    return fl__model_take(model, 1, "embed", made, layer);
}

/* As BertForQuestionAnswering: no pooler, no dropout. */
static fl_status add_span_head(fl_model *model, const fl_bert_config *c)
{
    fl_layer layer = {0};
    fl_status made = fl_layer_linear_normal(c->dim, 2, c->deviation, &layer);
    FL_TRY(fl__model_take(model, FL_BLOCK_HEAD, "head", made, layer));
    return fl__model_take_loss(model, FL_OK, fl_loss_span());
}

static fl_status add_head(fl_model *model, const fl_bert_config *c)
{
    fl_layer layer = {0};
    const fl_pooled_classifier_config head = {.dim = c->dim,
                                              .n_classes = c->n_classes,
                                              .dropout = c->head_dropout,
                                              .deviation = c->deviation};
    fl_status made = fl_layer_pooled_classifier(&head, &layer);
    FL_TRY(fl__model_take(model, FL_BLOCK_HEAD, "head", made, layer));

    fl_loss loss = {0};
    made = fl_loss_cross_entropy(c->n_classes, &loss);
    return fl__model_take_loss(model, made, loss);
}

static fl_status add_all(fl_model *model, const fl_bert_config *c)
{
    FL_TRY(add_embedding(model, c));
    for (int block = 1; block <= c->blocks; block++) {
        FL_TRY(add_block(model, c, block));
    }
    return c->head == FL_BERT_ANSWERS ? add_span_head(model, c) : add_head(model, c);
}

fl_status fl_model_bert(const fl_bert_config *config, fl_model **out)
{
    fl_bert_config c = *config;
    if (c.blocks < 1 || c.blocks > FL_BLOCK_HEAD - 1) {
        return fl_fail(FL_EINVAL, "bert: blocks is %lld, allowed is 1 or more",
                       (long long)c.blocks);
    }
    c.epsilon = c.epsilon == 0.0f ? EPSILON : c.epsilon;
    c.deviation = c.deviation == 0.0f ? DEVIATION : c.deviation;
    fl_model *model = NULL;
    FL_TRY(fl_model_create("bert", &model));
    fl_status status = add_all(model, &c);
    if (status != FL_OK) {
        fl_model_destroy(&model);
        return fl_within(status, "bert");
    }
    *out = model;
    return FL_OK;
}
