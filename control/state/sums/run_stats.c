#include "control/state/sums/run_stats.h"

#include "pipe/plan/batch/evaluation.h"

#include <math.h>
#include <stdio.h>

void fl_run_stats_init(fl_run_stats *stats, int64_t n_samples, int64_t batch, int64_t n_steps,
                       int64_t n_epochs, bool evaluates)
{
    *stats = (fl_run_stats){
        .n_steps = n_steps, .n_steps_asked = n_steps, .n_epochs = n_epochs, .evaluates = evaluates};
    stats->steps_per_epoch = batch > 0 ? (n_samples + batch - 1) / batch : 0;
    if (stats->steps_per_epoch > 0) { /* a limit on the number of steps may leave fewer epochs */
        int64_t started = (n_steps + stats->steps_per_epoch - 1) / stats->steps_per_epoch;
        stats->n_epochs = started < n_epochs ? started : n_epochs;
        stats->evaluation_period = stats->steps_per_epoch;
    }
}

/* No step before this one was run by this process. It needed its workers first, and perhaps
 * evaluated; at the beginning of a run that time is not counted either. */
static void leave_out_start(fl_run_stats *stats, int64_t begun_us)
{
    stats->pending_eval_ms = fmax((double)(begun_us - stats->last_us) * 1e-3, 0.0);
}

bool fl_run_stats_step(fl_run_stats *stats, const fl_step_report *report, int64_t at_us)
{
    if (stats->steps > 0 && report->step <= stats->last.step) {
        return false;
    }
    int64_t begun_us = at_us - (int64_t)(report->ms * 1000);
    if (stats->steps == 0) {
        stats->first_us = begun_us;
    } else if (stats->n_window == stats->window_from) {
        leave_out_start(stats, begun_us);
    }
    if (stats->now.steps == 0) {
        stats->now.epoch = report->epoch;
    }
    stats->last = *report;
    stats->last_us = at_us;
    stats->steps++;
    stats->samples += report->samples;
    stats->tokens += report->tokens;
    stats->step_ms += report->ms;
    stats->eval_ms += stats->pending_eval_ms;
    stats->pending_eval_ms = 0;
    stats->now.steps++;
    stats->now.samples += report->samples;
    stats->n_skipped += report->skipped;
    stats->now.n_skipped += report->skipped;
    stats->now.loss_sum += report->skipped ? 0.0 : report->loss;
    for (int i = 0; i < report->metrics.n && !report->skipped; i++) {
        stats->now.metric_sum[i] += report->metrics.mean[i];
    }
    stats->now.ms += report->ms;
    int64_t slot = stats->n_window++ % FL_RUN_STATS_WINDOW;
    stats->window_ms[slot] = report->ms;
    stats->window_samples[slot] = report->samples;
    return true;
}

void fl_run_stats_skip(fl_run_stats *stats, int64_t n_steps)
{
    stats->steps += n_steps;
    stats->now.steps += n_steps;
}

/* The evaluation of the test samples after one of the validation samples, or of all test samples
 * after one of some of them. A run that continues at its end repeats both at once. */
static bool join_test(fl_run_stats *stats, const fl_eval_report *test)
{
    fl_eval_report *last = &stats->last_eval;
    bool at_end = test->step == last->step && test->step + 1 == stats->n_steps;
    bool both = test->validation && test->has_test;
    if (!at_end || (test->validation && !both) || last->has_test) {
        return false;
    }
    if (last->validation && !both) {
        last->has_test = true;
        last->test_loss = test->loss;
        last->test_metrics = test->metrics;
        last->test_samples = test->samples;
    } else {
        *last = *test;
    }
    stats->pending_eval_ms += test->ms;
    return true;
}

bool fl_run_stats_eval(fl_run_stats *stats, const fl_eval_report *report)
{
    if (stats->any_eval && report->step <= stats->last_eval.step) {
        return join_test(stats, report);
    }
    stats->any_eval = true;
    stats->last_eval = *report;
    fl_early_stop_judge(&stats->stop, &stats->stop_rule, report);
    stats->pending_eval_ms += report->ms;
    stats->now.evaluated = true;
    stats->now.eval = *report;
    return true;
}

bool fl_run_stats_is_tested(const fl_run_stats *stats, int64_t n_test)
{
    const fl_eval_report *last = &stats->last_eval;
    return n_test == 0 ||
           (stats->any_eval && (last->validation ? last->has_test : last->samples >= n_test));
}

void fl_run_stats_idle(fl_run_stats *stats, double ms)
{
    stats->pending_eval_ms += ms;
}

void fl_run_stats_end(fl_run_stats *stats, int64_t n_steps)
{
    stats->n_steps = n_steps;
    stats->n_steps_asked = n_steps;
}

void fl_run_stats_end_early(fl_run_stats *stats, int64_t n_steps)
{
    stats->n_steps = n_steps;
    stats->ended_early = true;
}

bool fl_run_stats_epoch_over(fl_run_stats *stats, bool no_more)
{
    fl_epoch_stats *now = &stats->now;
    bool all_steps = now->steps > 0 && now->steps >= stats->steps_per_epoch;
    bool last_step = now->steps > 0 && stats->steps >= stats->n_steps;
    bool due = stats->evaluates &&
               fl_evaluation_is_due(stats->steps, stats->evaluation_period, stats->n_steps);
    bool evaluated = now->evaluated && now->eval.step + 1 >= stats->steps;
    bool over =
        (all_steps || last_step || no_more) && now->steps > 0 && (evaluated || (!due && !no_more));
    if (!over) {
        return false;
    }
    now->evaluated = evaluated;
    stats->epochs += all_steps;
    stats->past = *now;
    stats->now = (fl_epoch_stats){.epoch = now->epoch + 1};
    return true;
}

double fl_run_stats_loss(const fl_epoch_stats *epoch)
{
    int64_t n = epoch->steps - epoch->n_skipped;
    return n > 0 ? epoch->loss_sum / (double)n : (double)NAN;
}

fl_metric_means fl_run_stats_metrics(const fl_run_stats *stats, const fl_epoch_stats *epoch)
{
    fl_metric_means means = {.n = stats->metrics.n};
    int64_t n = epoch->steps - epoch->n_skipped;
    for (int i = 0; i < means.n; i++) {
        means.mean[i] = n > 0 ? epoch->metric_sum[i] / (double)n : (double)NAN;
    }
    return means;
}

static double mean_at(const fl_metric_means *means, int i)
{
    return means != NULL && i < means->n ? means->mean[i] : (double)NAN;
}

int fl_run_stats_name(const fl_run_stats *stats, const fl_epoch_stats *epoch,
                      const fl_eval_report *eval, fl_metric_result out[FL_METRICS_MAX])
{
    const fl_metric_means none = {.n = 0};
    fl_metric_means train = epoch == NULL ? none : fl_run_stats_metrics(stats, epoch);
    const fl_metric_means *validation = NULL, *test = NULL;
    if (eval != NULL) {
        validation = eval->validation ? &eval->metrics : NULL;
        test = !eval->validation ? &eval->metrics : eval->has_test ? &eval->test_metrics : NULL;
    }
    for (int i = 0; i < stats->metrics.n; i++) {
        const fl_metric *metric = &stats->metrics.metric[i];
        out[i] = (fl_metric_result){.is_share = metric->is_share,
                                    .train = mean_at(&train, i),
                                    .validation = mean_at(validation, i),
                                    .test = mean_at(test, i)};
        snprintf(out[i].name, sizeof out[i].name, "%s", metric->name);
    }
    return stats->metrics.n;
}

double fl_run_stats_rate(const fl_run_stats *stats, double span_ms, double *ms_per_step)
{
    double ms = 0;
    int64_t samples = 0, steps = 0;
    int64_t held = stats->n_window - stats->window_from;
    int64_t n = held < FL_RUN_STATS_WINDOW ? held : FL_RUN_STATS_WINDOW;
    for (int64_t i = 1; i <= n && ms < span_ms; i++) {
        int64_t slot = (stats->n_window - i) % FL_RUN_STATS_WINDOW;
        ms += stats->window_ms[slot];
        samples += stats->window_samples[slot];
        steps++;
    }
    *ms_per_step = steps > 0 ? ms / (double)steps : 0;
    return ms > 0 ? (double)samples / ms * 1000 : 0;
}

double fl_run_stats_left_s(const fl_run_stats *stats)
{
    double ms_per_step;
    (void)fl_run_stats_rate(stats, 10000, &ms_per_step);
    bool unknown = ms_per_step <= 0.0 && stats->steps < stats->n_steps; /* no step since a return */
    if (stats->steps == 0 || stats->n_steps < stats->steps || unknown) {
        return NAN;
    }
    double left_ms = (double)(stats->n_steps - stats->steps) * ms_per_step;
    if (stats->any_eval && stats->steps < stats->n_steps) { /* the run ends with an evaluation */
        int64_t period = stats->evaluation_period, n = stats->n_steps - 1;
        int64_t n_left = 1 + (period > 0 ? n / period - stats->steps / period : 0);
        left_ms += (double)n_left * stats->last_eval.ms;
    }
    return left_ms / 1000;
}

void fl_run_stats_result(const fl_run_stats *stats, fl_run_result *result)
{
    const fl_epoch_stats *last = stats->now.steps > 0 ? &stats->now : &stats->past;
    double seconds = (double)(stats->last_us - stats->first_us) * 1e-6 - stats->eval_ms * 1e-3;
    result->steps = stats->steps;
    bool ended = stats->now.steps > 0 && stats->now.steps >= stats->steps_per_epoch;
    result->epochs = stats->epochs + ended;
    result->skipped_steps = stats->n_skipped;
    result->train_loss = fl_run_stats_loss(last);
    const fl_eval_report *eval = &stats->last_eval;
    bool validated = stats->any_eval && eval->validation;
    bool tested = stats->any_eval && (!eval->validation || eval->has_test);
    result->validation_loss = validated ? eval->loss : NAN;
    result->test_loss = !tested ? NAN : validated ? eval->test_loss : eval->loss;
    result->n_metrics =
        fl_run_stats_name(stats, last, stats->any_eval ? eval : NULL, result->metrics);
    int accuracy = fl_metric_list_find(&stats->metrics, FL_ACCURACY);
    result->validation_accuracy = accuracy < 0 ? NAN : result->metrics[accuracy].validation;
    result->test_accuracy = accuracy < 0 ? NAN : result->metrics[accuracy].test;
    result->ended_early = stats->ended_early;
    result->best_epoch = stats->stop.best_epoch;
    result->best_steps = stats->stop.best_step;
    result->best = stats->stop.judged > 0 ? stats->stop.best : NAN;
    result->seconds = seconds > 0 ? seconds : 0;
    result->samples_per_s = seconds > 0 ? (double)stats->samples / seconds : 0;
}
