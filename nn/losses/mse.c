/* Mean squared error against one value for each element of the output. */
#include "nn/layers/layers.h"
#include "nn/loss.h"

enum { MAE, N_METRICS };

static const fl_metric mse_metrics[N_METRICS] = {
    [MAE] = {.name = "mae"},
};

static fl_status mse_shape(void *self, const fl_shape *out)
{
    (void)self;
    return fl__check_fp32_input(out, out->width);
}

static fl_status mse_forward(void *self, fl_exec *x, const fl_tensor *out, const fl_tensor *targets,
                             float grad_scale, fl_tensor *grad, fl_loss_sums *sums)
{
    (void)self;
    int64_t n = out->n_tokens * out->width;
    FL_TRY(fl_targets_expect(targets, FL_F32, n));
    FL_TRY(fl_squared_error(x, &(fl_squared_error_args){.out = out->data,
                                                        .targets = fl_f32(targets),
                                                        .grad_scale = grad_scale,
                                                        .grad = grad == NULL ? NULL : grad->data,
                                                        .square_sum = &sums->loss,
                                                        .absolute_sum = &sums->metric[MAE],
                                                        .n = n}));
    return fl_add_to_sum(x, (double)n, &sums->n_targets);
}

static const fl_loss_ops mse_ops = {
    .head = FL_TABLE_HEAD(fl_loss_ops),
    .kind = "mse",
    .shape = mse_shape,
    .forward = mse_forward,
    .metrics = mse_metrics,
    .n_metrics = N_METRICS,
};

fl_loss fl_loss_mse(void)
{
    return (fl_loss){.ops = &mse_ops};
}
