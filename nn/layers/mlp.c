/* x + dropout(proj(activation(fc(LayerNorm(x))))).
 *
 *            +------------------ skip --------------------+
 *   x [T, C] +- ln - fc: pre [T, H] - act: h [T, H] - proj - dropout - + -> out
 *
 * Kept a token, in floats: H (pre) + 2. The LayerNorm's output is computed again, as in
 * attention.c, and so is h: the activation's backward computes it anyway, and writing it then is as
 * fast as reading it back from memory would be. T: rows of the micro-batch, H: hidden width. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B, FC_W, FC_B, PROJ_W, PROJ_B }; /* parameters */
enum { KEPT_MEAN, KEPT_RSTD, KEPT_PRE };         /* slots */

static fl_status mlp_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_mlp_config *l = self;
    FL_TRY(fl__check_input(in, l->dim));
    *out = *in;
    return FL_OK;
}

static fl_status mlp_params(void *self, fl_param_list *list)
{
    const fl_mlp_config *l = self;
    FL_TRY(fl__params_norm(list, "ln", l->dim));
    FL_TRY(fl__params_linear(list, "fc", l->hidden, l->dim));
    return fl__params_branch(list, l->dim, l->hidden, l->depth);
}

static fl_status mlp_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_mlp_config *l = self;
    int64_t T = in->n_tokens;
    float *mean = NULL, *rstd = NULL, *pre = NULL, *h = NULL, *ln = NULL;
    FL_TRY(fl__scratch(x, T * l->hidden, &h));
    FL_TRY(fl__scratch(x, T * l->dim, &ln));
    if (fl_exec_training(x)) {
        FL_TRY(fl__keep(x, KEPT_MEAN, T, &mean));
        FL_TRY(fl__keep(x, KEPT_RSTD, T, &rstd));
        FL_TRY(fl__keep(x, KEPT_PRE, T * l->hidden, &pre));
    }
    FL_TRY(fl__norm(x, in, l->epsilon, ln, mean, rstd));
    FL_TRY(fl_linear(x, &(fl_linear_args){.in = ln,
                                          .w = fl_exec_weight(x, FC_W),
                                          .bias = fl_exec_weight(x, FC_B),
                                          .activation = l->activation,
                                          .pre = pre,
                                          .y = h,
                                          .m = T}));
    return fl__branch_forward(x, h, PROJ_W, in, l->dropout, out);
}

static fl_status mlp_backward(void *self, fl_exec *x, const fl_tensor *grad_out, fl_tensor *grad_in)
{
    const fl_mlp_config *l = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t T = in->n_tokens;
    if (grad_in == NULL && !fl__any_grad(x, PROJ_B + 1)) {
        return FL_OK;
    }
    const float *grad_proj = NULL;
    FL_TRY(fl__branch_grad(x, grad_out, l->dropout, &grad_proj));
    float *one = NULL, *grad_h = NULL, *h = NULL;
    FL_TRY(fl__scratch(x, T * l->dim, &one));
    FL_TRY(fl__scratch(x, T * l->hidden, &grad_h));
    FL_TRY(fl__scratch(x, T * l->hidden, &h));
    FL_TRY(fl__linear_grad_in(x, grad_proj, PROJ_W, grad_h, T));
    FL_TRY(fl_activate_backward(x, &(fl_activate_backward_args){.activation = l->activation,
                                                                .grad_y = grad_h,
                                                                .pre = fl_exec_kept(x, KEPT_PRE),
                                                                .grad_pre = grad_h,
                                                                .y = h,
                                                                .n = T * l->hidden}));
    FL_TRY(fl__linear_grads(x, PROJ_W, grad_proj, h, T));
    if (fl_exec_grad(x, FC_W) != NULL || fl_exec_grad(x, FC_B) != NULL) {
        FL_TRY(fl__norm(x, in, l->epsilon, one, NULL, NULL));
        FL_TRY(fl__linear_grads(x, FC_W, grad_h, one, T));
    }
    FL_TRY(fl__linear_grad_in(x, grad_h, FC_W, one, T));
    return fl__norm_backward(x, one, fl_exec_kept(x, KEPT_MEAN), fl_exec_kept(x, KEPT_RSTD),
                             fl_f32(grad_out), grad_in);
}

static const fl_layer_ops mlp_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "mlp",
    .shape = mlp_shape,
    .params = mlp_params,
    .forward = mlp_forward,
    .backward = mlp_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_mlp(const fl_mlp_config *config, fl_layer *out)
{
    fl_mlp_config self = *config;
    FL_TRY(fl__check_size("mlp", "dim", self.dim));
    FL_TRY(fl__check_size("mlp", "hidden", self.hidden));
    FL_TRY(fl__check_size("mlp", "depth", self.depth));
    FL_TRY(fl__check_dropout("mlp", self.dropout));
    FL_TRY(fl__check_epsilon("mlp", &self.epsilon));
    if (self.activation <= FL_ACT_NONE || self.activation > FL_ACT_SILU) {
        return fl_fail(FL_EINVAL,
                       "mlp: activation is %d, allowed is FL_ACT_GELU_TANH to FL_ACT_SILU",
                       (int)self.activation);
    }
    return fl__layer_new(&mlp_ops, &self, sizeof self, out);
}
