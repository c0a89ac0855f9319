#include "control/events/progress.h"

#include "control/events/progress_text.h"
#include "device/system/clock.h"
#include "device/text/plural.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    REDRAW_US = 100 * 1000,
    PLAIN_US = 10 * 1000 * 1000,
    COLUMNS = 80, /* if the terminal does not report its width */
    EVAL_BYTES = 64 + FL_METRICS_MAX * (FL_METRIC_NAME_MAX + FL__PROGRESS_VALUE_BYTES + 4),
};

static const double WINDOW_MS = 5000;

const char *fl__progress_duration(double seconds, char *text, size_t size_bytes)
{
    long s = lround(seconds);
    if (s >= 3600) {
        snprintf(text, size_bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(text, size_bytes, "%ld:%02ld", s / 60, s % 60);
    }
    return text;
}

const char *fl__progress_value(double value, bool is_share, char text[FL__PROGRESS_VALUE_BYTES])
{
    snprintf(text, FL__PROGRESS_VALUE_BYTES, is_share ? "%.2f %%" : "%.4g",
             is_share ? 100 * value : value);
    return text;
}

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
            snprintf(left, sizeof left, "%s left  ",
                     fl__progress_duration(left_s, (char[24]){0}, 24));
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
                 fl__progress_duration(seconds * (double)(all - done) / (double)done, (char[24]){0},
                                       24));
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

/* "test 0.0912  accuracy 97.20 %" */
static const char *eval_text(const fl_run_stats *stats, const fl_eval_report *eval,
                             char text[EVAL_BYTES])
{
    int n = snprintf(text, EVAL_BYTES, "%s %.4f", split_text(eval), eval->loss);
    for (int i = 0; i < eval->metrics.n && i < stats->metrics.n && n < EVAL_BYTES; i++) {
        const fl_metric *metric = &stats->metrics.metric[i];
        char value[FL__PROGRESS_VALUE_BYTES];
        n += snprintf(text + n, EVAL_BYTES - (size_t)n, "  %s %s", metric->name,
                      fl__progress_value(eval->metrics.mean[i], metric->is_share, value));
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
                           part[64] = "", n[FL_COUNT_BYTES];
    double mean = fl_run_stats_loss(e);
    if (isfinite(mean)) {
        snprintf(loss, sizeof loss, "%.4f", mean);
    }
    if (e->steps < stats->steps_per_epoch) { /* the run ends within it */
        snprintf(part, sizeof part, " (%lld of %s)", (long long)e->steps,
                 fl_count(stats->steps_per_epoch, "step", n));
    }
    if (e->n_skipped > 0) {
        snprintf(skipped, sizeof skipped, " (%s skipped)", fl_count(e->n_skipped, "step", n));
    }
    if (e->evaluated) {
        snprintf(eval, sizeof eval, ", %s", eval_text(stats, &e->eval, text));
    }
    fl_progress_note(progress, "epoch %lld/%lld%s  loss %s%s%s  %.0f samples/s  %.1f s",
                     (long long)e->epoch + 1, (long long)stats->n_epochs, part, loss, skipped, eval,
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
