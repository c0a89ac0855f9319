#include "control/state/sums/early_stop.h"

#include "device/errors/failure.h"
#include "pipe/plan/batch/evaluation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char LOSS[] = "loss";

static fl_status refuse_metric(const char *name, const fl_metric_list *metrics)
{
    char allowed[FL_METRICS_MAX * (FL_METRIC_NAME_MAX + 2) + sizeof LOSS];
    int n = snprintf(allowed, sizeof allowed, "%s", LOSS);
    for (int i = 0; i < metrics->n; i++) {
        n += snprintf(allowed + n, sizeof allowed - (size_t)n, ", %s", metrics->metric[i].name);
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("train.metric"), "found '%s', allowed: none, %s",
                         name, allowed);
}

const char *fl_stop_rule_name(const fl_job *job)
{
    return job->train.metric[0] == '\0' ? LOSS : job->train.metric;
}

fl_status fl_stop_rule_of(const fl_job *job, const fl_metric_list *metrics, int64_t steps_per_epoch,
                          int64_t n_steps, fl_stop_rule *out)
{
    const char *name = fl_stop_rule_name(job);
    *out = (fl_stop_rule){.metric = -1,
                          .margin = job->train.stop_margin,
                          .keeps_best = fl_evaluation_keeps_best(job)};
    if (strcmp(name, LOSS) != 0) {
        out->metric = fl_metric_list_find(metrics, name);
        if (out->metric < 0) {
            return refuse_metric(name, metrics);
        }
        const fl_metric *metric = &metrics->metric[out->metric];
        out->higher = metric->is_share || metric->is_gain;
    }
    out->patience = fl_evaluation_patience(job, steps_per_epoch, n_steps);
    return FL_OK;
}

double fl_stop_rule_value(const fl_stop_rule *rule, const fl_eval_report *eval)
{
    if (rule->metric < 0) {
        return eval->loss;
    }
    return rule->metric < eval->metrics.n ? eval->metrics.mean[rule->metric] : (double)NAN;
}

static bool is_better(const fl_early_stop *stop, const fl_stop_rule *rule, double value)
{
    if (!isfinite(value)) {
        return false;
    }
    return isnan(stop->best) ||
           (rule->higher ? value > stop->best + rule->margin : value < stop->best - rule->margin);
}

void fl_early_stop_judge(fl_early_stop *stop, const fl_stop_rule *rule, const fl_eval_report *eval)
{
    int64_t done = eval->step + 1;
    double value = fl_stop_rule_value(rule, eval);
    if ((rule->patience == 0 && !rule->keeps_best) || done <= stop->judged) {
        return;
    }
    bool first = stop->judged == 0;
    if (first) {
        stop->best = NAN;
    }
    if (first || is_better(stop, rule, value)) {
        stop->best = isfinite(value) ? value : (double)NAN;
        stop->best_step = done;
        stop->best_epoch = eval->epoch + 1;
    }
    stop->judged = done;
    if (fl_early_stop_holds(stop, rule, done)) {
        stop->end_step = done;
    }
}

int64_t fl_stop_rule_best(const fl_stop_rule *rule, const fl_early_stop *stop)
{
    return rule->keeps_best && stop->judged > 0 && isfinite(stop->best) ? stop->best_step : 0;
}

bool fl_early_stop_holds(const fl_early_stop *stop, const fl_stop_rule *rule, int64_t step)
{
    return rule->patience > 0 && step > 0 && stop->judged == step &&
           step - stop->best_step >= rule->patience;
}
