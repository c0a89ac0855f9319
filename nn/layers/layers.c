#include "nn/layers/layers.h"

#include "device/alloc.h"

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

fl_status fl__check_input(const fl_shape *in, int64_t width)
{
    if (in->dtype != FL_F32) {
        return fl_fail(FL_EINVAL, "takes 32-bit floats");
    }
    if (in->tokens < 1 || in->width != width) {
        return fl_fail(FL_EINVAL, "takes rows of width %lld, got [%lld, %lld]", (long long)width,
                       (long long)in->tokens, (long long)in->width);
    }
    return FL_OK;
}

static fl_status params_affine(fl_param_list *list, const char *name, int64_t n_out, int64_t n_in,
                               float scale)
{
    char text[48];
    snprintf(text, sizeof text, "%s.weight", name);
    FL_TRY(fl_param_list_add(list, text, n_out, n_in, FL_INIT_UNIFORM, scale, true));
    snprintf(text, sizeof text, "%s.bias", name);
    return fl_param_list_add(list, text, n_out, 1, FL_INIT_UNIFORM, scale, false);
}

fl_status fl__params_linear(fl_param_list *list, const char *name, int64_t n_out, int64_t n_in)
{
    return params_affine(list, name, n_out, n_in, (float)(1.0 / sqrt((double)n_in)));
}

fl_status fl__params_branch(fl_param_list *list, int64_t n_out, int64_t n_in, int64_t depth)
{
    return params_affine(list, "proj", n_out, n_in,
                         (float)(1.0 / sqrt((double)n_in * (double)depth)));
}

fl_status fl__params_norm(fl_param_list *list, const char *name, int64_t dim)
{
    char text[48];
    snprintf(text, sizeof text, "%s.weight", name);
    FL_TRY(fl_param_list_add(list, text, dim, 1, FL_INIT_ONES, 0.0f, false));
    snprintf(text, sizeof text, "%s.bias", name);
    return fl_param_list_add(list, text, dim, 1, FL_INIT_ZEROS, 0.0f, false);
}

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

fl_status fl__scratch(fl_exec *x, int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl_exec_scratch(x, floats(n), &memory));
    *out = memory;
    return FL_OK;
}

fl_status fl__keep(fl_exec *x, int slot, int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl_exec_keep(x, slot, floats(n), &memory));
    *out = memory;
    return FL_OK;
}

fl_status fl__branch_forward(fl_exec *x, const float *h, int weight, const fl_tensor *in,
                             float dropout, fl_tensor *out)
{
    fl_weight *w = fl_exec_weight(x, weight);
    fl_weight *bias = fl_exec_weight(x, weight + 1);
    int64_t T = in->n_tokens, C = in->width;
    float *y = fl_f32(out);
    if (dropout == 0.0f || !fl_exec_training(x)) {
        return fl_linear_residual(x, h, w, bias, fl_f32(in), y, T);
    }
    FL_TRY(fl_linear(x, h, w, bias, y, T));
    FL_TRY(fl_dropout(x, y, in->offsets, C, dropout, 0, y));
    return fl_add(x, y, fl_f32(in), y, T * C);
}

fl_status fl__branch_grad(fl_exec *x, const fl_tensor *grad_out, float dropout, const float **out)
{
    if (dropout == 0.0f) {
        *out = fl_f32(grad_out);
        return FL_OK;
    }
    float *dropped = NULL;
    FL_TRY(fl__scratch(x, grad_out->n_tokens * grad_out->width, &dropped));
    *out = dropped;
    return fl_dropout(x, fl_f32(grad_out), grad_out->offsets, grad_out->width, dropout, 0, dropped);
}

fl_status fl__linear_grads(fl_exec *x, int weight, const float *grad_out, const float *in,
                           int64_t m)
{
    const fl_weight *w = fl_exec_weight(x, weight);
    return fl_linear_backward_weights(x, grad_out, in, fl_exec_grad(x, weight),
                                      fl_exec_grad(x, weight + 1), m, w->rows, w->cols);
}

fl_status fl__norm(fl_exec *x, const fl_tensor *in, float *y, float *mean, float *rstd)
{
    return fl_layernorm(x, fl_f32(in), NULL, fl_exec_weight(x, 0), fl_exec_weight(x, 1),
                        FL__LAYERNORM_EPS, NULL, y, mean, rstd, in->n_tokens, in->width);
}

fl_status fl__norm_backward(fl_exec *x, const float *grad_y, const float *mean, const float *rstd,
                            const float *grad_residual, fl_tensor *grad_in)
{
    const fl_tensor *in = fl_exec_input(x);
    return fl_layernorm_backward(x, grad_y, fl_f32(in), fl_exec_weight(x, 0), mean, rstd,
                                 grad_residual, grad_in == NULL ? NULL : fl_f32(grad_in),
                                 fl_exec_grad(x, 0), fl_exec_grad(x, 1), in->n_tokens, in->width);
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
