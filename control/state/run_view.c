#include "control/state/run_view.h"

#include <math.h>

static const double RATE_MS = 10000;

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
        .test_loss = stats->any_eval ? stats->last_eval.loss : NAN,
        .test_accuracy = fl_metric_mean(&stats->metrics, &stats->last_eval.metrics, FL_ACCURACY),
        .metrics = stats->metrics,
        .train_metrics = stats->last.metrics,
        .test_metrics = stats->last_eval.metrics,
        .validates = stats->any_eval && stats->last_eval.validation,
        .step_ms = any ? step_ms : NAN,
        .samples_per_s = samples_per_s,
        .left_s = fl_run_stats_left_s(stats),
        .trained_s = stats->step_ms * 1e-3,
    };
}
