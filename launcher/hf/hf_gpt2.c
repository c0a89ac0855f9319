/* GPT-2 with its language model's head, as GPT2LMHeadModel. */
#include "launcher/hf/hf_family.h"

#include "nn/model.h"

#include <frostline/plan.h>

#define EPSILON 1e-5
#define DEVIATION 0.02

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
    FL_TRY(fl__hf_positive(c, "layer_norm_epsilon", EPSILON, &g->epsilon));
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

/* ---- without a folder ---- */

static json_t *make_root(const fl_gpt2_config *g, int32_t end_id)
{
    json_t *end = end_id < 0 ? json_null() : json_integer(end_id);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:n, s:s, s:f, s:f, s:i, s:i, s:i, s:O, s:o, "
                     "s:b}",
                     "model_type", "gpt2", "vocab_size", (json_int_t)g->vocabulary, "n_positions",
                     (json_int_t)g->positions, "n_embd", (json_int_t)g->dim, "n_layer",
                     (json_int_t)g->blocks, "n_head", (json_int_t)g->heads, "n_inner",
                     "activation_function", "gelu_new", "layer_norm_epsilon", EPSILON,
                     "initializer_range", DEVIATION, "embd_pdrop", 0, "attn_pdrop", 0,
                     "resid_pdrop", 0, "bos_token_id", end, "eos_token_id", end,
                     "tie_word_embeddings", 1);
}

fl_status fl_hf_config_gpt2(const fl_gpt2_config *model, int32_t end_id, fl_hf_config *out)
{
    *out = (fl_hf_config){.path = "config.json", .family = &fl__hf_gpt2};
    out->root = make_root(model, end_id);
    fl_status status =
        out->root != NULL ? read_fields(out) : fl_fail(FL_ENOMEM, "no memory for config.json");
    if (status != FL_OK) {
        fl_hf_config_fini(out);
    }
    return status;
}

static const char *const dropouts[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop", NULL};

const fl_hf_family fl__hf_gpt2 = {.model_type = "gpt2",
                                  .architecture = "GPT2LMHeadModel",
                                  .task = FL_HF_LANGUAGE,
                                  .dropouts = dropouts,
                                  .read = read_fields,
                                  .create = create_model};
