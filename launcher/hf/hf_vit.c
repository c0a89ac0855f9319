/* The vision transformer with a classifier, as ViTForImageClassification. */
#include "launcher/hf/hf_family.h"

#include "nn/model.h"

#include <frostline/plan.h>

#include <stdio.h>

static fl_status read_image_sizes(fl_hf_config *c)
{
    fl_vit_config *v = &c->vit;
    char allowed[64];
    FL_TRY(fl__hf_integer(c, "num_channels", 3, 1, 3, &v->channels));
    FL_TRY(fl__hf_integer(c, "image_size", 224, 1, 4096, &v->height));
    FL_TRY(fl__hf_integer(c, "patch_size", 16, 1, 4096, &v->patch));
    v->width = v->height;
    snprintf(allowed, sizeof allowed, "a divisor of image_size, %lld", (long long)v->height);
    return v->height % v->patch == 0
               ? FL_OK
               : fl__hf_refuse(c, "patch_size", json_object_get(c->root, "patch_size"), allowed);
}

static fl_status read_sizes(fl_hf_config *c)
{
    fl_vit_config *v = &c->vit;
    const int64_t most = FL_HF_SIZE_MAX;
    FL_TRY(read_image_sizes(c));
    FL_TRY(fl__hf_integer(c, "hidden_size", 768, 1, most, &v->dim));
    FL_TRY(fl__hf_integer(c, "intermediate_size", 3072, 1, most, &v->hidden));
    FL_TRY(fl__hf_integer(c, "num_hidden_layers", 12, 1, (FL_MAX_LAYERS - 2) / 2, &v->blocks));
    FL_TRY(fl__hf_integer(c, "num_attention_heads", 12, 1, most, &v->heads));
    return fl__hf_heads(c, "num_attention_heads", v->heads, "hidden_size", v->dim);
}

/* What makes another model of ViT. */
static fl_status refuse_variants(fl_hf_config *c)
{
    static const char *const one_label[] = {"single_label_classification", NULL};
    static const char *const unset[] = {"pruned_heads", "quantization_config", NULL};
    static const char *const set[] = {"qkv_bias", NULL};
    int i = 0;
    FL_TRY(fl__hf_unset(c, unset));
    FL_TRY(fl__hf_set(c, set));
    return fl__hf_word(c, "problem_type", one_label, &i);
}

static fl_status read_fields(fl_hf_config *c)
{
    fl_vit_config *v = &c->vit;
    FL_TRY(read_sizes(c));
    FL_TRY(refuse_variants(c));
    FL_TRY(fl__hf_pixels_read(c));
    FL_TRY(fl__hf_activation(c, "hidden_act", FL_ACT_GELU_ERF, &v->activation));
    FL_TRY(fl__hf_positive(c, "layer_norm_eps", 1e-12, &v->epsilon));
    FL_TRY(fl__hf_positive(c, "initializer_range", 0.02, &v->deviation));
    FL_TRY(fl__hf_share(c, "hidden_dropout_prob", 0.0, &v->dropout));
    v->embedding_dropout = v->dropout;
    return fl__hf_share(c, "attention_probs_dropout_prob", 0.0, &v->attention_dropout);
}

static fl_status create_model(const fl_hf_config *c, int64_t n_classes, fl_model **out)
{
    fl_vit_config v = c->vit;
    v.n_classes = n_classes;
    FL_TRY(fl_model_vit(&v, out));
    fl__model_set_tensor_names(*out, &fl_vit_tensor_names,
                               (fl_tensor_sizes){.channels = v.channels, .patch = v.patch});
    return FL_OK;
}

static const char *const dropouts[] = {"hidden_dropout_prob", "attention_probs_dropout_prob", NULL};

const fl_hf_family fl__hf_vit = {.model_type = "vit",
                                 .architecture = "ViTForImageClassification",
                                 .task = FL_HF_IMAGE_CLASSES,
                                 .dropouts = dropouts,
                                 .read = read_fields,
                                 .create = create_model};
