/* The end of a sublayer whose LayerNorm comes after the sum, as in BERT:
 *
 *            +------------ skip ------------+
 *   x [T, C] +- ... h - proj - dropout ---- + - sum [T, C] - ln -> out
 *
 * Kept a token: C (sum) activations and 2 floats. The sum cannot be had from `out`: gamma may be 0.
 */
#include "nn/layers/layers.h"

enum { LN_W, LN_B }; /* parameters */

/* The sum, or with `residual` still to be added what comes before it. */
static fl_status branch_sum(fl_exec *x, const void *h, int weight, const fl_tensor *in,
                            float dropout, void *sum, const void **residual)
{
    bool drops = dropout > 0.0f && fl_exec_training(x);
    *residual = drops ? in->data : NULL;
    FL_TRY(fl_linear(x, &(fl_linear_args){.dtype = in->dtype,
                                          .in = h,
                                          .w = fl_exec_weight(x, weight),
                                          .bias = fl_exec_weight(x, weight + 1),
                                          .residual = drops ? NULL : in->data,
                                          .y = sum,
                                          .m = in->n_tokens}));
    return drops ? fl__drop(x, sum, in, dropout, sum) : FL_OK;
}

fl_status fl__post_norm_forward(fl_exec *x, const fl__post_norm *norm, const void *h, int weight,
                                const fl_tensor *in, float dropout, fl_tensor *out)
{
    int64_t T = in->n_tokens, C = in->width;
    void *sum = out->data;
    float *mean = NULL, *rstd = NULL;
    const void *residual = NULL;
    if (fl_exec_training(x)) {
        FL_TRY(fl__keep_of(x, norm->kept_sum, in->dtype, T * C, &sum));
        FL_TRY(fl__keep(x, norm->kept_mean, T, &mean));
        FL_TRY(fl__keep(x, norm->kept_rstd, T, &rstd));
    }
    FL_TRY(branch_sum(x, h, weight, in, dropout, sum, &residual));
    return fl_layernorm(x, &(fl_norm_args){.dtype = in->dtype,
                                           .in = sum,
                                           .residual = residual,
                                           .gamma = fl_exec_weight(x, LN_W),
                                           .beta = fl_exec_weight(x, LN_B),
                                           .epsilon = norm->epsilon,
                                           .sum = residual == NULL ? NULL : sum,
                                           .y = out->data,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .m = T,
                                           .n = C});
}

fl_status fl__post_norm_backward(fl_exec *x, const fl__post_norm *norm, const fl_tensor *grad_out,
                                 fl_tensor *grad_sum)
{
    void *grad = NULL;
    FL_TRY(fl__scratch_of(x, grad_out->dtype, grad_out->n_tokens * grad_out->width, &grad));
    *grad_sum = *grad_out;
    grad_sum->data = grad;
    return fl_layernorm_backward(x,
                                 &(fl_norm_backward_args){.dtype = grad_out->dtype,
                                                          .grad_y = grad_out->data,
                                                          .in = fl_exec_kept(x, norm->kept_sum),
                                                          .gamma = fl_exec_weight(x, LN_W),
                                                          .mean = fl_exec_kept(x, norm->kept_mean),
                                                          .rstd = fl_exec_kept(x, norm->kept_rstd),
                                                          .grad_in = grad,
                                                          .grad_gamma = fl_exec_grad(x, LN_W),
                                                          .grad_beta = fl_exec_grad(x, LN_B),
                                                          .m = grad_out->n_tokens,
                                                          .n = grad_out->width});
}
