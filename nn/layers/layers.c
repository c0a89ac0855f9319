#include "nn/layers/layers.h"

#include "device/system/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

fl_status fl__layer_new(const fl_layer_ops *ops, const void *self, size_t size_bytes, fl_layer *out)
{
    void *copy = NULL;
    FL_TRY(fl_alloc(size_bytes, &copy));
    memcpy(copy, self, size_bytes);
    *out = (fl_layer){.ops = ops, .self = copy};
    return FL_OK;
}

void fl__layer_free(void *self)
{
    fl_free(self);
}

fl_status fl__check_size(const char *kind, const char *name, int64_t value)
{
    if (value < 1 || value > FL__SIZE_MAX) {
        return fl_fail(FL_EINVAL, "%s: %s is %lld, allowed is 1 to %d", kind, name,
                       (long long)value, FL__SIZE_MAX);
    }
    return FL_OK;
}

fl_status fl__check_dropout(const char *kind, float p)
{
    if (!(p >= 0.0f && p < 1.0f)) {
        return fl_fail(FL_EINVAL, "%s: dropout is %g, allowed is 0 to below 1", kind, (double)p);
    }
    return FL_OK;
}

fl_status fl__check_epsilon(const char *kind, float *epsilon)
{
    if (!(*epsilon >= 0.0f && isfinite(*epsilon))) {
        return fl_fail(FL_EINVAL, "%s: epsilon is %g, allowed is 0 (the default) or more", kind,
                       (double)*epsilon);
    }
    *epsilon = *epsilon == 0.0f ? FL__LAYERNORM_EPS : *epsilon;
    return FL_OK;
}

fl_status fl__check_deviation(const char *kind, float deviation)
{
    return deviation >= 0.0f && isfinite(deviation)
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: deviation is %g, allowed is 0 (the default) or more", kind,
                         (double)deviation);
}

fl_status fl__check_activations(const char *kind, fl_dtype dtype)
{
    return dtype == FL_F32 || dtype == FL_BF16
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: dtype is %s, allowed are fp32 and bf16", kind,
                         fl_dtype_name(dtype));
}

fl_status fl__check_norm_place(const char *kind, fl_norm_place place)
{
    return place == FL_NORM_BEFORE || place == FL_NORM_AFTER
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: norm is %d, allowed are FL_NORM_BEFORE and FL_NORM_AFTER",
                         kind, (int)place);
}

fl_status fl__check_input(const fl_shape *in, int64_t width)
{
    if (in->dtype != FL_F32 && in->dtype != FL_BF16) {
        return fl_fail(FL_EINVAL, "takes fp32 or bf16, got %s", fl_dtype_name(in->dtype));
    }
    if (in->tokens < 1 || in->width != width) {
        return fl_fail(FL_EINVAL, "takes rows of width %lld, got [%lld, %lld]", (long long)width,
                       (long long)in->tokens, (long long)in->width);
    }
    return FL_OK;
}

fl_status fl__check_fp32_input(const fl_shape *in, int64_t width)
{
    if (in->dtype != FL_F32) {
        return fl_fail(FL_EINVAL, "takes fp32, got %s", fl_dtype_name(in->dtype));
    }
    return fl__check_input(in, width);
}

static fl_status params_affine(fl_param_list *list, const char *name, int64_t n_out, int64_t n_in,
                               int64_t depth, float deviation)
{
    char text[48];
    bool normal = deviation > 0;
    double scale =
        normal ? (double)deviation / sqrt((double)depth) : 1.0 / sqrt((double)n_in * (double)depth);
    snprintf(text, sizeof text, "%s.weight", name);
    FL_TRY(fl_param_list_add(list, text, n_out, n_in, normal ? FL_INIT_NORMAL : FL_INIT_UNIFORM,
                             (float)scale, true));
    snprintf(text, sizeof text, "%s.bias", name);
    return fl_param_list_add(list, text, n_out, 1, normal ? FL_INIT_ZEROS : FL_INIT_UNIFORM,
                             (float)scale, false);
}

fl_status fl__params_linear(fl_param_list *list, const char *name, int64_t n_out, int64_t n_in,
                            float deviation)
{
    return params_affine(list, name, n_out, n_in, 1, deviation);
}

fl_status fl__params_branch(fl_param_list *list, int64_t n_out, int64_t n_in, int64_t depth,
                            float deviation)
{
    return params_affine(list, "proj", n_out, n_in, depth, deviation);
}

fl_status fl__params_norm(fl_param_list *list, const char *name, int64_t dim)
{
    char text[48];
    snprintf(text, sizeof text, "%s.weight", name);
    FL_TRY(fl_param_list_add(list, text, dim, 1, FL_INIT_ONES, 0.0f, false));
    snprintf(text, sizeof text, "%s.bias", name);
    return fl_param_list_add(list, text, dim, 1, FL_INIT_ZEROS, 0.0f, false);
}

fl_status fl__scratch_of(fl_exec *x, fl_dtype dtype, int64_t n, void **out)
{
    return fl_exec_scratch(x, (size_t)n * fl_dtype_size(dtype), out);
}

fl_status fl__keep_of(fl_exec *x, int slot, fl_dtype dtype, int64_t n, void **out)
{
    return fl_exec_keep(x, slot, (size_t)n * fl_dtype_size(dtype), out);
}

fl_status fl__scratch(fl_exec *x, int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl__scratch_of(x, FL_F32, n, &memory));
    *out = memory;
    return FL_OK;
}

fl_status fl__keep(fl_exec *x, int slot, int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl__keep_of(x, slot, FL_F32, n, &memory));
    *out = memory;
    return FL_OK;
}

fl_status fl__linear(fl_exec *x, fl_dtype dtype, const void *in, int weight, void *y, int64_t m)
{
    return fl_linear(x, &(fl_linear_args){.dtype = dtype,
                                          .in = in,
                                          .w = fl_exec_weight(x, weight),
                                          .bias = fl_exec_weight(x, weight + 1),
                                          .y = y,
                                          .m = m});
}

fl_status fl__linear_grad_in(fl_exec *x, fl_dtype dtype, const void *grad_out, int weight,
                             void *grad_in, int64_t m)
{
    return fl_linear_backward_input(x,
                                    &(fl_linear_backward_input_args){.dtype = dtype,
                                                                     .grad_out = grad_out,
                                                                     .w = fl_exec_weight(x, weight),
                                                                     .grad_in = grad_in,
                                                                     .m = m});
}

fl_status fl__linear_grads(fl_exec *x, fl_dtype dtype, int weight, const void *grad_out,
                           const void *in, int64_t m)
{
    const fl_weight *w = fl_exec_weight(x, weight);
    return fl_linear_backward_weights(
        x, &(fl_linear_backward_weights_args){.dtype = dtype,
                                              .grad_out = grad_out,
                                              .in = in,
                                              .grad_w = fl_exec_grad(x, weight),
                                              .grad_bias = fl_exec_grad(x, weight + 1),
                                              .m = m,
                                              .n_out = w->rows,
                                              .n_in = w->cols});
}

fl_status fl__drop(fl_exec *x, const void *in, const fl_tensor *rows, float p, void *y)
{
    return fl_dropout(x, &(fl_dropout_args){.dtype = rows->dtype,
                                            .in = in,
                                            .offsets = fl_offsets_of(rows),
                                            .width = rows->width,
                                            .mask = {.p = p},
                                            .y = y});
}

fl_status fl__branch_forward(fl_exec *x, const void *h, int weight, const fl_tensor *in,
                             float dropout, fl_tensor *out)
{
    int64_t T = in->n_tokens, C = in->width;
    if (dropout == 0.0f || !fl_exec_training(x)) {
        return fl_linear(x, &(fl_linear_args){.dtype = in->dtype,
                                              .in = h,
                                              .w = fl_exec_weight(x, weight),
                                              .bias = fl_exec_weight(x, weight + 1),
                                              .residual = in->data,
                                              .y = out->data,
                                              .m = T});
    }
    FL_TRY(fl__linear(x, in->dtype, h, weight, out->data, T));
    FL_TRY(fl__drop(x, out->data, in, dropout, out->data));
    return fl_add(
        x, &(fl_add_args){
               .dtype = in->dtype, .a = out->data, .b = in->data, .y = out->data, .n = T * C});
}

fl_status fl__branch_grad(fl_exec *x, const fl_tensor *grad_out, float dropout, const void **out)
{
    if (dropout == 0.0f) {
        *out = grad_out->data;
        return FL_OK;
    }
    void *dropped = NULL;
    FL_TRY(fl__scratch_of(x, grad_out->dtype, grad_out->n_tokens * grad_out->width, &dropped));
    *out = dropped;
    return fl__drop(x, grad_out->data, grad_out, dropout, dropped);
}

fl_status fl__norm(fl_exec *x, const fl_tensor *in, float epsilon, void *y, float *mean,
                   float *rstd)
{
    return fl_layernorm(x, &(fl_norm_args){.dtype = in->dtype,
                                           .in = in->data,
                                           .gamma = fl_exec_weight(x, 0),
                                           .beta = fl_exec_weight(x, 1),
                                           .epsilon = epsilon,
                                           .y = y,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .m = in->n_tokens,
                                           .n = in->width});
}

fl_status fl__norm_backward(fl_exec *x, const void *grad_y, const float *mean, const float *rstd,
                            const void *grad_residual, fl_tensor *grad_in)
{
    const fl_tensor *in = fl_exec_input(x);
    return fl_layernorm_backward(
        x, &(fl_norm_backward_args){.dtype = in->dtype,
                                    .grad_y = grad_y,
                                    .in = in->data,
                                    .gamma = fl_exec_weight(x, 0),
                                    .mean = mean,
                                    .rstd = rstd,
                                    .grad_residual = grad_residual,
                                    .grad_in = grad_in == NULL ? NULL : grad_in->data,
                                    .grad_gamma = fl_exec_grad(x, 0),
                                    .grad_beta = fl_exec_grad(x, 1),
                                    .m = in->n_tokens,
                                    .n = in->width});
}

fl_status fl__gather_first(fl_exec *x, const void *in, const fl_tensor *rows, void *y)
{
    return fl_gather_rows(x, &(fl_gather_rows_args){.dtype = rows->dtype,
                                                    .in = in,
                                                    .index = rows->offsets_device,
                                                    .y = y,
                                                    .n_rows = rows->n_samples,
                                                    .width = rows->width});
}

fl_status fl__scatter_first(fl_exec *x, const void *in, const fl_tensor *rows, void *y)
{
    return fl_scatter_rows(x, &(fl_scatter_rows_args){.dtype = rows->dtype,
                                                      .in = in,
                                                      .index = rows->offsets_device,
                                                      .y = y,
                                                      .n_rows = rows->n_samples,
                                                      .total_rows = rows->n_tokens,
                                                      .width = rows->width});
}

fl_status fl__first_as_fp32(fl_exec *x, const fl_tensor *in, float *y)
{
    void *first = y;
    int64_t n = in->n_samples * in->width;
    if (in->dtype == FL_F32) {
        return fl__gather_first(x, in->data, in, y);
    }
    FL_TRY(fl__scratch_of(x, in->dtype, n, &first));
    FL_TRY(fl__gather_first(x, in->data, in, first));
    return fl_convert(x, &(fl_convert_args){.in = first, .y = y, .from = in->dtype, .n = n});
}

fl_status fl__fp32_to_first(fl_exec *x, const float *in, const fl_tensor *rows, void *y)
{
    void *first = NULL;
    int64_t n = rows->n_samples * rows->width;
    if (rows->dtype == FL_F32) {
        return fl__scatter_first(x, in, rows, y);
    }
    FL_TRY(fl__scratch_of(x, rows->dtype, n, &first));
    FL_TRY(fl_convert(x, &(fl_convert_args){.in = in, .y = first, .to = rows->dtype, .n = n}));
    return fl__scatter_first(x, first, rows, y);
}

bool fl__any_grad(fl_exec *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (fl_exec_grad(x, i) != NULL) {
            return true;
        }
    }
    return false;
}
