/* x + dropout(proj(attention(LayerNorm(x)))).
 *
 *            +------------- skip ---------------+
 *   x [T, C] +- ln - qkv [T, 3C] - attention y - proj - dropout - + -> out
 *
 * Kept a token, in floats: 3 C (qkv) + C (y) + heads + 2. The LayerNorm's output, C more, is
 * computed again on the way back: over a whole ViT that is 0.6 % of a step's time for a fifth less
 * memory. T: rows of the micro-batch.
 *
 * With `first`, only each sample's first token goes on: from y on there is one row a sample. The
 * first row of sample s is row offsets[s], so the offsets serve as the index of every move. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B, QKV_W, QKV_B, PROJ_W, PROJ_B };         /* parameters */
enum { KEPT_MEAN, KEPT_RSTD, KEPT_QKV, KEPT_Y, KEPT_LSE }; /* slots */

enum { MASK_OF_OUTPUT, MASK_OF_PROBABILITIES }; /* streams; the first is fl__drop's */

static fl_status attention_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_attention_config *a = self;
    FL_TRY(fl__check_input(in, a->dim));
    *out = *in;
    out->tokens = a->first ? 1 : in->tokens;
    return FL_OK;
}

static fl_status attention_params(void *self, fl_param_list *list)
{
    const fl_attention_config *a = self;
    FL_TRY(fl__params_norm(list, "ln", a->dim));
    FL_TRY(fl__params_linear(list, "qkv", 3 * a->dim, a->dim));
    return fl__params_branch(list, a->dim, a->dim, a->depth);
}

static fl_attention_args attention_args(const fl_attention_config *a, const fl_tensor *in,
                                        const float *qkv, float *y, float *lse)
{
    return (fl_attention_args){.qkv = qkv,
                               .offsets = fl_offsets_of(in),
                               .heads = a->heads,
                               .width = a->dim,
                               .causal = a->causal,
                               .mask = {.p = a->attention_dropout, .stream = MASK_OF_PROBABILITIES},
                               .y = y,
                               .lse = lse};
}

/* The end of the forward of `first`. */
static fl_status first_forward(const fl_attention_config *a, fl_exec *x, const float *y,
                               const fl_tensor *in, fl_tensor *out)
{
    int64_t n = in->n_samples, C = a->dim;
    float *y_rows = NULL, *in_rows = NULL;
    FL_TRY(fl__scratch(x, n * C, &y_rows));
    FL_TRY(fl__scratch(x, n * C, &in_rows));
    FL_TRY(fl__gather_first(x, y, in, y_rows));
    FL_TRY(fl__gather_first(x, in->data, in, in_rows));
    fl_tensor rows = *out;
    rows.data = in_rows;
    return fl__branch_forward(x, y_rows, PROJ_W, &rows, a->dropout, out);
}

static fl_status attention_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_attention_config *a = self;
    int64_t T = in->n_tokens, C = a->dim;
    float *mean = NULL, *rstd = NULL, *qkv = NULL, *y = NULL, *lse = NULL, *ln = NULL;
    FL_TRY(fl__keep(x, KEPT_MEAN, T, &mean));
    FL_TRY(fl__keep(x, KEPT_RSTD, T, &rstd));
    FL_TRY(fl__keep(x, KEPT_QKV, T * 3 * C, &qkv));
    FL_TRY(fl__keep(x, KEPT_Y, T * C, &y));
    FL_TRY(fl__keep(x, KEPT_LSE, T * a->heads, &lse));
    FL_TRY(fl__scratch(x, T * C, &ln));

    FL_TRY(fl__norm(x, in, a->epsilon, ln, mean, rstd));
    FL_TRY(fl__linear(x, ln, QKV_W, qkv, T));
    const fl_attention_args args = attention_args(a, in, qkv, y, lse);
    FL_TRY(fl_attention(x, &args));
    return a->first ? first_forward(a, x, y, in, out)
                    : fl__branch_forward(x, y, PROJ_W, in, a->dropout, out);
}

/* From the gradient of proj's output to that of y [T, C], and proj's own gradients. */
static fl_status backward_to_y(const fl_attention_config *a, fl_exec *x, const float *grad_proj,
                               float *grad_y)
{
    const fl_tensor *in = fl_exec_input(x);
    const float *y = fl_exec_kept(x, KEPT_Y);
    int64_t n = in->n_samples, C = a->dim;
    if (!a->first) {
        FL_TRY(fl__linear_grads(x, PROJ_W, grad_proj, y, in->n_tokens));
        return fl__linear_grad_in(x, grad_proj, PROJ_W, grad_y, in->n_tokens);
    }
    float *rows = NULL;
    FL_TRY(fl__scratch(x, n * C, &rows));
    FL_TRY(fl__gather_first(x, y, in, rows));
    FL_TRY(fl__linear_grads(x, PROJ_W, grad_proj, rows, n));
    FL_TRY(fl__linear_grad_in(x, grad_proj, PROJ_W, rows, n));
    return fl__scatter_first(x, rows, in, grad_y);
}

/* What comes past the branch: grad_out, for `first` spread over grad_in's memory. */
static fl_status skip_grad(const fl_attention_config *a, fl_exec *x, const fl_tensor *grad_out,
                           fl_tensor *grad_in, const float **skip)
{
    const fl_tensor *in = fl_exec_input(x);
    *skip = fl_f32(grad_out);
    if (!a->first || grad_in == NULL) {
        return FL_OK;
    }
    *skip = fl_f32(grad_in);
    return fl__scatter_first(x, grad_out->data, in, grad_in->data);
}

static fl_status attention_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                    fl_tensor *grad_in)
{
    const fl_attention_config *a = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t T = in->n_tokens, C = a->dim;
    if (grad_in == NULL && !fl__any_grad(x, PROJ_B + 1)) {
        return FL_OK;
    }
    const float *grad_proj = NULL, *skip = NULL;
    float *one = NULL, *grad_qkv = NULL;
    FL_TRY(fl__branch_grad(x, grad_out, a->dropout, &grad_proj));
    FL_TRY(fl__scratch(x, T * C, &one));
    FL_TRY(fl__scratch(x, T * 3 * C, &grad_qkv));
    FL_TRY(backward_to_y(a, x, grad_proj, one));
    const fl_attention_backward_args args = {
        .forward = attention_args(a, in, fl_exec_kept(x, KEPT_QKV), fl_exec_kept(x, KEPT_Y),
                                  fl_exec_kept(x, KEPT_LSE)),
        .grad_y = one,
        .grad_qkv = grad_qkv,
    };
    FL_TRY(fl_attention_backward(x, &args));
    if (fl_exec_grad(x, QKV_W) != NULL || fl_exec_grad(x, QKV_B) != NULL) {
        FL_TRY(fl__norm(x, in, a->epsilon, one, NULL, NULL));
        FL_TRY(fl__linear_grads(x, QKV_W, grad_qkv, one, T));
    }
    FL_TRY(fl__linear_grad_in(x, grad_qkv, QKV_W, one, T));
    FL_TRY(skip_grad(a, x, grad_out, grad_in, &skip));
    return fl__norm_backward(x, one, fl_exec_kept(x, KEPT_MEAN), fl_exec_kept(x, KEPT_RSTD), skip,
                             grad_in);
}

static const fl_layer_ops attention_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "attention",
    .shape = attention_shape,
    .params = attention_params,
    .forward = attention_forward,
    .backward = attention_backward,
    .destroy = fl__layer_free,
};

/* Another kind, since it costs what the other does not. */
static const fl_layer_ops first_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "attention-first",
    .shape = attention_shape,
    .params = attention_params,
    .forward = attention_forward,
    .backward = attention_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_attention(const fl_attention_config *config, fl_layer *out)
{
    fl_attention_config self = *config;
    const fl_layer_ops *ops = self.first ? &first_ops : &attention_ops;
    FL_TRY(fl__check_size(ops->kind, "dim", self.dim));
    FL_TRY(fl__check_size(ops->kind, "heads", self.heads));
    FL_TRY(fl__check_size(ops->kind, "depth", self.depth));
    FL_TRY(fl__check_dropout(ops->kind, self.dropout));
    FL_TRY(fl__check_dropout(ops->kind, self.attention_dropout));
    FL_TRY(fl__check_epsilon(ops->kind, &self.epsilon));
    if (self.dim % self.heads != 0) {
        return fl_fail(FL_EINVAL, "%s: dim %lld is not a multiple of heads %lld", ops->kind,
                       (long long)self.dim, (long long)self.heads);
    }
    return fl__layer_new(ops, &self, sizeof self, out);
}
