/* The kernels as a layer calls them: checked, and handed to the device that owns the stage. An
 * empty micro-batch stops here, so no device has to think of it. */
#include "nn/exec.h"

static fl_status no_weight(const char *kernel)
{
    return fl_fail(FL_EINVAL, "%s got no weight: fl_exec_weight knows no such parameter", kernel);
}

static fl_status linear(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias,
                        const float *residual, bool gelu, float *pre, float *y, int64_t m)
{
    if (w == NULL) {
        return no_weight("fl_linear");
    }
    if (bias != NULL && bias->rows * bias->cols != w->rows) {
        return fl_fail(FL_EINVAL, "fl_linear: the bias has %lld elements for %lld outputs",
                       (long long)(bias->rows * bias->cols), (long long)w->rows);
    }
    if (m == 0) {
        return FL_OK;
    }
    return x->device->ops->linear(x->device, x->stream, in, w, bias == NULL ? NULL : bias->data,
                                  residual, gelu, pre, y, m);
}

fl_status fl_linear(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias, float *y,
                    int64_t m)
{
    return linear(x, in, w, bias, NULL, false, NULL, y, m);
}

fl_status fl_linear_gelu(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias,
                         float *pre, float *y, int64_t m)
{
    return linear(x, in, w, bias, NULL, true, pre, y, m);
}

fl_status fl_linear_residual(fl_exec *x, const float *in, fl_weight *w, const fl_weight *bias,
                             const float *residual, float *y, int64_t m)
{
    return linear(x, in, w, bias, residual, false, NULL, y, m);
}

fl_status fl_linear_backward_input(fl_exec *x, const float *grad_out, fl_weight *w, float *grad_in,
                                   int64_t m)
{
    if (w == NULL) {
        return no_weight("fl_linear_backward_input");
    }
    if (m == 0) {
        return FL_OK;
    }
    return x->device->ops->linear_backward_input(x->device, x->stream, grad_out, w, grad_in, m);
}

fl_status fl_linear_backward_weights(fl_exec *x, const float *grad_out, const float *in,
                                     float *grad_w, float *grad_bias, int64_t m, int64_t n_out,
                                     int64_t n_in)
{
    if (m == 0 || (grad_w == NULL && grad_bias == NULL)) {
        return FL_OK;
    }
    return x->device->ops->linear_backward_weights(x->device, x->stream, grad_out, in, grad_w,
                                                   grad_bias, m, n_out, n_in);
}

fl_status fl_gelu_backward(fl_exec *x, const float *grad_y, const float *pre, float *grad_pre,
                           int64_t n)
{
    return fl_gelu_backward_and_y(x, grad_y, pre, grad_pre, NULL, n);
}

fl_status fl_gelu_backward_and_y(fl_exec *x, const float *grad_y, const float *pre, float *grad_pre,
                                 float *y, int64_t n)
{
    if (n == 0) {
        return FL_OK;
    }
    return x->device->ops->gelu_backward(x->device, x->stream, grad_y, pre, grad_pre, y, n);
}

fl_status fl_layernorm(fl_exec *x, const float *in, const float *residual, const fl_weight *gamma,
                       const fl_weight *beta, float eps, float *sum, float *y, float *mean,
                       float *rstd, int64_t m, int64_t n)
{
    if (gamma == NULL || beta == NULL) {
        return no_weight("fl_layernorm");
    }
    if (m == 0) {
        return FL_OK;
    }
    return x->device->ops->layernorm(x->device, x->stream, in, residual, gamma->data, beta->data,
                                     eps, sum, y, mean, rstd, m, n);
}

fl_status fl_layernorm_backward(fl_exec *x, const float *grad_y, const float *in,
                                const fl_weight *gamma, const float *mean, const float *rstd,
                                const float *grad_residual, float *grad_in, float *grad_gamma,
                                float *grad_beta, int64_t m, int64_t n)
{
    if (gamma == NULL) {
        return no_weight("fl_layernorm_backward");
    }
    if (m == 0) {
        return FL_OK;
    }
    return x->device->ops->layernorm_backward(x->device, x->stream, grad_y, in, gamma->data, mean,
                                              rstd, grad_residual, grad_in, grad_gamma, grad_beta,
                                              m, n);
}

fl_status fl_attention(fl_exec *x, const float *qkv, const int32_t *offsets, int64_t n_samples,
                       int64_t heads, int64_t width, bool causal, float *y, float *lse)
{
    if (n_samples == 0) {
        return FL_OK;
    }
    return x->device->ops->attention(x->device, x->stream, qkv, offsets, n_samples, heads, width,
                                     causal, y, lse);
}

fl_status fl_attention_backward(fl_exec *x, const float *grad_y, const float *qkv, const float *y,
                                const float *lse, const int32_t *offsets, int64_t n_samples,
                                int64_t heads, int64_t width, bool causal, float *grad_qkv)
{
    if (n_samples == 0) {
        return FL_OK;
    }
    return x->device->ops->attention_backward(x->device, x->stream, grad_y, qkv, y, lse, offsets,
                                              n_samples, heads, width, causal, grad_qkv);
}

fl_status fl_dropout(fl_exec *x, const float *in, const int32_t *offsets, int64_t width, float p,
                     int stream, float *y)
{
    float rate = x->training ? p : 0.0f;
    if (x->batch->n_samples == 0 || (rate == 0.0f && in == y)) {
        return FL_OK;
    }
    fl_rng_key key = {
        .seed = x->batch->seed, .epoch = x->batch->epoch, .layer = x->layer, .stream = stream};
    return x->device->ops->dropout(x->device, x->stream, in, offsets, x->batch->sample_ids,
                                   x->batch->n_samples, width, rate, &key, y);
}

fl_status fl_add(fl_exec *x, const float *a, const float *b, float *y, int64_t n)
{
    if (n == 0) {
        return FL_OK;
    }
    return x->device->ops->add(x->device, x->stream, a, b, y, n);
}

fl_status fl_gather_rows(fl_exec *x, const float *in, const int32_t *index, int64_t n_rows,
                         int64_t width, float *y)
{
    if (n_rows == 0) {
        return FL_OK;
    }
    return x->device->ops->gather_rows(x->device, x->stream, in, index, n_rows, width, y);
}

fl_status fl_scatter_rows(fl_exec *x, const float *in, const int32_t *index, int64_t n_rows,
                          int64_t width, float *y, int64_t total_rows)
{
    if (total_rows == 0) {
        return FL_OK;
    }
    return x->device->ops->scatter_rows(x->device, x->stream, in, index, n_rows, width, y,
                                        total_rows);
}

fl_status fl_patchify(fl_exec *x, const float *images, int64_t n, int64_t channels, int64_t height,
                      int64_t width, int64_t patch, float *y)
{
    if (n == 0) {
        return FL_OK;
    }
    return x->device->ops->patchify(x->device, x->stream, images, n, channels, height, width, patch,
                                    y);
}

fl_status fl_vit_assemble(fl_exec *x, const float *patches, const fl_weight *cls,
                          const fl_weight *pos, int64_t n, int64_t n_patches, int64_t dim, float *y)
{
    if (cls == NULL || pos == NULL) {
        return no_weight("fl_vit_assemble");
    }
    if (n == 0) {
        return FL_OK;
    }
    return x->device->ops->vit_assemble(x->device, x->stream, patches, cls->data, pos->data, n,
                                        n_patches, dim, y);
}

fl_status fl_vit_assemble_backward(fl_exec *x, const float *grad_y, int64_t n, int64_t n_patches,
                                   int64_t dim, float *grad_patches, float *grad_cls,
                                   float *grad_pos)
{
    if (n == 0) {
        return FL_OK;
    }
    return x->device->ops->vit_assemble_backward(x->device, x->stream, grad_y, n, n_patches, dim,
                                                 grad_patches, grad_cls, grad_pos);
}

fl_status fl_cross_entropy(fl_exec *x, const float *logits, const int32_t *targets, int64_t m,
                           int64_t n, float grad_scale, float *grad, double *loss_sum,
                           double *n_correct)
{
    if (m == 0) {
        return FL_OK;
    }
    return x->device->ops->cross_entropy(x->device, x->stream, logits, targets, m, n, grad_scale,
                                         grad, loss_sum, n_correct);
}
