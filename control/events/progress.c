#include "control/events/progress.h"

#include "control/state/sums/checkpoint_sums.h"
#include "pipe/state/checkpoint/checkpoint_files.h"

#include "device/system/clock.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    REDRAW_US = 100 * 1000,
    PLAIN_US = 10 * 1000 * 1000,
    COLUMNS = 80,         /* if the terminal does not report its width */
    EPOCHS_MAX = 1000000, /* upper bound of a job */
    VALUE_BYTES = 24,     /* of a metric's value, at most as long as -1.234e+308 */
    EVAL_BYTES = 64 + FL_METRICS_MAX * (FL_METRIC_NAME_MAX + VALUE_BYTES + 4),
};

static const double WINDOW_MS = 5000;

void fl_progress_init(fl_progress *progress, FILE *out, const fl_plan *plan)
{
    const char *term = getenv("TERM");
    bool able = term != NULL && term[0] != 0 && strcmp(term, "dumb") != 0;
    *progress = (fl_progress){.out = out, .terminal = able && isatty(fileno(out))};
    progress->line_us = fl_now_us();
    fl_progress_plan(progress, plan);
}

void fl_progress_plan(fl_progress *progress, const fl_plan *plan)
{
    char frozen[16] = "";
    if (plan->F > 0) {
        snprintf(frozen, sizeof frozen, "F=%d ", plan->F);
    }
    snprintf(progress->plan, sizeof progress->plan, "%sK=%d R=%d M=%d", frozen, plan->K, plan->R,
             plan->M);
}

/* 75 -> "1:15", 4000 -> "1:06:40". Returns text. */
static const char *duration(double seconds, char *text, size_t size_bytes)
{
    long s = lround(seconds);
    if (s >= 3600) {
        snprintf(text, size_bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(text, size_bytes, "%ld:%02ld", s / 60, s % 60);
    }
    return text;
}

/* Cut after the last whole word that fits into `columns`; columns < 0: keep all. */
static char *cut(char *text, int columns)
{
    if (columns >= 0 && strlen(text) > (size_t)columns) {
        size_t n = (size_t)columns;
        while (n > 0 && text[n] != ' ') {
            n--;
        }
        while (n > 0 && text[n - 1] == ' ') {
            n--;
        }
        text[n] = 0;
    }
    return text;
}

const char *fl_progress_text(const fl_progress *progress, const fl_run_stats *stats, int columns,
                             char *text, size_t size_bytes)
{
    if (stats->steps == 0) {
        snprintf(text, size_bytes, "starting  %s", progress->plan);
    } else {
        double ms_per_step, left_s = fl_run_stats_left_s(stats);
        double rate = fl_run_stats_rate(stats, WINDOW_MS, &ms_per_step);
        char left[32] = "";
        if (isfinite(left_s)) {
            snprintf(left, sizeof left, "%s left  ", duration(left_s, (char[24]){0}, 24));
        }
        snprintf(text, size_bytes,
                 "epoch %lld/%lld  step %lld/%lld  loss %.4f  %.0f samples/s  %s%s",
                 (long long)stats->last.epoch + 1, (long long)stats->n_epochs,
                 (long long)stats->last.step + 1, (long long)stats->n_steps, stats->last.loss, rate,
                 progress->stopping ? "stopping  " : left, progress->plan);
    }
    return cut(text, columns);
}

static int columns_of(FILE *out)
{
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    return COLUMNS;
}

/* Whether the line must be shown again; begun: there is something to report of. */
static bool is_line_due(const fl_progress *progress, bool begun)
{
    int64_t now_us = fl_now_us();
    return progress->terminal ? now_us - progress->drawn_us >= REDRAW_US
                              : begun && now_us - progress->line_us >= PLAIN_US;
}

/* The columns of the line; -1: all that it needs. The last column stays free: some terminals wrap
 * as soon as it is written. */
static int line_columns(const fl_progress *progress)
{
    return progress->terminal ? columns_of(progress->out) - 1 : -1;
}

/* A line that would repeat the one before it is left out: the run stands still, or is paused. */
static void put_line(fl_progress *progress, const char *text)
{
    bool repeated = strcmp(text, progress->shown) == 0;
    progress->line_us = fl_now_us();
    progress->drawn_us = progress->line_us;
    if (repeated && (progress->drawn || !progress->terminal)) {
        return;
    }
    snprintf(progress->shown, sizeof progress->shown, "%s", text);
    fprintf(progress->out, progress->terminal ? "\r%s\033[K" : "%s\n", text);
    fflush(progress->out);
    progress->drawn = progress->terminal;
}

void fl_progress_update(fl_progress *progress, const fl_run_stats *stats)
{
    char text[FL_PROGRESS_TEXT];
    if (is_line_due(progress, stats->steps > 0)) {
        put_line(progress,
                 fl_progress_text(progress, stats, line_columns(progress), text, sizeof text));
    }
}

void fl_progress_pass(fl_progress *progress, const char *verb, int64_t done, int64_t all,
                      double seconds)
{
    char text[FL_PROGRESS_TEXT], left[48] = "";
    if (!is_line_due(progress, done > 0)) {
        return;
    }
    if (progress->stopping) {
        snprintf(left, sizeof left, "stopping  ");
    } else if (done > 0 && done < all) {
        snprintf(left, sizeof left, "%s left  ",
                 duration(seconds * (double)(all - done) / (double)done, (char[24]){0}, 24));
    }
    snprintf(text, sizeof text, "%s  %lld of %lld samples  %.0f samples/s  %s%s", verb,
             (long long)done, (long long)all, seconds > 0 ? (double)done / seconds : 0.0, left,
             progress->plan);
    put_line(progress, cut(text, line_columns(progress)));
}

void fl_progress_stopping(fl_progress *progress)
{
    progress->stopping = true;
}

void fl_progress_hide(fl_progress *progress)
{
    if (progress->drawn) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
        progress->drawn = false;
    }
}

void fl_progress_note(fl_progress *progress, const char *format, ...)
{
    va_list args;
    fl_progress_hide(progress);
    va_start(args, format);
    vfprintf(progress->out, format, args);
    va_end(args);
    fputc('\n', progress->out);
    fflush(progress->out);
    progress->line_us = fl_now_us();
    progress->drawn_us = 0;
}

static const char *split_text(const fl_eval_report *eval)
{
    return eval->validation ? "validation" : "test";
}

/* "97.20 %", "0.01234". */
static const char *value_text(double value, bool is_share, char text[VALUE_BYTES])
{
    snprintf(text, VALUE_BYTES, is_share ? "%.2f %%" : "%.4g", is_share ? 100 * value : value);
    return text;
}

/* "test 0.0912  accuracy 97.20 %" */
static const char *eval_text(const fl_run_stats *stats, const fl_eval_report *eval,
                             char text[EVAL_BYTES])
{
    int n = snprintf(text, EVAL_BYTES, "%s %.4f", split_text(eval), eval->loss);
    for (int i = 0; i < eval->metrics.n && i < stats->metrics.n && n < EVAL_BYTES; i++) {
        const fl_metric *metric = &stats->metrics.metric[i];
        char value[VALUE_BYTES];
        n += snprintf(text + n, EVAL_BYTES - (size_t)n, "  %s %s", metric->name,
                      value_text(eval->metrics.mean[i], metric->is_share, value));
    }
    return text;
}

void fl_progress_evaluation(fl_progress *progress, const fl_run_stats *stats,
                            const fl_eval_report *eval)
{
    char text[EVAL_BYTES], n[FL_COUNT_BYTES];
    fl_progress_note(progress, "after %s: %s", fl_count(eval->step + 1, "step", n),
                     eval_text(stats, eval, text));
}

void fl_progress_epoch(fl_progress *progress, const fl_run_stats *stats)
{
    const fl_epoch_stats *e = &stats->past;
    char eval[EVAL_BYTES + 2] = "", text[EVAL_BYTES], skipped[64] = "", loss[32] = "-",
                           n[FL_COUNT_BYTES];
    double mean = fl_run_stats_loss(e);
    if (isfinite(mean)) {
        snprintf(loss, sizeof loss, "%.4f", mean);
    }
    if (e->n_skipped > 0) {
        snprintf(skipped, sizeof skipped, " (%s skipped)", fl_count(e->n_skipped, "step", n));
    }
    if (e->evaluated) {
        snprintf(eval, sizeof eval, ", %s", eval_text(stats, &e->eval, text));
    }
    fl_progress_note(progress, "epoch %lld/%lld  loss %s%s%s  %.0f samples/s  %.1f s",
                     (long long)e->epoch + 1, (long long)stats->n_epochs, loss, skipped, eval,
                     e->ms > 0 ? (double)e->samples / e->ms * 1000 : 0, e->ms / 1000);
}

const char *fl_progress_best(const fl_job *job, bool validation, double best, int64_t best_epoch,
                             char text[FL_PROGRESS_BEST_BYTES])
{
    const char *split = validation ? "validation" : "test", *metric = fl_stop_rule_name(job);
    char value[32];
    snprintf(value, sizeof value, "%.4g", best);
    if (isfinite(best)) {
        snprintf(text, FL_PROGRESS_BEST_BYTES, "best %s %s %s after epoch %lld", split, metric,
                 value, (long long)best_epoch);
    } else {
        snprintf(text, FL_PROGRESS_BEST_BYTES, "no evaluation gave a finite %s %s", split, metric);
    }
    return text;
}

void fl_progress_cache(fl_progress *progress, const fl_cache_report *report)
{
    bool same = progress->cache_told && progress->cache_on == report->on;
    if (report->decided && !same) {
        progress->cache_told = true;
        progress->cache_on = report->on;
        char n[FL_COUNT_BYTES];
        fl_progress_note(progress,
                         "after %s: cache %s: reading a sample takes %.3g us, computing it %.3g us",
                         fl_count(report->step + 1, "step", n), report->on ? "on" : "off",
                         report->read_us, report->compute_us);
    }
}

/* A text that begins with the name of its line does not repeat it. */
static void summary_line(FILE *out, const char *name, const char *text)
{
    size_t n = strlen(name);
    bool repeats = strncmp(text, name, n) == 0 && text[n] == ' ';
    fprintf(out, "  %-14s %s\n", name, text + (repeats ? n + 1 : 0));
}

static void summary_of_training(FILE *out, const fl_run_result *result)
{
    char training[24], all[24], value[VALUE_BYTES];
    if (isfinite(result->test_loss) || isfinite(result->test_accuracy)) {
        for (int i = 0; i < result->n_metrics; i++) {
            const fl_metric_result *m = &result->metrics[i];
            fprintf(out, "  test %-9s %s\n", m->name, value_text(m->test, m->is_share, value));
        }
        fprintf(out, "  test loss      %.4f\n", result->test_loss);
    }
    if (isfinite(result->validation_loss)) {
        fprintf(out, "  validation     ");
        for (int i = 0; i < result->n_metrics; i++) {
            const fl_metric_result *m = &result->metrics[i];
            bool named = strcmp(m->name, FL_ACCURACY) != 0;
            fprintf(out, "%s%s%s, ", named ? m->name : "", named ? " " : "",
                    value_text(m->validation, m->is_share, value));
        }
        fprintf(out, "loss %.4f\n", result->validation_loss);
    }
    if (result->steps > 0) {
        fprintf(out, "  train loss     %.4f\n", result->train_loss);
        fprintf(out, "  time           %s in training, %s in total\n",
                duration(result->seconds, training, sizeof training),
                duration(result->wall_seconds, all, sizeof all));
        fprintf(out, "  speed          %.0f samples/s\n", result->samples_per_s);
    }
    if (result->skipped_steps > 0) {
        fprintf(out, "  skipped        %lld step%s: loss or gradient norm was not finite\n",
                (long long)result->skipped_steps, result->skipped_steps == 1 ? "" : "s");
    }
}

/* The symbols used everywhere else, each with its meaning. */
static void summary_of_plan(FILE *out, const fl_plan *plan)
{
    char frozen[32] = "";
    if (plan->F > 0) {
        snprintf(frozen, sizeof frozen, "%d block%s frozen, ", plan->F,
                 fl_plural_ending(plan->F, "block"));
    }
    fprintf(out, "  plan           %sK=%d stage%s x R=%d replica%s x M=%d micro-batch%s\n", frozen,
            plan->K, fl_plural_ending(plan->K, "stage"), plan->R,
            fl_plural_ending(plan->R, "replica"), plan->M,
            fl_plural_ending(plan->M, "micro-batch"));
}

/* A run without a checkpoint can only begin again. */
static bool can_continue(const fl_checkpoint_sums *sums)
{
    return sums != NULL && sums->any;
}

/* What the commands need in addition, so that the run has its hosts again. */
static const char *host_options(const fl_controller_options *options)
{
    return options->host_options == NULL ? "" : options->host_options;
}

/* The same command by hand would train on this host alone. */
static void say_who_starts(FILE *out, const fl_controller_options *options)
{
    if (options->hosts != NULL && options->hosts->meeting[0] != '\0') {
        fprintf(out, "                 as tasks on the same hosts (srun, mpirun)\n");
    }
}

static void suggest_longer(FILE *out, const fl_controller_options *options, bool continues,
                           const char *how, const char *set)
{
    const char *hosts = host_options(options);
    char run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    if (continues) {
        fprintf(out, "  train longer   %s:\n                 frostline run --resume %s%s \\\n", how,
                run, hosts);
    } else {
        fprintf(out,
                "  train longer   from the first step, %s:\n"
                "                 frostline run %s/job.yaml%s \\\n",
                how, run, hosts);
    }
    fprintf(out, "                     --set %s\n", set);
    say_who_starts(out, options);
}

static void summary_of_training_again(FILE *out, const fl_controller_options *options,
                                      const fl_run_result *result, const fl_progress_end *end)
{
    const fl_job *job = options->job;
    char run[FL_SHELL_PATH_BYTES];
    const char *dir = fl_shell_shown(options->run_dir, run, sizeof run);
    fl_status status = end->status;
    bool continues = can_continue(end->checkpoints);
    char set[64];
    snprintf(set, sizeof set, "train.epochs=%lld", (long long)(2 * job->train.epochs));
    if (job->model.kind == FL_MODEL_PROGRAM) {
        fprintf(out, "  train again    start the program again\n");
    } else if (status != FL_OK && continues) {
        fprintf(out, "  continue       frostline run --resume %s%s\n", dir, host_options(options));
        say_who_starts(out, options);
    } else if (status != FL_OK) {
        fprintf(out, "  train again    frostline run %s/job.yaml%s\n", dir, host_options(options));
        say_who_starts(out, options);
    } else if (result->ended_early) {
        suggest_longer(out, options, continues, "to the end of the last epoch",
                       "train.stop_after=none");
    } else if (job->train.max_steps > 0) {
        suggest_longer(out, options, continues, "to the end of the last epoch",
                       "train.max_steps=none");
    } else if (2 * job->train.epochs <= EPOCHS_MAX) {
        suggest_longer(out, options, continues, "with twice the epochs", set);
    }
}

static void summary_of_what_next(FILE *out, const fl_controller_options *options,
                                 const fl_run_result *result, const fl_progress_end *end)
{
    char run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    fprintf(out, "  as a page      frostline report %s\n", run);
    fprintf(out, "  the proof      frostline ledger %s\n", run);
    if (options->plan->K > 1) {
        fprintf(out, "  the schedule   frostline schedule --schedule %s -k %d -m %d\n",
                fl_schedule_text(options->plan->schedule), options->plan->K, options->plan->M);
    }
    summary_of_training_again(out, options, result, end);
}

static void summary_of_checkpoints(FILE *out, const fl_controller_options *options,
                                   const fl_checkpoint_sums *sums)
{
    char name[FL_CHECKPOINT_NAME_MAX], failed[FL_COUNT_BYTES], run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    if (sums != NULL && sums->any) {
        fprintf(out, "  checkpoint     %s/checkpoints/%s\n", run,
                fl_checkpoint_folder_name(sums->last_step, name));
    }
    if (sums != NULL && sums->any && sums->best_step > 0 && sums->best_step != sums->last_step) {
        fprintf(out, "                 %s/checkpoints/" FL_CHECKPOINT_BEST " is %s\n", run,
                fl_checkpoint_folder_name(sums->best_step, name));
    }
    if (sums != NULL && sums->n_failed > 0) {
        fprintf(out, "                 %s could not be written: see events.jsonl\n",
                fl_count(sums->n_failed, "checkpoint", failed));
    }
}

static void summary_of_losses(FILE *out, const fl_recovery_sums *sums)
{
    char n[FL_COUNT_BYTES];
    if (sums == NULL || sums->n_losses + sums->n_recoveries + sums->n_returns == 0) {
        return;
    }
    fprintf(out, "  losses         %s lost", fl_count(sums->n_losses, "worker", n));
    if (sums->n_returns > 0) {
        fprintf(out, "; the run went back %s", fl_count(sums->n_returns, "time", n));
        fprintf(out, " and repeated %s", fl_count(sums->n_repeated, "step", n));
    }
    fprintf(out, "; %.1f s without training\n", (double)sums->lost_us * 1e-6);
}

void fl_progress_summary(FILE *out, const fl_controller_options *options,
                         const fl_run_result *result, const fl_progress_end *end)
{
    int64_t hash_weights = options->job->train.hash_weights;
    char run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    const char *how = end->status == FL_OK         ? "done"
                      : end->status == FL_ESTOPPED ? "stopped"
                                                   : "failed";
    fprintf(out, "\n%s after %lld of %lld steps\n", how, (long long)result->steps,
            (long long)options->n_steps);
    if (end->message[0] != 0) {
        fprintf(out, "  why            %s\n", end->message);
    }
    summary_of_training(out, result);
    if (result->best_epoch > 0) {
        char best[FL_PROGRESS_BEST_BYTES];
        fl_progress_best(options->job, options->n_validation > 0, result->best, result->best_epoch,
                         best);
        summary_line(out, result->ended_early ? "ended early" : "best", best);
    }
    summary_of_plan(out, options->plan);
    if (end->tuning[0] != 0) {
        fprintf(out, "  tuning         %s\n", end->tuning);
    }
    summary_of_losses(out, end->recovery);
    if (end->ledger[0] != 0) {
        fprintf(out, "  ledger         %s\n", end->ledger);
    }
    if (end->missing[0] != 0) {
        fprintf(out, "  record         INCOMPLETE: %s\n", end->missing);
    }
    if (result->model[0] != 0) {
        fprintf(out, "  model          %s/model/model.safetensors\n", run);
    }
    summary_of_checkpoints(out, options, end->checkpoints);
    fprintf(out, "  run directory  %s\n", run);
    fprintf(out,
            "                 job.yaml, steps.jsonl, events.jsonl, ledger.bin,\n"
            "                 summary.txt, worker-N.log%s%s\n",
            hash_weights > 0 && result->steps >= hash_weights ? ", weights.jsonl" : "",
            result->model[0] != 0 ? ", model/" : "");
    summary_of_what_next(out, options, result, end);
    fflush(out);
}
