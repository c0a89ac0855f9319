/* LayerNorm alone. Kept: 2 floats a token. */
#include "nn/layers/layers.h"

enum { LN_W, LN_B };           /* parameters */
enum { KEPT_MEAN, KEPT_RSTD }; /* slots */

typedef struct norm {
    int64_t dim;
} norm;

static fl_status norm_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const norm *l = self;
    FL_TRY(fl__check_input(in, l->dim));
    *out = *in;
    return FL_OK;
}

static fl_status norm_params(void *self, fl_param_list *list)
{
    const norm *l = self;
    return fl__params_norm(list, "ln", l->dim);
}

static fl_status norm_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    float *mean = NULL, *rstd = NULL;
    FL_TRY(fl__keep(x, KEPT_MEAN, in->n_tokens, &mean));
    FL_TRY(fl__keep(x, KEPT_RSTD, in->n_tokens, &rstd));
    return fl__norm(x, in, fl_f32(out), mean, rstd);
}

static fl_status norm_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                               fl_tensor *grad_in)
{
    (void)self;
    if (grad_in == NULL && !fl__any_grad(x, LN_B + 1)) {
        return FL_OK;
    }
    return fl__norm_backward(x, fl_f32(grad_out), fl_exec_kept(x, KEPT_MEAN),
                             fl_exec_kept(x, KEPT_RSTD), NULL, grad_in);
}

static const fl_layer_ops norm_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "norm",
    .shape = norm_shape,
    .params = norm_params,
    .forward = norm_forward,
    .backward = norm_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_norm(int64_t dim, fl_layer *out)
{
    FL_TRY(fl__check_size("norm", "dim", dim));
    const norm self = {.dim = dim};
    return fl__layer_new(&norm_ops, &self, sizeof self, out);
}
