/* LayerNorm and a linear map of each sample's first token, the class token.
 *
 * Everything here has one row a sample, so it is kept as it comes: 2 C + 2 floats a sample. It is
 * fp32, whatever the type of the input. The first row of sample s is row offsets[s]: the offsets
 * serve as the index of both moves. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B, FC_W, FC_B };                   /* parameters */
enum { KEPT_ROWS, KEPT_LN, KEPT_MEAN, KEPT_RSTD }; /* slots */

static fl_status classifier_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_classifier_config *l = self;
    FL_TRY(fl__check_input(in, l->dim));
    *out = (fl_shape){.tokens = 1, .width = l->n_classes, .dtype = FL_F32};
    return FL_OK;
}

static fl_status classifier_params(void *self, fl_param_list *list)
{
    const fl_classifier_config *l = self;
    FL_TRY(fl__params_norm(list, "ln", l->dim));
    return fl__params_linear(list, "fc", l->n_classes, l->dim, l->deviation);
}

static fl_status classifier_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_classifier_config *l = self;
    int64_t n = in->n_samples, C = l->dim;
    float *rows = NULL, *ln = NULL, *mean = NULL, *rstd = NULL;
    FL_TRY(fl__keep(x, KEPT_ROWS, n * C, &rows));
    FL_TRY(fl__keep(x, KEPT_LN, n * C, &ln));
    FL_TRY(fl__keep(x, KEPT_MEAN, n, &mean));
    FL_TRY(fl__keep(x, KEPT_RSTD, n, &rstd));
    FL_TRY(fl__first_as_fp32(x, in, rows));
    const fl_tensor first = {.data = rows, .n_samples = n, .n_tokens = n, .width = C};
    FL_TRY(fl__norm(x, &first, l->epsilon, ln, mean, rstd));
    return fl__linear(x, FL_F32, ln, FC_W, out->data, n);
}

static fl_status classifier_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                     fl_tensor *grad_in)
{
    const fl_classifier_config *l = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t n = in->n_samples, C = l->dim;
    if (grad_in == NULL && !fl__any_grad(x, FC_B + 1)) {
        return FL_OK;
    }
    FL_TRY(fl__linear_grads(x, FL_F32, FC_W, grad_out->data, fl_exec_kept(x, KEPT_LN), n));
    float *grad_ln = NULL, *grad_rows = NULL;
    FL_TRY(fl__scratch(x, n * C, &grad_ln));
    FL_TRY(fl__scratch(x, n * C, &grad_rows));
    FL_TRY(fl__linear_grad_in(x, FL_F32, grad_out->data, FC_W, grad_ln, n));
    FL_TRY(fl_layernorm_backward(
        x, &(fl_norm_backward_args){.grad_y = grad_ln,
                                    .in = fl_exec_kept(x, KEPT_ROWS),
                                    .gamma = fl_exec_weight(x, LN_W),
                                    .mean = fl_exec_kept(x, KEPT_MEAN),
                                    .rstd = fl_exec_kept(x, KEPT_RSTD),
                                    .grad_in = grad_in == NULL ? NULL : grad_rows,
                                    .grad_gamma = fl_exec_grad(x, LN_W),
                                    .grad_beta = fl_exec_grad(x, LN_B),
                                    .m = n,
                                    .n = C}));
    if (grad_in == NULL) {
        return FL_OK;
    }
    return fl__fp32_to_first(x, grad_rows, in, grad_in->data);
}

static const fl_layer_ops classifier_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "classifier",
    .shape = classifier_shape,
    .params = classifier_params,
    .forward = classifier_forward,
    .backward = classifier_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_classifier_with(const fl_classifier_config *config, fl_layer *out)
{
    fl_classifier_config self = *config;
    FL_TRY(fl__check_size("classifier", "dim", self.dim));
    FL_TRY(fl__check_size("classifier", "n_classes", self.n_classes));
    FL_TRY(fl__check_epsilon("classifier", &self.epsilon));
    FL_TRY(fl__check_deviation("classifier", self.deviation));
    return fl__layer_new(&classifier_ops, &self, sizeof self, out);
}

fl_status fl_layer_classifier(int64_t dim, int64_t n_classes, fl_layer *out)
{
    const fl_classifier_config config = {.dim = dim, .n_classes = n_classes};
    return fl_layer_classifier_with(&config, out);
}
