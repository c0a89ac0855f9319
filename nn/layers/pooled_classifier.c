/* fc(dropout(tanh(pooler(x)))) of each sample's first token: BERT's pooler and classifier.
 *
 * Everything here has one row a sample, so it is kept as it comes: 3 C floats a sample. It is fp32,
 * whatever the type of the input. */
#include "nn/layers/layers.h"

enum { POOLER_W, POOLER_B, FC_W, FC_B };   /* parameters */
enum { KEPT_ROWS, KEPT_PRE, KEPT_POOLED }; /* slots */

static fl_status pooled_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_pooled_classifier_config *l = self;
    FL_TRY(fl__check_input(in, l->dim));
    *out = (fl_shape){.tokens = 1, .width = l->n_classes, .dtype = FL_F32};
    return FL_OK;
}

static fl_status pooled_params(void *self, fl_param_list *list)
{
    const fl_pooled_classifier_config *l = self;
    FL_TRY(fl__params_linear(list, "pooler", l->dim, l->dim, l->deviation));
    return fl__params_linear(list, "fc", l->n_classes, l->dim, l->deviation);
}

/* The rows of one token a sample, which lie at `data`. */
static fl_tensor rows_of(const fl_tensor *out, int64_t width, float *data)
{
    fl_tensor rows = *out; /* its offsets are those of one row a sample */
    rows.data = data;
    rows.width = width;
    return rows;
}

static fl_status pooled_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_pooled_classifier_config *l = self;
    int64_t n = in->n_samples, C = l->dim;
    float *rows = NULL, *pre = NULL, *pooled = NULL;
    FL_TRY(fl__keep(x, KEPT_ROWS, n * C, &rows));
    FL_TRY(fl__keep(x, KEPT_PRE, n * C, &pre));
    FL_TRY(fl__keep(x, KEPT_POOLED, n * C, &pooled));
    FL_TRY(fl__first_as_fp32(x, in, rows));
    FL_TRY(fl_linear(x, &(fl_linear_args){.in = rows,
                                          .w = fl_exec_weight(x, POOLER_W),
                                          .bias = fl_exec_weight(x, POOLER_B),
                                          .activation = FL_ACT_TANH,
                                          .pre = pre,
                                          .y = pooled,
                                          .m = n}));
    const fl_tensor dropped = rows_of(out, C, pooled);
    if (l->dropout > 0.0f && fl_exec_training(x)) {
        FL_TRY(fl__drop(x, pooled, &dropped, l->dropout, pooled));
    }
    return fl__linear(x, FL_F32, pooled, FC_W, out->data, n);
}

static fl_status pooled_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                 fl_tensor *grad_in)
{
    const fl_pooled_classifier_config *l = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t n = in->n_samples, C = l->dim;
    if (grad_in == NULL && !fl__any_grad(x, FC_B + 1)) {
        return FL_OK;
    }
    float *grad = NULL;
    FL_TRY(fl__scratch(x, n * C, &grad));
    FL_TRY(fl__linear_grads(x, FL_F32, FC_W, grad_out->data, fl_exec_kept(x, KEPT_POOLED), n));
    FL_TRY(fl__linear_grad_in(x, FL_F32, grad_out->data, FC_W, grad, n));
    const fl_tensor pooled = rows_of(grad_out, C, grad);
    if (l->dropout > 0.0f) {
        FL_TRY(fl__drop(x, grad, &pooled, l->dropout, grad));
    }
    FL_TRY(fl_activate_backward(x, &(fl_activate_backward_args){.activation = FL_ACT_TANH,
                                                                .grad_y = grad,
                                                                .pre = fl_exec_kept(x, KEPT_PRE),
                                                                .grad_pre = grad,
                                                                .n = n * C}));
    FL_TRY(fl__linear_grads(x, FL_F32, POOLER_W, grad, fl_exec_kept(x, KEPT_ROWS), n));
    if (grad_in == NULL) {
        return FL_OK;
    }
    float *grad_rows = NULL;
    FL_TRY(fl__scratch(x, n * C, &grad_rows));
    FL_TRY(fl__linear_grad_in(x, FL_F32, grad, POOLER_W, grad_rows, n));
    return fl__fp32_to_first(x, grad_rows, in, grad_in->data);
}

static const fl_layer_ops pooled_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "pooled-classifier",
    .shape = pooled_shape,
    .params = pooled_params,
    .forward = pooled_forward,
    .backward = pooled_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_pooled_classifier(const fl_pooled_classifier_config *config, fl_layer *out)
{
    FL_TRY(fl__check_size(pooled_ops.kind, "dim", config->dim));
    FL_TRY(fl__check_size(pooled_ops.kind, "n_classes", config->n_classes));
    FL_TRY(fl__check_dropout(pooled_ops.kind, config->dropout));
    FL_TRY(fl__check_deviation(pooled_ops.kind, config->deviation));
    return fl__layer_new(&pooled_ops, config, sizeof *config, out);
}
