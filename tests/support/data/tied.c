#include "support/data/tied.h"

#include <stddef.h>

/* ---- y = x w^T ---- */

static fl_status square_shape(void *self, const fl_shape *in, fl_shape *out)
{
    (void)self;
    *out = *in;
    return in->width == TIED_DIM ? FL_OK : fl_fail(FL_EINVAL, "takes rows of %d", TIED_DIM);
}

static fl_status square_params(void *self, fl_param_list *list)
{
    (void)self;
    return fl_param_list_add(list, "weight", TIED_DIM, TIED_DIM, FL_INIT_NORMAL, 0.25F, true);
}

static fl_status square_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    return fl_linear(
        x, &(fl_linear_args){
               .in = in->data, .w = fl_exec_weight(x, 0), .y = out->data, .m = in->n_tokens});
}

static fl_status square_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                 fl_tensor *grad_in)
{
    (void)self;
    int64_t m = grad_out->n_tokens;
    if (grad_in != NULL) {
        FL_TRY(
            fl_linear_backward_input(x, &(fl_linear_backward_input_args){.grad_out = grad_out->data,
                                                                         .w = fl_exec_weight(x, 0),
                                                                         .grad_in = grad_in->data,
                                                                         .m = m}));
    }
    if (fl_exec_grad(x, 0) == NULL) {
        return FL_OK;
    }
    return fl_linear_backward_weights(
        x, &(fl_linear_backward_weights_args){.grad_out = grad_out->data,
                                              .in = fl_exec_input(x)->data,
                                              .grad_w = fl_exec_grad(x, 0),
                                              .m = m,
                                              .n_out = TIED_DIM,
                                              .n_in = TIED_DIM});
}

static const fl_layer_ops square = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                    .kind = "square",
                                    .shape = square_shape,
                                    .params = square_params,
                                    .forward = square_forward,
                                    .backward = square_backward};

/* ---- the model ---- */

const int tied_layer[TIED_USES] = {1, 4, 7};

static fl_status add_block(fl_model *model, int block, const char *attn, const char *mlp,
                           float dropout)
{
    const fl_attention_config attention = {
        .dim = TIED_DIM, .heads = 3, .depth = TIED_LAYERS, .dropout = dropout};
    const fl_mlp_config wide = {.dim = TIED_DIM,
                                .hidden = 2 * TIED_DIM,
                                .depth = TIED_LAYERS,
                                .activation = FL_ACT_GELU_TANH,
                                .dropout = dropout};
    fl_layer layer;
    FL_TRY(fl_layer_attention(&attention, &layer));
    FL_TRY(fl_model_add_named(model, block, attn, layer));
    if (mlp == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_layer_mlp(&wide, &layer));
    return fl_model_add_named(model, block, mlp, layer);
}

static fl_status add_all(fl_model *model, float dropout)
{
    fl_layer layer;
    FL_TRY(fl_layer_patch_embed(1, 14, 14, 7, TIED_DIM, &layer));
    FL_TRY(fl_model_add_named(model, 1, "embed", layer));
    FL_TRY(fl_model_add_named(model, 1, "below", (fl_layer){&square, NULL}));
    FL_TRY(add_block(model, 1, "blocks.1.attn", "blocks.1.mlp", dropout));
    FL_TRY(fl_model_add_named(model, 2, "middle", (fl_layer){&square, NULL}));
    FL_TRY(add_block(model, 2, "blocks.2.attn", NULL, dropout));
    FL_TRY(add_block(model, 3, "blocks.3.attn", NULL, dropout));
    FL_TRY(fl_model_add_named(model, FL_BLOCK_HEAD, "above", (fl_layer){&square, NULL}));
    FL_TRY(fl_layer_classifier(TIED_DIM, 4, &layer));
    return fl_model_add_named(model, FL_BLOCK_HEAD, "head", layer);
}

static fl_status fill(fl_model *model, bool tied, float dropout)
{
    fl_loss loss;
    FL_TRY(add_all(model, dropout));
    if (tied) { /* a chain, from the top */
        FL_TRY(fl_model_tie(model, "above.weight", "middle.weight"));
        FL_TRY(fl_model_tie(model, "middle.weight", "below.weight"));
    }
    FL_TRY(fl_loss_cross_entropy(4, &loss));
    return fl_model_set_loss(model, loss);
}

fl_status tied_model(bool tied, float dropout, fl_model **out)
{
    fl_model *model = NULL;
    FL_TRY(fl_model_create("tied", &model));
    fl_status status = fill(model, tied, dropout);
    if (status != FL_OK) {
        fl_model_destroy(&model);
        return status;
    }
    *out = model;
    return FL_OK;
}
