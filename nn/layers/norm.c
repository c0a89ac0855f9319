/* LayerNorm or RMSNorm alone. Kept: 2 floats a token, or 1. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B };           /* parameters */
enum { KEPT_RSTD, KEPT_MEAN }; /* slots */

static fl_status norm_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_norm_config *c = self;
    FL_TRY(fl__check_input(in, c->dim));
    *out = *in;
    return FL_OK;
}

static fl_status layernorm_params(void *self, fl_param_list *list)
{
    const fl_norm_config *c = self;
    return fl__params_norm(list, "ln", c->dim);
}

fl_status fl__layernorm_forward(fl_exec *x, float epsilon, const fl_tensor *in, fl_tensor *out)
{
    float *mean = NULL, *rstd = NULL;
    FL_TRY(fl__keep(x, KEPT_MEAN, in->n_tokens, &mean));
    FL_TRY(fl__keep(x, KEPT_RSTD, in->n_tokens, &rstd));
    return fl__norm(x, in, epsilon, out->data, mean, rstd);
}

static fl_status layernorm_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_norm_config *c = self;
    return fl__layernorm_forward(x, c->epsilon, in, out);
}

fl_status fl__layernorm_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                 fl_tensor *grad_in)
{
    (void)self;
    if (grad_in == NULL && !fl__any_grad(x, LN_B + 1)) {
        return FL_OK;
    }
    return fl__norm_backward(x, grad_out->data, fl_exec_kept(x, KEPT_MEAN),
                             fl_exec_kept(x, KEPT_RSTD), NULL, grad_in);
}

static fl_status rmsnorm_params(void *self, fl_param_list *list)
{
    const fl_norm_config *c = self;
    return fl_param_list_add(list, "ln.weight", c->dim, 1, FL_INIT_ONES, 0.0f, false);
}

static fl_status rmsnorm_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_norm_config *c = self;
    float *rstd = NULL;
    FL_TRY(fl__keep(x, KEPT_RSTD, in->n_tokens, &rstd));
    return fl_rmsnorm(x, &(fl_norm_args){.dtype = in->dtype,
                                         .in = in->data,
                                         .gamma = fl_exec_weight(x, LN_W),
                                         .epsilon = c->epsilon,
                                         .y = out->data,
                                         .rstd = rstd,
                                         .m = in->n_tokens,
                                         .n = in->width});
}

static fl_status rmsnorm_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                  fl_tensor *grad_in)
{
    const fl_tensor *in = fl_exec_input(x);
    (void)self;
    if (grad_in == NULL && fl_exec_grad(x, LN_W) == NULL) {
        return FL_OK;
    }
    return fl_rmsnorm_backward(
        x, &(fl_norm_backward_args){.dtype = in->dtype,
                                    .grad_y = grad_out->data,
                                    .in = in->data,
                                    .gamma = fl_exec_weight(x, LN_W),
                                    .rstd = fl_exec_kept(x, KEPT_RSTD),
                                    .grad_in = grad_in == NULL ? NULL : grad_in->data,
                                    .grad_gamma = fl_exec_grad(x, LN_W),
                                    .m = in->n_tokens,
                                    .n = in->width});
}

static const fl_layer_ops layernorm_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "norm",
    .shape = norm_shape,
    .params = layernorm_params,
    .forward = layernorm_forward,
    .backward = fl__layernorm_backward,
    .destroy = fl__layer_free,
};

static const fl_layer_ops rmsnorm_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "rmsnorm",
    .shape = norm_shape,
    .params = rmsnorm_params,
    .forward = rmsnorm_forward,
    .backward = rmsnorm_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_norm(const fl_norm_config *config, fl_layer *out)
{
    fl_norm_config self = *config;
    const fl_layer_ops *ops = self.kind == FL_NORM_RMS ? &rmsnorm_ops : &layernorm_ops;
    if (self.kind != FL_NORM_LAYER && self.kind != FL_NORM_RMS) {
        return fl_fail(FL_EINVAL, "norm: kind is %d, allowed are FL_NORM_LAYER and FL_NORM_RMS",
                       (int)self.kind);
    }
    FL_TRY(fl__check_size(ops->kind, "dim", self.dim));
    FL_TRY(fl__check_epsilon(ops->kind, &self.epsilon));
    return fl__layer_new(ops, &self, sizeof self, out);
}
