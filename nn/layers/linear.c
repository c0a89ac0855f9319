/* in w^T + bias, in fp32 whatever the type of the input: what a head puts out is fp32. Nothing is
 * kept: backward reads the layer's input. */
#include "nn/layers/layers.h"

enum { FC_W, FC_B }; /* parameters */

typedef struct linear {
    int64_t n_in, n_out;
    float deviation; /* of the initial weights; 0: as PyTorch's nn.Linear */
} linear;

static fl_status linear_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const linear *l = self;
    FL_TRY(fl__check_input(in, l->n_in));
    *out = (fl_shape){.tokens = in->tokens, .width = l->n_out, .dtype = FL_F32};
    return FL_OK;
}

static fl_status linear_params(void *self, fl_param_list *list)
{
    const linear *l = self;
    return fl__params_linear(list, "fc", l->n_out, l->n_in, l->deviation);
}

/* The input as fp32: itself, or a copy in scratch memory. */
static fl_status input_as_fp32(fl_exec *x, const fl_tensor *in, const void **out)
{
    float *copy = NULL;
    int64_t n = in->n_tokens * in->width;
    *out = in->data;
    if (in->dtype == FL_F32) {
        return FL_OK;
    }
    FL_TRY(fl__scratch(x, n, &copy));
    *out = copy;
    return fl_convert(x, &(fl_convert_args){.in = in->data, .y = copy, .from = in->dtype, .n = n});
}

static fl_status linear_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    const void *rows = NULL;
    FL_TRY(input_as_fp32(x, in, &rows));
    return fl__linear(x, FL_F32, rows, FC_W, out->data, in->n_tokens);
}

/* The gradient of the input, in the input's type. */
static fl_status backward_to_input(fl_exec *x, const fl_tensor *grad_out, fl_tensor *grad_in)
{
    float *wide = NULL;
    int64_t n = grad_in->n_tokens * grad_in->width;
    if (grad_in->dtype == FL_F32) {
        return fl__linear_grad_in(x, FL_F32, grad_out->data, FC_W, grad_in->data,
                                  grad_in->n_tokens);
    }
    FL_TRY(fl__scratch(x, n, &wide));
    FL_TRY(fl__linear_grad_in(x, FL_F32, grad_out->data, FC_W, wide, grad_in->n_tokens));
    return fl_convert(
        x, &(fl_convert_args){.in = wide, .y = grad_in->data, .to = grad_in->dtype, .n = n});
}

static fl_status linear_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                 fl_tensor *grad_in)
{
    (void)self;
    const fl_tensor *in = fl_exec_input(x);
    const void *rows = NULL;
    if (grad_in == NULL && !fl__any_grad(x, FC_B + 1)) {
        return FL_OK;
    }
    FL_TRY(input_as_fp32(x, in, &rows));
    FL_TRY(fl__linear_grads(x, FL_F32, FC_W, grad_out->data, rows, in->n_tokens));
    return grad_in == NULL ? FL_OK : backward_to_input(x, grad_out, grad_in);
}

static const fl_layer_ops linear_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "linear",
    .shape = linear_shape,
    .params = linear_params,
    .forward = linear_forward,
    .backward = linear_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_linear(int64_t n_in, int64_t n_out, fl_layer *out)
{
    return fl_layer_linear_normal(n_in, n_out, 0, out);
}

fl_status fl_layer_linear_normal(int64_t n_in, int64_t n_out, float deviation, fl_layer *out)
{
    FL_TRY(fl__check_size("linear", "n_in", n_in));
    FL_TRY(fl__check_size("linear", "n_out", n_out));
    FL_TRY(fl__check_deviation("linear", deviation));
    const linear self = {.n_in = n_in, .n_out = n_out, .deviation = deviation};
    return fl__layer_new(&linear_ops, &self, sizeof self, out);
}
