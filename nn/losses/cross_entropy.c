/* Softmax cross-entropy against one class a row. */
#include "nn/exec.h"
#include "nn/layers/layers.h"
#include "nn/loss.h"

#include <math.h>

/* What is summed for each metric: rows that are right; of two classes also rows for which class 1
 * is chosen, and those of them that are right. */
enum { CORRECT, POSITIVE, TRUE_POSITIVE, N_BINARY, N_METRICS = 1 };

/* How rows of two classes divide, class 1 being the positive one. */
typedef struct confusion {
    double tp, fp, fn, tn;
} confusion;

static confusion confusion_of(const fl_loss_sums *sums)
{
    confusion c = {.tp = sums->metric[TRUE_POSITIVE]};
    c.fp = sums->metric[POSITIVE] - c.tp;
    c.tn = sums->metric[CORRECT] - c.tp;
    c.fn = sums->n_targets - c.tp - c.fp - c.tn;
    return c;
}

/* 0 where it is not defined, as scikit-learn has it. */
static double f1_of(const fl_loss_sums *sums)
{
    confusion c = confusion_of(sums);
    double all = 2 * c.tp + c.fp + c.fn;
    return all > 0 ? 2 * c.tp / all : 0;
}

/* Matthews' correlation coefficient; 0 where it is not defined. */
static double matthews_of(const fl_loss_sums *sums)
{
    confusion c = confusion_of(sums);
    double square = (c.tp + c.fp) * (c.tp + c.fn) * (c.tn + c.fp) * (c.tn + c.fn);
    return square > 0 ? (c.tp * c.tn - c.fp * c.fn) / sqrt(square) : 0;
}

static const fl_metric metrics_of_two[N_BINARY] = {
    {.name = FL_ACCURACY, .is_share = true},
    {.name = "f1", .is_share = true, .value = f1_of},
    {.name = "matthews", .is_gain = true, .value = matthews_of},
};

typedef struct cross_entropy {
    int64_t n_classes;
} cross_entropy;

static fl_status cross_entropy_shape(void *self, const fl_shape *out)
{
    const cross_entropy *l = self;
    return fl__check_fp32_input(out, l->n_classes);
}

static fl_status cross_entropy_forward(void *self, fl_exec *x, const fl_tensor *out,
                                       const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                                       fl_loss_sums *sums)
{
    const cross_entropy *l = self;
    FL_TRY(fl_targets_expect(targets, FL_I32, out->n_tokens));
    FL_TRY(fl_targets_expect_classes(targets, x, l->n_classes));
    fl_cross_entropy_args a = {.logits = out->data,
                               .targets = fl_i32(targets),
                               .grad_scale = grad_scale,
                               .grad = grad == NULL ? NULL : grad->data,
                               .loss = &sums->loss,
                               .n_correct = &sums->metric[CORRECT],
                               .n_counted = &sums->n_targets,
                               .m = out->n_tokens,
                               .n = l->n_classes};
    if (l->n_classes == 2) {
        a.n_positive = &sums->metric[POSITIVE];
        a.n_true_positive = &sums->metric[TRUE_POSITIVE];
    }
    return fl_cross_entropy(x, &a);
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

#define CROSS_ENTROPY_OPS(n)                                                                       \
    {                                                                                              \
        .head = FL_TABLE_HEAD(fl_loss_ops), .kind = "cross_entropy", .shape = cross_entropy_shape, \
        .forward = cross_entropy_forward, .destroy = fl__layer_free, .metrics = metrics_of_two,    \
        .n_metrics = (n), .predict = cross_entropy_predict,                                        \
    }
static const fl_loss_ops cross_entropy_ops = CROSS_ENTROPY_OPS(N_METRICS);
static const fl_loss_ops two_classes_ops = CROSS_ENTROPY_OPS(N_BINARY);

fl_status fl_loss_cross_entropy(int64_t n_classes, fl_loss *out)
{
    FL_TRY(fl__check_size("cross_entropy", "n_classes", n_classes));
    const cross_entropy self = {.n_classes = n_classes};
    fl_layer holder = {0};
    FL_TRY(fl__layer_new(NULL, &self, sizeof self, &holder));
    *out = (fl_loss){.ops = n_classes == 2 ? &two_classes_ops : &cross_entropy_ops,
                     .self = holder.self};
    return FL_OK;
}
