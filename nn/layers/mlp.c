/* x + dropout(proj(activation(fc(LayerNorm(x))))), or
 * LayerNorm(x + dropout(proj(activation(fc(x))))).
 *
 *            +------------------ skip --------------------+
 *   x [T, C] +- ln - fc: pre [T, H] - act: h [T, H] - proj - dropout - + -> out
 *   x [T, C] +------ fc: pre [T, H] - act: h [T, H] - proj - dropout - + - sum - ln -> out
 *
 * Kept a token: H (pre) activations and 2 floats. The output of the LayerNorm before fc is computed
 * again, as in attention.c, and so is h: the activation's backward computes it anyway, and writing
 * it then is as fast as reading it back from memory would be. A LayerNorm after the sum keeps the
 * sum (post_norm.c). T: rows of the micro-batch, H: hidden width. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B, FC_W, FC_B, PROJ_W, PROJ_B };   /* parameters */
enum { KEPT_MEAN, KEPT_RSTD, KEPT_PRE, KEPT_SUM }; /* slots */

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
    FL_TRY(fl__params_linear(list, "fc", l->hidden, l->dim, l->deviation));
    return fl__params_branch(list, l->dim, l->hidden, l->depth, l->deviation);
}

static fl__post_norm post_norm(const fl_mlp_config *l)
{
    return (fl__post_norm){l->epsilon, KEPT_SUM, KEPT_MEAN, KEPT_RSTD};
}

/* *fc_in: what fc reads. */
static fl_status fc_input(const fl_mlp_config *l, fl_exec *x, const fl_tensor *in,
                          const void **fc_in)
{
    float *mean = NULL, *rstd = NULL;
    void *ln = NULL;
    *fc_in = in->data;
    if (l->norm == FL_NORM_AFTER) {
        return FL_OK;
    }
    FL_TRY(fl__scratch_of(x, in->dtype, in->n_tokens * l->dim, &ln));
    if (fl_exec_training(x)) {
        FL_TRY(fl__keep(x, KEPT_MEAN, in->n_tokens, &mean));
        FL_TRY(fl__keep(x, KEPT_RSTD, in->n_tokens, &rstd));
    }
    *fc_in = ln;
    return fl__norm(x, in, l->epsilon, ln, mean, rstd);
}

static fl_status mlp_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_mlp_config *l = self;
    int64_t T = in->n_tokens;
    const fl__post_norm norm = post_norm(l);
    const void *fc_in = NULL;
    void *pre = NULL, *h = NULL;
    FL_TRY(fl__scratch_of(x, in->dtype, T * l->hidden, &h));
    if (fl_exec_training(x)) {
        FL_TRY(fl__keep_of(x, KEPT_PRE, in->dtype, T * l->hidden, &pre));
    }
    FL_TRY(fc_input(l, x, in, &fc_in));
    FL_TRY(fl_linear(x, &(fl_linear_args){.dtype = in->dtype,
                                          .in = fc_in,
                                          .w = fl_exec_weight(x, FC_W),
                                          .bias = fl_exec_weight(x, FC_B),
                                          .activation = l->activation,
                                          .pre = pre,
                                          .y = h,
                                          .m = T}));
    return l->norm == FL_NORM_AFTER
               ? fl__post_norm_forward(x, &norm, h, PROJ_W, in, l->dropout, out)
               : fl__branch_forward(x, h, PROJ_W, in, l->dropout, out);
}

/* From the gradient of pre to that of the layer's input, and the gradients of fc and of a norm
 * before it. */
static fl_status backward_to_input(const fl_mlp_config *l, fl_exec *x, const void *grad_pre,
                                   const void *grad_sum, fl_tensor *grad_in)
{
    const fl_tensor *in = fl_exec_input(x);
    const void *fc_in = in->data;
    int64_t T = in->n_tokens;
    bool before = l->norm == FL_NORM_BEFORE;
    void *one = NULL;
    FL_TRY(fl__scratch_of(x, in->dtype, T * l->dim, &one));
    if (fl_exec_grad(x, FC_W) != NULL || fl_exec_grad(x, FC_B) != NULL) {
        if (before) {
            FL_TRY(fl__norm(x, in, l->epsilon, one, NULL, NULL));
            fc_in = one;
        }
        FL_TRY(fl__linear_grads(x, in->dtype, FC_W, grad_pre, fc_in, T));
    }
    if (!before && grad_in == NULL) {
        return FL_OK;
    }
    FL_TRY(fl__linear_grad_in(x, in->dtype, grad_pre, FC_W, one, T));
    return before ? fl__norm_backward(x, one, fl_exec_kept(x, KEPT_MEAN),
                                      fl_exec_kept(x, KEPT_RSTD), grad_sum, grad_in)
                  : fl_add(x, &(fl_add_args){.dtype = in->dtype,
                                             .a = one,
                                             .b = grad_sum,
                                             .y = grad_in->data,
                                             .n = T * l->dim});
}

static fl_status mlp_backward(void *self, fl_exec *x, const fl_tensor *grad_out, fl_tensor *grad_in)
{
    const fl_mlp_config *l = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t T = in->n_tokens;
    if (grad_in == NULL && !fl__any_grad(x, PROJ_B + 1)) {
        return FL_OK;
    }
    const fl__post_norm norm = post_norm(l);
    const void *grad_proj = NULL;
    void *grad_h = NULL, *h = NULL;
    fl_tensor grad_sum = *grad_out;
    if (l->norm == FL_NORM_AFTER) {
        FL_TRY(fl__post_norm_backward(x, &norm, grad_out, &grad_sum));
    }
    FL_TRY(fl__branch_grad(x, &grad_sum, l->dropout, &grad_proj));
    FL_TRY(fl__scratch_of(x, in->dtype, T * l->hidden, &grad_h));
    FL_TRY(fl__scratch_of(x, in->dtype, T * l->hidden, &h));
    FL_TRY(fl__linear_grad_in(x, in->dtype, grad_proj, PROJ_W, grad_h, T));
    FL_TRY(fl_activate_backward(x, &(fl_activate_backward_args){.dtype = in->dtype,
                                                                .activation = l->activation,
                                                                .grad_y = grad_h,
                                                                .pre = fl_exec_kept(x, KEPT_PRE),
                                                                .grad_pre = grad_h,
                                                                .y = h,
                                                                .n = T * l->hidden}));
    FL_TRY(fl__linear_grads(x, in->dtype, PROJ_W, grad_proj, h, T));
    return backward_to_input(l, x, grad_h, grad_sum.data, grad_in);
}

#define MLP_OPS(name)                                                                              \
    {                                                                                              \
        .head = FL_TABLE_HEAD(fl_layer_ops), .kind = (name), .shape = mlp_shape,                   \
        .params = mlp_params, .forward = mlp_forward, .backward = mlp_backward,                    \
        .destroy = fl__layer_free                                                                  \
    }

/* Kinds of their own, since each costs what the other does not. */
static const fl_layer_ops mlp_ops[2] = {
    [FL_NORM_BEFORE] = MLP_OPS("mlp"),
    [FL_NORM_AFTER] = MLP_OPS("mlp-post"),
};

fl_status fl_layer_mlp(const fl_mlp_config *config, fl_layer *out)
{
    fl_mlp_config self = *config;
    FL_TRY(fl__check_size("mlp", "dim", self.dim));
    FL_TRY(fl__check_size("mlp", "hidden", self.hidden));
    FL_TRY(fl__check_size("mlp", "depth", self.depth));
    FL_TRY(fl__check_dropout("mlp", self.dropout));
    FL_TRY(fl__check_epsilon("mlp", &self.epsilon));
    FL_TRY(fl__check_norm_place("mlp", self.norm));
    FL_TRY(fl__check_deviation("mlp", self.deviation));
    if (self.activation <= FL_ACT_NONE || self.activation > FL_ACT_SILU) {
        return fl_fail(FL_EINVAL,
                       "mlp: activation is %d, allowed is FL_ACT_GELU_TANH to FL_ACT_SILU",
                       (int)self.activation);
    }
    return fl__layer_new(&mlp_ops[self.norm], &self, sizeof self, out);
}
