/* Softmax cross-entropy against one class a row. */
#include "nn/exec.h"
#include "nn/layers/layers.h"
#include "nn/loss.h"

#include <math.h>

enum { ACCURACY, N_METRICS };

static const fl_metric cross_entropy_metrics[N_METRICS] = {
    [ACCURACY] = {.name = FL_ACCURACY, .is_share = true},
};

typedef struct cross_entropy {
    int64_t n_classes;
} cross_entropy;

static fl_status cross_entropy_shape(void *self, const fl_shape *out)
{
    const cross_entropy *l = self;
    return fl__check_input(out, l->n_classes);
}

static fl_status cross_entropy_forward(void *self, fl_exec *x, const fl_tensor *out,
                                       const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                                       fl_loss_sums *sums)
{
    const cross_entropy *l = self;
    FL_TRY(fl_targets_expect(targets, FL_I32, out->n_tokens));
    FL_TRY(fl_targets_expect_classes(targets, x, l->n_classes));
    return fl_cross_entropy(x, &(fl_cross_entropy_args){.logits = out->data,
                                                        .targets = fl_i32(targets),
                                                        .grad_scale = grad_scale,
                                                        .grad = grad == NULL ? NULL : grad->data,
                                                        .loss = &sums->loss,
                                                        .n_correct = &sums->metric[ACCURACY],
                                                        .n_counted = &sums->n_targets,
                                                        .m = out->n_tokens,
                                                        .n = l->n_classes});
}

/* Softmax. Of equal logits the first is chosen, as the metric counts. */
static void cross_entropy_predict(const void *self, const float *out, int64_t width, float *scores,
                                  int64_t *chosen)
{
    double sum = 0.0;
    (void)self;
    *chosen = 0;
    for (int64_t i = 1; i < width; i++) {
        *chosen = out[i] > out[*chosen] ? i : *chosen;
    }
    for (int64_t i = 0; i < width; i++) {
        sum += exp((double)out[i] - (double)out[*chosen]);
    }
    for (int64_t i = 0; i < width; i++) {
        scores[i] = (float)(exp((double)out[i] - (double)out[*chosen]) / sum);
    }
}

static const fl_loss_ops cross_entropy_ops = {
    .head = FL_TABLE_HEAD(fl_loss_ops),
    .kind = "cross_entropy",
    .shape = cross_entropy_shape,
    .forward = cross_entropy_forward,
    .destroy = fl__layer_free,
    .metrics = cross_entropy_metrics,
    .n_metrics = N_METRICS,
    .predict = cross_entropy_predict,
};

fl_status fl_loss_cross_entropy(int64_t n_classes, fl_loss *out)
{
    FL_TRY(fl__check_size("cross_entropy", "n_classes", n_classes));
    const cross_entropy self = {.n_classes = n_classes};
    fl_layer holder = {0};
    FL_TRY(fl__layer_new(NULL, &self, sizeof self, &holder));
    *out = (fl_loss){.ops = &cross_entropy_ops, .self = holder.self};
    return FL_OK;
}
