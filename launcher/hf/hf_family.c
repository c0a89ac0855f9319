/* The table of families. */
#include "launcher/hf/hf_family.h"

#include "nn/model.h"

#include <frostline/plan.h>

#include <stdio.h>
#include <string.h>

enum { SIZE_MAX_OF_A_TABLE = 1 << 20 };

/* ---- BERT ---- */

static fl_status read_bert_sizes(fl_hf_config *c)
{
    fl_bert_config *b = &c->bert;
    const int64_t most = SIZE_MAX_OF_A_TABLE;
    FL_TRY(fl__hf_integer(c, "vocab_size", 30522, 1, most, &b->vocabulary));
    FL_TRY(fl__hf_integer(c, "max_position_embeddings", 512, 1, most, &b->positions));
    FL_TRY(fl__hf_integer(c, "type_vocab_size", 2, 1, most, &b->types));
    FL_TRY(fl__hf_integer(c, "hidden_size", 768, 1, most, &b->dim));
    FL_TRY(fl__hf_integer(c, "intermediate_size", 3072, 1, most, &b->hidden));
    FL_TRY(fl__hf_integer(c, "num_hidden_layers", 12, 1, (FL_MAX_LAYERS - 2) / 2, &b->blocks));
    FL_TRY(fl__hf_integer(c, "num_attention_heads", 12, 1, most, &b->heads));
    if (b->dim % b->heads == 0) {
        return FL_OK;
    }
    char allowed[64];
    snprintf(allowed, sizeof allowed, "a divisor of hidden_size, %lld", (long long)b->dim);
    return fl__hf_refuse(c, "num_attention_heads", json_object_get(c->root, "num_attention_heads"),
                         allowed);
}

static fl_status read_bert_activation(fl_hf_config *c)
{
    static const char *const words[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish",
                                        "tanh", NULL};
    static const fl_activation kinds[] = {FL_ACT_GELU_ERF, FL_ACT_GELU_TANH, FL_ACT_GELU_TANH,
                                          FL_ACT_SILU,     FL_ACT_SILU,      FL_ACT_TANH};
    int i = 0;
    FL_TRY(fl__hf_word(c, "hidden_act", words, &i));
    c->bert.activation = kinds[i];
    return FL_OK;
}

/* What makes another model of BERT. */
static fl_status refuse_variants(fl_hf_config *c)
{
    static const char *const absolute[] = {"absolute", NULL};
    static const char *const one_label[] = {"single_label_classification", NULL};
    static const char *const unset[] = {"is_decoder", "add_cross_attention", "pruned_heads",
                                        "quantization_config"};
    int i = 0;
    for (size_t k = 0; k < sizeof unset / sizeof *unset; k++) {
        FL_TRY(fl__hf_unset(c, unset[k]));
    }
    FL_TRY(fl__hf_word(c, "position_embedding_type", absolute, &i));
    return fl__hf_word(c, "problem_type", one_label, &i);
}

static fl_status read_bert(fl_hf_config *c)
{
    fl_bert_config *b = &c->bert;
    const json_t *padding = json_object_get(c->root, "pad_token_id");
    FL_TRY(read_bert_sizes(c));
    FL_TRY(read_bert_activation(c));
    FL_TRY(refuse_variants(c));
    FL_TRY(fl__hf_positive(c, "layer_norm_eps", 1e-12, &b->epsilon));
    FL_TRY(fl__hf_positive(c, "initializer_range", 0.02, &b->deviation));
    FL_TRY(fl__hf_share(c, "hidden_dropout_prob", 0.1, &b->dropout));
    FL_TRY(fl__hf_share(c, "attention_probs_dropout_prob", 0.1, &b->attention_dropout));
    FL_TRY(fl__hf_share(c, "classifier_dropout", (double)b->dropout, &b->head_dropout));
    b->has_padding = !json_is_null(padding);
    return b->has_padding ? fl__hf_integer(c, "pad_token_id", 0, 0, b->vocabulary - 1, &b->padding)
                          : FL_OK;
}

static fl_status create_bert(const fl_hf_config *c, int64_t n_classes, fl_model **out)
{
    fl_bert_config b = c->bert;
    b.n_classes = n_classes;
    FL_TRY(fl_model_bert(&b, out));
    fl__model_set_tensor_names(*out, &fl_bert_tensor_names);
    return FL_OK;
}

static bool bert_has_types(const fl_hf_config *c)
{
    return c->bert.types > 1;
}

/* ---- the table ---- */

static const fl_hf_family families[] = {
    {"bert", "BertForSequenceClassification", read_bert, create_bert, bert_has_types},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

fl_status fl__hf_family_find(const fl_hf_config *c, const fl_hf_family **out)
{
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    char allowed[128] = "";
    size_t used = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        if (type != NULL && strcmp(type, families[i].model_type) == 0) {
            *out = &families[i];
            return FL_OK;
        }
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i == 0 ? "" : ", ",
                                 families[i].model_type);
    }
    return type == NULL
               ? fl__hf_refuse(c, "model_type", json_object_get(c->root, "model_type"), allowed)
               : fl_fail(FL_ENOTSUP, "%s: model_type: found %.64s, allowed: %s", c->path, type,
                         allowed);
}
