/* The context in which a layer runs: its parameters, memory, the micro-batch and the kernels.
 *
 * Every kernel here runs on the device that owns the stage, in order, on the exec's stream. Shapes
 * are given on each argument; all matrices are row-major fp32 unless said otherwise. In a dry run
 * (memory planning) kernels compute nothing and memory holds zeros. Threads: the caller's. */
#ifndef FROSTLINE_EXEC_H
#define FROSTLINE_EXEC_H

#include <frostline/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The current micro-batch. Borrowed; valid during the call.
 * sample_ids  [n_samples], as the data set numbers them */
typedef struct fl_batch {
    int64_t n_samples;
    const int64_t *sample_ids;
    uint64_t seed;
    int64_t epoch;
    int64_t n_global; /* samples in the global batch: the loss is the mean over them */
} fl_batch;

const fl_batch *fl_exec_batch(const fl_exec *x);

/* False in evaluation and below the frost line: no dropout, and no backward will follow. */
bool fl_exec_training(const fl_exec *x);

/* Parameter i of this layer, in the order of params(). Borrowed; NULL if there is no such one. */
fl_weight *fl_exec_weight(fl_exec *x, int i);

/* Where to add the gradient of parameter i: [rows, cols]. NULL if it is not needed. */
float *fl_exec_grad(fl_exec *x, int i);

enum { FL_KEEP_MAX = 8 };

/* Memory that forward fills and backward of the same micro-batch reads, under the number `slot`
 * (0 .. FL_KEEP_MAX - 1). Without a backward to come it lives until forward returns.
 * Returns FL_EBUDGET if the stage's arena is full. */
fl_status fl_exec_keep(fl_exec *x, int slot, size_t size_bytes, void **out) FL_MUST_CHECK;

/* In backward: what forward kept under `slot`. */
void *fl_exec_kept(const fl_exec *x, int slot);

/* In backward: what this layer's forward read and wrote. Borrowed. */
const fl_tensor *fl_exec_input(const fl_exec *x);
const fl_tensor *fl_exec_output(const fl_exec *x);

/* Memory until the present call returns. 64-byte aligned, not cleared. */
fl_status fl_exec_scratch(fl_exec *x, size_t size_bytes, void **out) FL_MUST_CHECK;

/* ---- matrix products; weights are [n_out, n_in] as in the field's checkpoints ---- */

/* y[m, n_out] = x[m, n_in] w^T + bias[n_out]; bias may be NULL */
fl_status fl_linear(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias, float *y,
                    int64_t m) FL_MUST_CHECK;

/* pre = in w^T + bias and y = gelu(pre), both [m, n_out]; tanh form of GELU.
 * pre may be NULL when no backward follows. */
fl_status fl_linear_gelu(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias,
                         float *pre, float *y, int64_t m) FL_MUST_CHECK;

/* y = residual + in w^T + bias, [m, n_out]; y may be residual itself */
fl_status fl_linear_residual(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias,
                             const float *residual, float *y, int64_t m) FL_MUST_CHECK;

/* grad_in[m, n_in] = grad_out[m, n_out] w */
fl_status fl_linear_backward_input(fl_exec *x, const float *grad_out, fl_weight *w, float *grad_in,
                                   int64_t m) FL_MUST_CHECK;

/* grad_w[n_out, n_in] += grad_out^T in;  grad_bias[n_out] += column sums of grad_out.
 * Either target may be NULL. */
fl_status fl_linear_backward_weights(fl_exec *x, const float *grad_out, const float *in,
                                     float *grad_w, float *grad_bias, int64_t m, int64_t n_out,
                                     int64_t n_in) FL_MUST_CHECK;

/* ---- passes over memory ---- */

/* grad_pre[n] = grad_y[n] * gelu'(pre[n]); in place allowed */
fl_status fl_gelu_backward(fl_exec *x, const float *grad_y, const float *pre, float *grad_pre,
                           int64_t n) FL_MUST_CHECK;

/* The same, and y[n] = gelu(pre[n]) once more, for a layer that kept only pre: it costs next to
 * nothing here and saves keeping y. y may not be grad_y. */
fl_status fl_gelu_backward_and_y(fl_exec *x, const float *grad_y, const float *pre, float *grad_pre,
                                 float *y, int64_t n) FL_MUST_CHECK;

/* sum = in + residual (when residual is not NULL; sum may be in or NULL then only if unused),
 * y = (sum - mean) * rstd * gamma + beta over each row of [m, n].
 * mean, rstd: [m] out, or NULL when no backward follows. */
fl_status fl_layernorm(fl_exec *x, const float *in, const float *residual, const fl_weight *gamma,
                       const fl_weight *beta, float eps, float *sum, float *y, float *mean,
                       float *rstd, int64_t m, int64_t n) FL_MUST_CHECK;

/* grad_in[m, n] = grad_residual (or 0 when NULL) + the gradient of LayerNorm at `in` (the sum that
 * was normalized); grad_gamma, grad_beta [n] are added to, either may be NULL; so may grad_in.
 * grad_residual may be grad_in. */
fl_status fl_layernorm_backward(fl_exec *x, const float *grad_y, const float *in,
                                const fl_weight *gamma, const float *mean, const float *rstd,
                                const float *grad_residual, float *grad_in, float *grad_gamma,
                                float *grad_beta, int64_t m, int64_t n) FL_MUST_CHECK;

/* Softmax attention within each sample, all heads:
 * qkv [n_tokens, 3 C] (q, k, v one after another, each as `heads` runs of C / heads), y [n_tokens,
 * C], lse [n_tokens, heads] out (log-sum-exp of each row's scores), or NULL when no backward
 * follows. Scores are scaled by 1 / sqrt(C / heads); causal hides later tokens. */
fl_status fl_attention(fl_exec *x, const float *qkv, const int32_t *offsets, int64_t n_samples,
                       int64_t heads, int64_t width, bool causal, float *y,
                       float *lse) FL_MUST_CHECK;

/* grad_qkv [n_tokens, 3 C] is written. y, lse: what the forward gave. */
fl_status fl_attention_backward(fl_exec *x, const float *grad_y, const float *qkv, const float *y,
                                const float *lse, const int32_t *offsets, int64_t n_samples,
                                int64_t heads, int64_t width, bool causal,
                                float *grad_qkv) FL_MUST_CHECK;

/* y[n_tokens, width] = in * mask / (1 - p), the mask drawn from (seed, epoch, sample id, layer,
 * stream, element within the sample); the same call with grad_out as `in` is the backward.
 * In place allowed. `stream` distinguishes several dropouts of one layer. p = 0 or no training
 * copies. p counts in steps of 1 / 65536. */
fl_status fl_dropout(fl_exec *x, const float *in, const int32_t *offsets, int64_t width, float p,
                     int stream, float *y) FL_MUST_CHECK;

/* y[n] = a[n] + b[n]; y may be a or b */
fl_status fl_add(fl_exec *x, const float *a, const float *b, float *y, int64_t n) FL_MUST_CHECK;

/* y[n_rows, width] = in[index[i]] of [any, width]; index is host memory */
fl_status fl_gather_rows(fl_exec *x, const float *in, const int32_t *index, int64_t n_rows,
                         int64_t width, float *y) FL_MUST_CHECK;

/* y[total_rows, width] = 0, then row index[i] = in[i]; indices are distinct */
fl_status fl_scatter_rows(fl_exec *x, const float *in, const int32_t *index, int64_t n_rows,
                          int64_t width, float *y, int64_t total_rows) FL_MUST_CHECK;

/* Cut images [n, channels * height * width] into patches: y [n * patches, channels * patch *
 * patch], patches in rows, then columns. height and width are multiples of patch. */
fl_status fl_patchify(fl_exec *x, const float *images, int64_t n, int64_t channels, int64_t height,
                      int64_t width, int64_t patch, float *y) FL_MUST_CHECK;

/* y[s, 0] = cls + pos[0] and y[s, 1 + p] = patches[s, p] + pos[1 + p]:
 * patches [n * n_patches, dim], cls [1, dim], pos [n_patches + 1, dim], y [n * (n_patches + 1),
 * dim] */
fl_status fl_vit_assemble(fl_exec *x, const float *patches, const fl_weight *cls,
                          const fl_weight *pos, int64_t n, int64_t n_patches, int64_t dim,
                          float *y) FL_MUST_CHECK;

/* grad_patches [n * n_patches, dim] is written; grad_cls [dim], grad_pos [n_patches + 1, dim] are
 * added to; each may be NULL. */
fl_status fl_vit_assemble_backward(fl_exec *x, const float *grad_y, int64_t n, int64_t n_patches,
                                   int64_t dim, float *grad_patches, float *grad_cls,
                                   float *grad_pos) FL_MUST_CHECK;

/* logits [m, n]; targets [m], host memory, 0 <= target < n. Writes grad [m, n] = grad_scale *
 * (softmax - onehot) unless it is NULL; adds the losses to *loss_sum and the rows whose largest
 * logit is the target's to *n_correct: host memory that stays valid until the stream was waited
 * for. */
fl_status fl_cross_entropy(fl_exec *x, const float *logits, const int32_t *targets, int64_t m,
                           int64_t n, float grad_scale, float *grad, double *loss_sum,
                           double *n_correct) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
