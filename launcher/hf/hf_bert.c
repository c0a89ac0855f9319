/* BERT with a classifier, as BertForSequenceClassification. */
#include "launcher/hf/hf_family.h"

#include "nn/model.h"

#include <frostline/plan.h>

static fl_status read_sizes(fl_hf_config *c)
{
    fl_bert_config *b = &c->bert;
    const int64_t most = FL_HF_SIZE_MAX;
    FL_TRY(fl__hf_integer(c, "vocab_size", 30522, 1, most, &b->vocabulary));
    FL_TRY(fl__hf_integer(c, "max_position_embeddings", 512, 1, most, &b->positions));
    FL_TRY(fl__hf_integer(c, "type_vocab_size", 2, 1, most, &b->types));
    FL_TRY(fl__hf_integer(c, "hidden_size", 768, 1, most, &b->dim));
    FL_TRY(fl__hf_integer(c, "intermediate_size", 3072, 1, most, &b->hidden));
    FL_TRY(fl__hf_integer(c, "num_hidden_layers", 12, 1, (FL_MAX_LAYERS - 2) / 2, &b->blocks));
    FL_TRY(fl__hf_integer(c, "num_attention_heads", 12, 1, most, &b->heads));
    return fl__hf_heads(c, "num_attention_heads", b->heads, "hidden_size", b->dim);
}

/* What makes another model of BERT. */
static fl_status refuse_variants(fl_hf_config *c)
{
    static const char *const absolute[] = {"absolute", NULL};
    static const char *const one_label[] = {"single_label_classification", NULL};
    static const char *const unset[] = {"is_decoder", "add_cross_attention", "pruned_heads",
                                        "quantization_config", NULL};
    int i = 0;
    FL_TRY(fl__hf_unset(c, unset));
    FL_TRY(fl__hf_word(c, "position_embedding_type", absolute, &i));
    return fl__hf_word(c, "problem_type", one_label, &i);
}

static fl_status read_fields(fl_hf_config *c)
{
    fl_bert_config *b = &c->bert;
    const json_t *padding = json_object_get(c->root, "pad_token_id");
    FL_TRY(read_sizes(c));
    FL_TRY(fl__hf_activation(c, "hidden_act", FL_ACT_GELU_ERF, &b->activation));
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

static fl_status create_model(const fl_hf_config *c, int64_t n_classes, fl_model **out)
{
    fl_bert_config b = c->bert;
    b.n_classes = n_classes;
    FL_TRY(fl_model_bert(&b, out));
    fl__model_set_tensor_names(*out, &fl_bert_tensor_names, (fl_tensor_sizes){0});
    return FL_OK;
}

static fl_status create_span_model(const fl_hf_config *c, int64_t n_classes, fl_model **out)
{
    fl_bert_config b = c->bert;
    (void)n_classes;
    b.head = FL_BERT_ANSWERS;
    FL_TRY(fl_model_bert(&b, out));
    fl__model_set_tensor_names(*out, &fl_bert_span_tensor_names, (fl_tensor_sizes){0});
    return FL_OK;
}

static bool has_types(const fl_hf_config *c)
{
    return c->bert.types > 1;
}

static const char *const dropouts[] = {"hidden_dropout_prob", "attention_probs_dropout_prob",
                                       "classifier_dropout", NULL};

const fl_hf_family fl__hf_bert = {.model_type = "bert",
                                  .architecture = "BertForSequenceClassification",
                                  .task = FL_HF_TEXT_CLASSES,
                                  .dropouts = dropouts,
                                  .read = read_fields,
                                  .create = create_model,
                                  .has_types = has_types};

const fl_hf_family fl__hf_bert_answers = {.model_type = "bert",
                                          .architecture = "BertForQuestionAnswering",
                                          .task = FL_HF_ANSWERS,
                                          .dropouts = dropouts,
                                          .read = read_fields,
                                          .create = create_span_model,
                                          .has_types = has_types};
