/* in w^T + bias. Nothing is kept: backward reads the layer's input. */
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

static fl_status linear_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    return fl__linear(x, in->data, FC_W, out->data, in->n_tokens);
}

static fl_status linear_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                 fl_tensor *grad_in)
{
    (void)self;
    const fl_tensor *in = fl_exec_input(x);
    FL_TRY(fl__linear_grads(x, FC_W, grad_out->data, in->data, in->n_tokens));
    if (grad_in == NULL) {
        return FL_OK;
    }
    return fl__linear_grad_in(x, grad_out->data, FC_W, grad_in->data, in->n_tokens);
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
