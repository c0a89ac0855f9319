#include "control/state/run_view.h"

#include <math.h>

static const double RATE_MS = 10000;

/* The last evaluation's results, under the split that they were computed on. */
static void set_scores(const fl_run_stats *stats, fl_run_progress *p)
{
    const fl_eval_report *eval = &stats->last_eval;
    p->validates = stats->any_eval && eval->validation;
    if (p->validates) {
        p->validation_loss = eval->loss;
        p->validation_metrics = eval->metrics;
        p->validation_accuracy = fl_metric_mean(&stats->metrics, &eval->metrics, FL_ACCURACY);
    }
    if (stats->any_eval && (!eval->validation || eval->has_test)) {
        p->test_loss = eval->validation ? eval->test_loss : eval->loss;
        p->test_metrics = eval->validation ? eval->test_metrics : eval->metrics;
        p->test_accuracy = fl_metric_mean(&stats->metrics, &p->test_metrics, FL_ACCURACY);
    }
}

void fl_run_progress_of(const fl_run_stats *stats, fl_run_progress *progress)
{
    bool any = stats->steps > 0;
    double step_ms;
    double samples_per_s = fl_run_stats_rate(stats, RATE_MS, &step_ms);
    *progress = (fl_run_progress){
        .steps = stats->steps,
        .planned_steps = stats->n_steps,
        .epoch = any ? stats->last.epoch : 0,
        .epochs = stats->epochs,
        .planned_epochs = stats->n_epochs,
        .steps_per_epoch = stats->steps_per_epoch,
        .samples = stats->samples,
        .tokens = stats->tokens,
        .loss = any ? stats->last.loss : NAN,
        .grad_norm = any ? stats->last.grad_norm : NAN,
        .lr = any ? stats->last.lr : NAN,
        .validation_loss = NAN,
        .validation_accuracy = NAN,
        .test_loss = NAN,
        .test_accuracy = NAN,
        .metrics = stats->metrics,
        .train_metrics = stats->last.metrics,
        .step_ms = any ? step_ms : NAN,
        .samples_per_s = samples_per_s,
        .left_s = fl_run_stats_left_s(stats),
        .trained_s = stats->step_ms * 1e-3,
    };
    set_scores(stats, progress);
}
