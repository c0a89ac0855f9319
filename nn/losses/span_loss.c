/* Softmax cross-entropy over the rows of each sample, once for each of two columns: where an answer
 * begins, and where it ends. */
#include "nn/exec.h"
#include "nn/layers/layers.h"
#include "nn/loss.h"

#include <math.h>

enum { N_COLUMNS = 2 };

/* What is summed for each metric; N_QUESTIONS is none, but what two are divided by. */
enum { ACCURACY, EXACT, F1, N_METRICS, N_QUESTIONS = N_METRICS };

/* Not known before an evaluation has added whole questions. */
static double mean_of(const fl_loss_sums *sums, int metric)
{
    double n = sums->metric[N_QUESTIONS];
    return n > 0 ? sums->metric[metric] / n : (double)NAN;
}

static double exact_of(const fl_loss_sums *sums)
{
    return mean_of(sums, EXACT);
}

static double f1_of(const fl_loss_sums *sums)
{
    return mean_of(sums, F1);
}

static const fl_metric span_metrics[N_METRICS] = {
    [ACCURACY] = {.name = FL_ACCURACY, .is_share = true},
    [EXACT] = {.name = "em", .is_share = true, .value = exact_of},
    [F1] = {.name = "f1", .is_share = true, .value = f1_of},
};

static fl_status span_shape(void *self, const fl_shape *out)
{
    (void)self;
    return fl__check_fp32_input(out, N_COLUMNS);
}

/* A target is a row of its sample, or -1. */
static fl_status check_targets(const fl_tensor *out, const fl_tensor *targets, const fl_exec *x)
{
    const fl_batch *batch = fl_exec_batch(x);
    const int32_t *values = batch->targets_host != NULL ? batch->targets_host : targets->data;
    FL_TRY(fl_targets_expect(targets, FL_I32, N_COLUMNS * out->n_samples));
    for (int64_t i = 0; i < N_COLUMNS * out->n_samples; i++) {
        int64_t sample = i / N_COLUMNS, n = out->offsets[sample + 1] - out->offsets[sample];
        if (values[i] < -1 || values[i] >= n) {
            char text[FL_EXEC_SAMPLE_BYTES];
            return fl_fail(FL_EINVAL, "%s: target %d, allowed is -1 to %lld",
                           fl_exec_sample_text(x, sample, text), values[i], (long long)n - 1);
        }
    }
    return FL_OK;
}

static fl_status span_forward(void *self, fl_exec *x, const fl_tensor *out,
                              const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                              fl_loss_sums *sums)
{
    (void)self;
    FL_TRY(check_targets(out, targets, x));
    return fl_span_cross_entropy(
        x, &(fl_span_cross_entropy_args){.logits = out->data,
                                         .offsets = fl_offsets_of(out),
                                         .targets = fl_i32(targets),
                                         .columns = N_COLUMNS,
                                         .grad_scale = grad_scale,
                                         .grad = grad == NULL ? NULL : grad->data,
                                         .loss = &sums->loss,
                                         .n_correct = &sums->metric[ACCURACY],
                                         .n_counted = &sums->n_targets});
}

static const fl_loss_ops span_ops = {
    .head = FL_TABLE_HEAD(fl_loss_ops),
    .kind = "span",
    .shape = span_shape,
    .forward = span_forward,
    .metrics = span_metrics,
    .n_metrics = N_METRICS,
};

fl_loss fl_loss_span(void)
{
    return (fl_loss){.ops = &span_ops, .self = NULL};
}

bool fl_loss_is_span(const fl_loss *loss)
{
    return loss->ops == &span_ops;
}

void fl_loss_span_add(fl_loss_sums *sums, double n_questions, double exact, double f1)
{
    sums->metric[N_QUESTIONS] += n_questions;
    sums->metric[EXACT] += exact;
    sums->metric[F1] += f1;
}
