/* x + dropout(proj(attention(LayerNorm(x)))).
 *
 *            +------------- skip ---------------+
 *   x [T, C] +- ln - qkv [T, 3C] - attention y - proj - dropout - + -> out
 *
 * Kept a token, in floats: 3 C (qkv) + C (y) + heads + 2. The LayerNorm's output, C more, is
 * computed again on the way back: over a whole ViT that is 0.6 % of a step's time for a fifth less
 * memory. T: rows of the micro-batch. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B, QKV_W, QKV_B, PROJ_W, PROJ_B };         /* parameters */
enum { KEPT_MEAN, KEPT_RSTD, KEPT_QKV, KEPT_Y, KEPT_LSE }; /* slots */

typedef struct attention {
    int64_t dim, heads;
    bool causal;
    float dropout;
} attention;

static fl_status attention_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const attention *a = self;
    FL_TRY(fl__check_input(in, a->dim));
    *out = *in;
    return FL_OK;
}

static fl_status attention_params(void *self, fl_param_list *list)
{
    const attention *a = self;
    FL_TRY(fl__params_norm(list, "ln", a->dim));
    FL_TRY(fl__params_linear(list, "qkv", 3 * a->dim, a->dim));
    return fl__params_linear(list, "proj", a->dim, a->dim);
}

static fl_status attention_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const attention *a = self;
    int64_t T = in->n_tokens, C = a->dim;
    float *mean = NULL, *rstd = NULL, *qkv = NULL, *y = NULL, *lse = NULL, *ln = NULL;
    FL_TRY(fl__keep(x, KEPT_MEAN, T, &mean));
    FL_TRY(fl__keep(x, KEPT_RSTD, T, &rstd));
    FL_TRY(fl__keep(x, KEPT_QKV, T * 3 * C, &qkv));
    FL_TRY(fl__keep(x, KEPT_Y, T * C, &y));
    FL_TRY(fl__keep(x, KEPT_LSE, T * a->heads, &lse));
    FL_TRY(fl__scratch(x, T * C, &ln));

    FL_TRY(fl__norm(x, in, ln, mean, rstd));
    FL_TRY(fl_linear(x, ln, fl_exec_weight(x, QKV_W), fl_exec_weight(x, QKV_B), qkv, T));
    FL_TRY(fl_attention(x, qkv, in->offsets, in->n_samples, a->heads, C, a->causal, y, lse));
    return fl__branch_forward(x, y, PROJ_W, in, a->dropout, out);
}

/* grad_qkv from the gradient of proj's output. grad_y [T, C] is a place to work in. */
static fl_status backward_to_qkv(const attention *a, fl_exec *x, const float *grad_proj,
                                 float *grad_y, float *grad_qkv)
{
    const fl_tensor *in = fl_exec_input(x);
    FL_TRY(fl_linear_backward_input(x, grad_proj, fl_exec_weight(x, PROJ_W), grad_y, in->n_tokens));
    return fl_attention_backward(x, grad_y, fl_exec_kept(x, KEPT_QKV), fl_exec_kept(x, KEPT_Y),
                                 fl_exec_kept(x, KEPT_LSE), in->offsets, in->n_samples, a->heads,
                                 a->dim, a->causal, grad_qkv);
}

static fl_status attention_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                    fl_tensor *grad_in)
{
    const attention *a = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t T = in->n_tokens, C = a->dim;
    if (grad_in == NULL && !fl__any_grad(x, PROJ_B + 1)) {
        return FL_OK;
    }
    const float *grad_proj = NULL;
    FL_TRY(fl__branch_grad(x, grad_out, a->dropout, &grad_proj));
    FL_TRY(fl__linear_grads(x, PROJ_W, grad_proj, fl_exec_kept(x, KEPT_Y), T));

    float *one = NULL, *grad_qkv = NULL;
    FL_TRY(fl__scratch(x, T * C, &one));
    FL_TRY(fl__scratch(x, T * 3 * C, &grad_qkv));
    FL_TRY(backward_to_qkv(a, x, grad_proj, one, grad_qkv));
    if (fl_exec_grad(x, QKV_W) != NULL || fl_exec_grad(x, QKV_B) != NULL) {
        FL_TRY(fl__norm(x, in, one, NULL, NULL));
        FL_TRY(fl__linear_grads(x, QKV_W, grad_qkv, one, T));
    }
    FL_TRY(fl_linear_backward_input(x, grad_qkv, fl_exec_weight(x, QKV_W), one, T));
    return fl__norm_backward(x, one, fl_exec_kept(x, KEPT_MEAN), fl_exec_kept(x, KEPT_RSTD),
                             fl_f32(grad_out), grad_in);
}

static const fl_layer_ops attention_ops = {
    .kind = "attention",
    .shape = attention_shape,
    .params = attention_params,
    .forward = attention_forward,
    .backward = attention_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_attention(int64_t dim, int64_t heads, bool causal, float dropout, fl_layer *out)
{
    FL_TRY(fl__check_size("attention", "dim", dim));
    FL_TRY(fl__check_size("attention", "heads", heads));
    FL_TRY(fl__check_dropout("attention", dropout));
    if (dim % heads != 0) {
        return fl_fail(FL_EINVAL, "attention: dim %lld is not a multiple of heads %lld",
                       (long long)dim, (long long)heads);
    }
    const attention self = {.dim = dim, .heads = heads, .causal = causal, .dropout = dropout};
    return fl__layer_new(&attention_ops, &self, sizeof self, out);
}
