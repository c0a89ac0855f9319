/* GPT-2 with its language model's head, as GPT2LMHeadModel. */
#include "launcher/hf/hf_family.h"

#include "nn/model.h"

#include <frostline/plan.h>

static fl_status read_sizes(fl_hf_config *c)
{
    fl_gpt2_config *g = &c->gpt2;
    const int64_t most = FL_HF_SIZE_MAX;
    FL_TRY(fl__hf_integer(c, "vocab_size", 50257, 1, most, &g->vocabulary));
    FL_TRY(fl__hf_integer(c, "n_positions", 1024, 1, most, &g->positions));
    FL_TRY(fl__hf_integer(c, "n_embd", 768, 1, most, &g->dim));
    FL_TRY(fl__hf_integer(c, "n_inner", 4 * g->dim, 1, 4 * most, &g->hidden));
    FL_TRY(fl__hf_integer(c, "n_layer", 12, 1, (FL_MAX_LAYERS - 2) / 2, &g->blocks));
    FL_TRY(fl__hf_integer(c, "n_head", 12, 1, most, &g->heads));
    return fl__hf_heads(c, "n_head", g->heads, "n_embd", g->dim);
}

/* What makes another model of GPT-2. */
static fl_status refuse_variants(fl_hf_config *c)
{
    static const char *const unset[] = {"add_cross_attention", "scale_attn_by_inverse_layer_idx",
                                        "pruned_heads", "quantization_config", NULL};
    static const char *const set[] = {"tie_word_embeddings", "scale_attn_weights", NULL};
    FL_TRY(fl__hf_unset(c, unset));
    return fl__hf_set(c, set);
}

static fl_status read_fields(fl_hf_config *c)
{
    fl_gpt2_config *g = &c->gpt2;
    FL_TRY(read_sizes(c));
    FL_TRY(refuse_variants(c));
    FL_TRY(fl__hf_activation(c, "activation_function", FL_ACT_GELU_TANH, &g->activation));
    FL_TRY(fl__hf_positive(c, "layer_norm_epsilon", 1e-5, &g->epsilon));
    FL_TRY(fl__hf_share(c, "embd_pdrop", 0.1, &g->embedding_dropout));
    FL_TRY(fl__hf_share(c, "attn_pdrop", 0.1, &g->attention_dropout));
    return fl__hf_share(c, "resid_pdrop", 0.1, &g->dropout);
}

static fl_status create_model(const fl_hf_config *c, int64_t n_classes, fl_model **out)
{
    (void)n_classes;
    FL_TRY(fl_model_gpt2(&c->gpt2, out));
    fl__model_set_tensor_names(*out, &fl_gpt2_tensor_names,
                               (fl_tensor_sizes){.n_ids = c->gpt2.vocabulary});
    return FL_OK;
}

static const char *const dropouts[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop", NULL};

const fl_hf_family fl__hf_gpt2 = {.model_type = "gpt2",
                                  .architecture = "GPT2LMHeadModel",
                                  .task = FL_HF_LANGUAGE,
                                  .dropouts = dropouts,
                                  .read = read_fields,
                                  .create = create_model};
