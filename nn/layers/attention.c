/* x + dropout(proj(attention(LayerNorm(x)))), or LayerNorm(x + dropout(proj(attention(x)))).
 *
 *            +------------- skip ---------------+
 *   x [T, C] +- ln - qkv [T, 3C] - attention y - proj - dropout - + -> out
 *   x [T, C] +------ qkv [T, 3C] - attention y - proj - dropout - + - sum - ln -> out
 *
 * Kept a token: 3 C (qkv) + C (y) activations, heads + 2 floats. The output of the LayerNorm before
 * qkv, C more, is computed again on the way back: over a whole ViT that is 0.6 % of a step's time
 * for a fifth less memory. A LayerNorm after the sum keeps the sum (post_norm.c). T: rows of the
 * micro-batch.
 *
 * With `first`, only each sample's first token goes on: from y on there is one row a sample. The
 * first row of sample s is row offsets[s], so the offsets serve as the index of every move. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B, QKV_W, QKV_B, PROJ_W, PROJ_B };                   /* parameters */
enum { KEPT_MEAN, KEPT_RSTD, KEPT_QKV, KEPT_Y, KEPT_LSE, KEPT_SUM }; /* slots */

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
    FL_TRY(fl__params_linear(list, "qkv", 3 * a->dim, a->dim, a->deviation));
    return fl__params_branch(list, a->dim, a->dim, a->depth, a->deviation);
}

static fl__post_norm post_norm(const fl_attention_config *a)
{
    return (fl__post_norm){a->epsilon, KEPT_SUM, KEPT_MEAN, KEPT_RSTD};
}

static fl_attention_args attention_args(const fl_attention_config *a, const fl_tensor *in,
                                        const void *qkv, void *y, float *lse)
{
    return (fl_attention_args){.dtype = in->dtype,
                               .qkv = qkv,
                               .offsets = fl_offsets_of(in),
                               .heads = a->heads,
                               .width = a->dim,
                               .causal = a->causal,
                               .mask = {.p = a->attention_dropout, .stream = MASK_OF_PROBABILITIES},
                               .y = y,
                               .lse = lse};
}

/* From y to out. */
static fl_status proj_forward(const fl_attention_config *a, fl_exec *x, const void *y,
                              const fl_tensor *in, fl_tensor *out)
{
    const fl__post_norm norm = post_norm(a);
    return a->norm == FL_NORM_AFTER
               ? fl__post_norm_forward(x, &norm, y, PROJ_W, in, a->dropout, out)
               : fl__branch_forward(x, y, PROJ_W, in, a->dropout, out);
}

/* The same for `first`. */
static fl_status first_forward(const fl_attention_config *a, fl_exec *x, const void *y,
                               const fl_tensor *in, fl_tensor *out)
{
    int64_t n = in->n_samples, C = a->dim;
    void *y_rows = NULL, *in_rows = NULL;
    FL_TRY(fl__scratch_of(x, in->dtype, n * C, &y_rows));
    FL_TRY(fl__scratch_of(x, in->dtype, n * C, &in_rows));
    FL_TRY(fl__gather_first(x, y, in, y_rows));
    FL_TRY(fl__gather_first(x, in->data, in, in_rows));
    fl_tensor rows = *out;
    rows.data = in_rows;
    return proj_forward(a, x, y_rows, &rows, out);
}

/* From the layer's input to qkv. */
static fl_status qkv_forward(const fl_attention_config *a, fl_exec *x, const fl_tensor *in,
                             void *qkv)
{
    float *mean = NULL, *rstd = NULL;
    void *ln = NULL;
    if (a->norm == FL_NORM_AFTER) {
        return fl__linear(x, in->dtype, in->data, QKV_W, qkv, in->n_tokens);
    }
    FL_TRY(fl__keep(x, KEPT_MEAN, in->n_tokens, &mean));
    FL_TRY(fl__keep(x, KEPT_RSTD, in->n_tokens, &rstd));
    FL_TRY(fl__scratch_of(x, in->dtype, in->n_tokens * a->dim, &ln));
    FL_TRY(fl__norm(x, in, a->epsilon, ln, mean, rstd));
    return fl__linear(x, in->dtype, ln, QKV_W, qkv, in->n_tokens);
}

static fl_status attention_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_attention_config *a = self;
    int64_t T = in->n_tokens, C = a->dim;
    void *qkv = NULL, *y = NULL;
    float *lse = NULL;
    FL_TRY(fl__keep_of(x, KEPT_QKV, in->dtype, T * 3 * C, &qkv));
    FL_TRY(fl__keep_of(x, KEPT_Y, in->dtype, T * C, &y));
    FL_TRY(fl__keep(x, KEPT_LSE, T * a->heads, &lse));
    FL_TRY(qkv_forward(a, x, in, qkv));
    const fl_attention_args args = attention_args(a, in, qkv, y, lse);
    FL_TRY(fl_attention(x, &args));
    return a->first ? first_forward(a, x, y, in, out) : proj_forward(a, x, y, in, out);
}

/* From the gradient of proj's output to that of y [T, C], and proj's own gradients. */
static fl_status backward_to_y(const fl_attention_config *a, fl_exec *x, const void *grad_proj,
                               void *grad_y)
{
    const fl_tensor *in = fl_exec_input(x);
    const void *y = fl_exec_kept(x, KEPT_Y);
    int64_t n = in->n_samples, C = a->dim;
    if (!a->first) {
        FL_TRY(fl__linear_grads(x, in->dtype, PROJ_W, grad_proj, y, in->n_tokens));
        return fl__linear_grad_in(x, in->dtype, grad_proj, PROJ_W, grad_y, in->n_tokens);
    }
    void *rows = NULL;
    FL_TRY(fl__scratch_of(x, in->dtype, n * C, &rows));
    FL_TRY(fl__gather_first(x, y, in, rows));
    FL_TRY(fl__linear_grads(x, in->dtype, PROJ_W, grad_proj, rows, n));
    FL_TRY(fl__linear_grad_in(x, in->dtype, grad_proj, PROJ_W, rows, n));
    return fl__scatter_first(x, rows, in, grad_y);
}

/* What comes past the branch: the sum's gradient, for `first` spread over grad_in's memory. */
static fl_status skip_grad(const fl_attention_config *a, fl_exec *x, const fl_tensor *grad_sum,
                           fl_tensor *grad_in, const void **skip)
{
    const fl_tensor *in = fl_exec_input(x);
    *skip = grad_sum->data;
    if (!a->first || grad_in == NULL) {
        return FL_OK;
    }
    *skip = grad_in->data;
    return fl__scatter_first(x, grad_sum->data, in, grad_in->data);
}

/* From the gradient of qkv to that of the layer's input, and the gradients of qkv and of a norm
 * before it. one [T, C]: overwritten. */
static fl_status backward_to_input(const fl_attention_config *a, fl_exec *x, const void *grad_qkv,
                                   void *one, const fl_tensor *grad_sum, fl_tensor *grad_in)
{
    const fl_tensor *in = fl_exec_input(x);
    const void *qkv_in = in->data, *skip = NULL;
    int64_t T = in->n_tokens;
    bool before = a->norm == FL_NORM_BEFORE;
    if (fl_exec_grad(x, QKV_W) != NULL || fl_exec_grad(x, QKV_B) != NULL) {
        if (before) {
            FL_TRY(fl__norm(x, in, a->epsilon, one, NULL, NULL));
            qkv_in = one;
        }
        FL_TRY(fl__linear_grads(x, in->dtype, QKV_W, grad_qkv, qkv_in, T));
    }
    if (!before && grad_in == NULL) {
        return FL_OK;
    }
    FL_TRY(fl__linear_grad_in(x, in->dtype, grad_qkv, QKV_W, one, T));
    FL_TRY(skip_grad(a, x, grad_sum, grad_in, &skip));
    return before ? fl__norm_backward(x, one, fl_exec_kept(x, KEPT_MEAN),
                                      fl_exec_kept(x, KEPT_RSTD), skip, grad_in)
                  : fl_add(x, &(fl_add_args){.dtype = in->dtype,
                                             .a = one,
                                             .b = skip,
                                             .y = grad_in->data,
                                             .n = T * a->dim});
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
    const fl__post_norm norm = post_norm(a);
    const void *grad_proj = NULL;
    void *one = NULL, *grad_qkv = NULL;
    fl_tensor grad_sum = *grad_out;
    if (a->norm == FL_NORM_AFTER) {
        FL_TRY(fl__post_norm_backward(x, &norm, grad_out, &grad_sum));
    }
    FL_TRY(fl__branch_grad(x, &grad_sum, a->dropout, &grad_proj));
    FL_TRY(fl__scratch_of(x, in->dtype, T * C, &one));
    FL_TRY(fl__scratch_of(x, in->dtype, T * 3 * C, &grad_qkv));
    FL_TRY(backward_to_y(a, x, grad_proj, one));
    const fl_attention_backward_args args = {
        .forward = attention_args(a, in, fl_exec_kept(x, KEPT_QKV), fl_exec_kept(x, KEPT_Y),
                                  fl_exec_kept(x, KEPT_LSE)),
        .grad_y = one,
        .grad_qkv = grad_qkv,
    };
    FL_TRY(fl_attention_backward(x, &args));
    return backward_to_input(a, x, grad_qkv, one, &grad_sum, grad_in);
}

#define ATTENTION_OPS(name)                                                                        \
    {                                                                                              \
        .head = FL_TABLE_HEAD(fl_layer_ops), .kind = (name), .shape = attention_shape,             \
        .params = attention_params, .forward = attention_forward, .backward = attention_backward,  \
        .destroy = fl__layer_free                                                                  \
    }

/* Kinds of their own, since each costs what the others do not. */
static const fl_layer_ops attention_ops[2][2] = {
    [FL_NORM_BEFORE] = {ATTENTION_OPS("attention"), ATTENTION_OPS("attention-first")},
    [FL_NORM_AFTER] = {ATTENTION_OPS("attention-post"), ATTENTION_OPS("attention-post-first")},
};

fl_status fl_layer_attention(const fl_attention_config *config, fl_layer *out)
{
    fl_attention_config self = *config;
    FL_TRY(fl__check_norm_place("attention", self.norm));
    const fl_layer_ops *ops = &attention_ops[self.norm][self.first];
    FL_TRY(fl__check_size(ops->kind, "dim", self.dim));
    FL_TRY(fl__check_size(ops->kind, "heads", self.heads));
    FL_TRY(fl__check_size(ops->kind, "depth", self.depth));
    FL_TRY(fl__check_dropout(ops->kind, self.dropout));
    FL_TRY(fl__check_dropout(ops->kind, self.attention_dropout));
    FL_TRY(fl__check_epsilon(ops->kind, &self.epsilon));
    FL_TRY(fl__check_deviation(ops->kind, self.deviation));
    if (self.dim % self.heads != 0) {
        return fl_fail(FL_EINVAL, "%s: dim %lld is not a multiple of heads %lld", ops->kind,
                       (long long)self.dim, (long long)self.heads);
    }
    return fl__layer_new(ops, &self, sizeof self, out);
}
