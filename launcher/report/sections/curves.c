/* Loss, its metrics, speed; and, folded, learning rate and gradient norm. */
#include "launcher/report/sections/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BINS_MAX = 320, MARKS_MAX = 60, EPOCH_ROWS_MAX = 1000 };

/* ---- points ---- */

static const fl_report_step *step_at(const void *context, int64_t i)
{
    return &((const fl_report *)context)->step[i];
}

static fl_point loss_at(const void *context, int64_t i)
{
    const fl_report_step *s = step_at(context, i);
    return (fl_point){(double)s->step, s->loss, 1};
}

static fl_point lr_at(const void *context, int64_t i)
{
    const fl_report_step *s = step_at(context, i);
    return (fl_point){(double)s->step, s->lr, 1};
}

static fl_point norm_at(const void *context, int64_t i)
{
    const fl_report_step *s = step_at(context, i);
    return (fl_point){(double)s->step, s->grad_norm, 1};
}

/* Samples a second over time; the mean of several steps is all their samples by all their time. */
static fl_point speed_at(const void *context, int64_t i)
{
    const fl_report_step *s = step_at(context, i);
    double speed = s->ms > 0 ? (double)s->samples / s->ms * 1000 : (double)NAN;
    return (fl_point){s->end_s, speed, s->ms};
}

/* ---- axes ---- */

static double last_step(const fl_report *report)
{
    double of_run = report->run.n_steps > 0 ? (double)report->run.n_steps : 0;
    return fmax((double)report->step[report->n_steps - 1].step + 1, fmin(of_run, 1e15));
}

static int ticks_of(int width)
{
    return width >= FL_PAGE_WIDE ? 8 : 5;
}

/* A line where the plan got another F, K or R; M is tried out too often. */
static void mark_changes(const fl_chart *c, const fl_report *report, bool over_time, double unit)
{
    int n = 0;
    for (int64_t i = 1; i < report->n_steps && n < MARKS_MAX; i++) {
        fl_grid a = report->step[i - 1].plan, b = report->step[i].plan;
        a.M = b.M;
        if (!fl_grid_is_same(a, b)) {
            char plan[FL_PLAN_BYTES], tip[160];
            double x = over_time ? report->step[i - 1].end_s / unit : (double)report->step[i].step;
            snprintf(tip, sizeof tip, "step %lld: %s", (long long)report->step[i].step,
                     fl_page_plan(b, plan));
            fl_chart_mark(c, "mark", x, tip);
            n++;
        }
    }
}

/* ---- over steps ---- */

typedef struct curve {
    fl_point_at *at;
    const char *label;
    bool from_zero;
} curve;

static int bins_of(int width)
{
    return width >= FL_PAGE_WIDE ? BINS_MAX : 130;
}

/* The plot, its axes and the line of a value over the steps. */
static fl_chart draw_over_steps(fl_html *html, const fl_report *report, int width, const curve *of)
{
    fl_bin bins[BINS_MAX];
    fl_chart c = fl_page_plot(html, width, width >= FL_PAGE_WIDE ? 250 : 220);
    double low = 0, high = 1, last = last_step(report);
    int n = fl_bins_make(of->at, report, report->n_steps, 0, last, bins_of(width), bins);
    if (fl_bins_range(bins, n, &low, &high) && of->from_zero) {
        low = fmin(low, 0);
    }
    c.x = fl_axis_fit(0, last, ticks_of(width), false, true);
    c.y = fl_axis_fit(low, high, 5, true, false);
    fl_drawing_open(html, width, (int)c.bottom + 26, of->label);
    fl_chart_y_axis(&c, "");
    fl_chart_x_axis(&c, "step");
    mark_changes(&c, report, false, 1);
    fl_chart_band(&c, "band", bins, n);
    fl_chart_line(&c, "line", bins, n);
    return c;
}

/* The step at the end of an epoch, from 0. */
static double end_of_epoch(const fl_report *report, int64_t epoch)
{
    int64_t low = 0, high = report->n_steps;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (report->step[middle].epoch <= epoch) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? 0 : (double)report->step[low - 1].step;
}

/* Goes through the values of all evaluations, or of all epochs. Runs of older versions recorded
 * evaluations only in the events of epochs. */
typedef struct value_cursor {
    const fl_report *report;
    const char *key;
    int64_t at;
} value_cursor;

static const char *event_of(const value_cursor *t)
{
    bool is_mfu = strcmp(t->key, "mfu") == 0;
    return !is_mfu && fl_report_first(t->report, "evaluation") != NULL ? "evaluation"
                                                                       : "epoch.finished";
}

/* The next value under the key: where, how much, and in which epoch. */
static bool next_value(value_cursor *t, double *x, double *y, int64_t *epoch)
{
    const char *name = event_of(t);
    const json_t *event;
    while ((event = fl_report_next(t->report, name, &t->at)) != NULL) {
        int64_t step = fl_line_whole(event, "step", 0, INT64_C(1) << 50, -1);
        *epoch = fl_line_whole(event, "epoch", 0, INT64_C(1) << 50, -1);
        *y = fl_line_real(event, t->key);
        if (*epoch >= 0 && isfinite(*y)) {
            *x = step >= 0 ? (double)step : end_of_epoch(t->report, *epoch);
            return true;
        }
    }
    return false;
}

static void draw_dot(const fl_chart *c, double x, double y, int64_t epoch, const char *what)
{
    char tip[160];
    snprintf(tip, sizeof tip, "step %.0f, epoch %lld: %s %.4g", x, (long long)epoch + 1, what, y);
    fl_chart_dot(c, "dot2", x, y, tip);
}

/* More values than a plot has room for are thinned out; the last one is shown. */
static void draw_values(const fl_chart *c, const fl_report *report, const char *key,
                        const char *what, double times)
{
    value_cursor e = {.report = report, .key = key};
    double x, y, last_x = 0, last_y = 0, shown_to = -1;
    int64_t epoch, last_epoch = 0;
    bool any = false, left_out = false;
    while (next_value(&e, &x, &y, &epoch)) {
        double at = fl_axis_at(&c->x, x, c->left, c->right);
        left_out = any && at - shown_to < 3;
        if (!left_out) {
            draw_dot(c, x, y * times, epoch, what);
            shown_to = at;
            any = true;
        }
        last_x = x;
        last_y = y * times;
        last_epoch = epoch;
    }
    if (left_out) {
        draw_dot(c, last_x, last_y, last_epoch, what);
    }
}

static bool has_value(const fl_report *report, const char *key)
{
    value_cursor e = {.report = report, .key = key};
    double x, y;
    int64_t epoch;
    return next_value(&e, &x, &y, &epoch);
}

static void draw_loss(fl_html *html, const fl_report *report, int width)
{
    static const curve of = {loss_at, "Loss of the training batches over the steps", true};
    fl_chart c = draw_over_steps(html, report, width, &of);
    draw_values(&c, report, "validation_loss", "validation loss", 1);
    draw_values(&c, report, "test_loss", "test loss", 1);
    fl_drawing_close(html);
}

/* A curve with one value per evaluation or epoch.
 * what   of a value, in its tip
 * dots   NULL, or another key, whose values are dots of their own: of the test at the end
 * times  by which values are multiplied: 100 for percent */
typedef struct value_curve {
    const char *key, *what, *label;
    double times;
    const char *dots;
} value_curve;

/* steps [n_steps]: the bins of the same value in each step, drawn below; then there is room for
 * BINS_MAX values. */
static void draw_value_curve(fl_html *html, const fl_report *report, int width,
                             const value_curve *of, fl_bin *steps, int n_steps)
{
    value_cursor e = {.report = report, .key = of->key};
    fl_chart c = fl_page_plot(html, width, 200);
    fl_bin *values = steps + n_steps;
    double x, y, low = 0, high = of->times;
    int64_t epoch;
    int n = 0;
    while (n < BINS_MAX && next_value(&e, &x, &y, &epoch)) {
        y *= of->times;
        values[n++] = (fl_bin){x, y, y, y};
    }
    fl_bins_range(steps, n_steps + n, &low, &high);
    e = (value_cursor){.report = report, .key = of->dots};
    while (of->dots != NULL && next_value(&e, &x, &y, &epoch)) {
        low = fmin(low, y * of->times);
        high = fmax(high, y * of->times);
    }
    c.x = fl_axis_fit(0, last_step(report), ticks_of(width), false, true);
    c.y = fl_axis_fit(low, high, 4, true, false);
    fl_drawing_open(html, width, 200, of->label);
    fl_chart_y_axis(&c, "");
    fl_chart_x_axis(&c, "step");
    mark_changes(&c, report, false, 1);
    fl_chart_band(&c, "band", steps, n_steps);
    fl_chart_line(&c, "line", steps, n_steps);
    fl_chart_line(&c, "line2", values, n);
    draw_values(&c, report, of->key, of->what, of->times);
    if (of->dots != NULL) {
        draw_values(&c, report, of->dots, of->what, of->times);
    }
    fl_drawing_close(html);
}

static void draw_mfu(fl_html *html, const fl_report *report, int width)
{
    static const value_curve of = {
        "mfu", "MFU, %,", "Model FLOPs utilization at the end of each epoch, percent", 100, NULL};
    fl_bin bins[BINS_MAX];
    draw_value_curve(html, report, width, &of, bins, 0);
}

/* ---- the metrics of the loss ---- */

enum { METRIC_TEXT_BYTES = FL_METRIC_NAME_MAX + 40 };

/* The field of its evaluations: on validation samples, where there are any. */
static const char *evaluated_key(const fl_report *report, int metric, char key[FL_METRIC_KEY_BYTES])
{
    fl_report_metric_key("validation", &report->metric[metric], key);
    return has_value(report, key) ? key
                                  : fl_report_metric_key("test", &report->metric[metric], key);
}

typedef struct trained {
    const fl_report *report;
    int metric;
    double times;
} trained;

static fl_point trained_at(const void *context, int64_t i)
{
    const trained *t = context;
    return (fl_point){(double)step_at(t->report, i)->step,
                      t->times * fl_report_train_metric(t->report, i, t->metric), 1};
}

static void draw_metric(fl_html *html, const fl_report *report, int metric, int width)
{
    const fl_report_metric *m = &report->metric[metric];
    const trained steps = {report, metric, m->is_share ? 100 : 1};
    char key[FL_METRIC_KEY_BYTES], test[FL_METRIC_KEY_BYTES];
    char what[METRIC_TEXT_BYTES], label[METRIC_TEXT_BYTES];
    snprintf(what, sizeof what, "%s%s", m->name, m->is_share ? ", %," : "");
    snprintf(label, sizeof label, "%s over the steps%s", m->name, m->is_share ? ", percent" : "");
    const char *evaluated = evaluated_key(report, metric, key);
    bool validates = strncmp(evaluated, "validation", 10) == 0;
    fl_report_metric_key("test", m, test);
    const value_curve of = {evaluated, what, label, steps.times, validates ? test : NULL};
    fl_bin bins[2 * BINS_MAX];
    int n = fl_bins_make(trained_at, &steps, report->n_steps, 0, last_step(report), bins_of(width),
                         bins);
    draw_value_curve(html, report, width, &of, bins, n);
}

static bool has_metric(const fl_report *report, int metric)
{
    char key[FL_METRIC_KEY_BYTES];
    if (has_value(report, evaluated_key(report, metric, key))) {
        return true;
    }
    for (int64_t i = 0; i < report->n_steps; i++) {
        if (isfinite(fl_report_train_metric(report, i, metric))) {
            return true;
        }
    }
    return false;
}

static void metric_figures(fl_html *html, const fl_report *report)
{
    for (int i = 0; i < report->n_metrics; i++) {
        const fl_report_metric *m = &report->metric[i];
        char title[METRIC_TEXT_BYTES], key[FL_METRIC_KEY_BYTES];
        bool validates = strncmp(evaluated_key(report, i, key), "validation", 10) == 0;
        bool is_accuracy = strcmp(m->name, FL_ACCURACY) == 0;
        snprintf(title, sizeof title, "%s%s", is_accuracy ? "Accuracy" : m->name,
                 m->is_share ? ", %" : "");
        if (has_metric(report, i)) {
            fl_page_metric_figure(
                html, report, i, title,
                validates ? "Dots: on the validation samples, and on the test samples at "
                            "the end."
                          : "Dots: on the test samples.",
                draw_metric);
        }
    }
}

static void draw_lr(fl_html *html, const fl_report *report, int width)
{
    static const curve of = {lr_at, "Learning rate over the steps", true};
    draw_over_steps(html, report, width, &of);
    fl_drawing_close(html);
}

static void draw_norm(fl_html *html, const fl_report *report, int width)
{
    static const curve of = {norm_at, "Norm of the whole gradient over the steps", true};
    draw_over_steps(html, report, width, &of);
    fl_drawing_close(html);
}

/* ---- over time ---- */

typedef struct timed {
    const fl_report *report;
    double unit_s;
} timed;

static fl_point speed_in_unit(const void *context, int64_t i)
{
    const timed *t = context;
    fl_point p = speed_at(t->report, i);
    p.x /= t->unit_s;
    return p;
}

static void draw_speed(fl_html *html, const fl_report *report, int width)
{
    fl_bin bins[BINS_MAX];
    double end_s = report->step[report->n_steps - 1].end_s, low = 0, high = 1;
    fl_page_clock clock = fl_page_clock_of(end_s);
    timed of = {report, clock.unit_s};
    fl_chart c = fl_page_plot(html, width, 220);
    int n = fl_bins_make(speed_in_unit, &of, report->n_steps, 0, end_s / clock.unit_s,
                         bins_of(width), bins);
    fl_bins_range(bins, n, &low, &high);
    c.x = fl_axis_fit(0, end_s / clock.unit_s, ticks_of(width), false, false);
    c.y = fl_axis_fit(0, high, 4, true, false);
    fl_drawing_open(html, width, 220, "Samples per second over the training time");
    fl_chart_y_axis(&c, "");
    fl_chart_x_axis(&c, clock.name);
    mark_changes(&c, report, true, clock.unit_s);
    fl_chart_band(&c, "band", bins, n);
    fl_chart_line(&c, "line", bins, n);
    fl_drawing_close(html);
}

/* ---- the table ---- */

static void epoch_row(fl_html *html, const fl_report *report, const json_t *event)
{
    char key[FL_METRIC_KEY_BYTES];
    fl_html_add(html, "<tr><td>%lld</td>",
                (long long)fl_line_whole(event, "epoch", 0, INT64_C(1) << 50, -1) + 1);
    fl_page_number(html, fl_line_real(event, "steps"), 0);
    fl_page_number(html, fl_line_real(event, "train_loss"), 4);
    bool validates = isfinite(fl_line_real(event, "validation_loss"));
    const char *loss = validates ? "validation_loss" : "test_loss";
    fl_page_number(html, fl_line_real(event, loss), 4);
    for (int i = 0; i < report->n_metrics; i++) {
        const fl_report_metric *m = &report->metric[i];
        fl_report_metric_key(validates ? "validation" : "test", m, key);
        fl_page_number(html, (m->is_share ? 100 : 1) * fl_line_real(event, key),
                       m->is_share ? 2 : 4);
    }
    fl_page_number(html, fl_line_real(event, "samples_per_s"), 0);
    fl_page_number(html, 100 * fl_line_real(event, "mfu"), 1);
    double seconds = fl_line_real(event, "seconds");
    fl_page_number(html, seconds, seconds < 1 ? 3 : seconds < 10 ? 2 : 1);
    fl_html_add(html, "</tr>\n");
}

static void epoch_table(fl_html *html, const fl_report *report)
{
    int64_t at = 0, n = 0;
    const json_t *event = fl_report_next(report, "epoch.finished", &at);
    if (event == NULL) {
        return;
    }
    fl_html_add(html,
                "<details><summary>Epochs as a table</summary><div class=\"scroll\"><table>\n"
                "<tr><th>epoch</th><th>steps</th><th>train loss</th><th>%s loss</th>",
                has_value(report, "validation_loss") ? "validation" : "test");
    for (int i = 0; i < report->n_metrics; i++) {
        fl_html_add(html, "<th>%s%s</th>", report->metric[i].name,
                    report->metric[i].is_share ? ", %" : "");
    }
    fl_html_add(html, "<th>samples/s</th><th>MFU, %%</th><th>seconds</th></tr>\n");
    for (; event != NULL && n < EPOCH_ROWS_MAX; n++) {
        epoch_row(html, report, event);
        event = fl_report_next(report, "epoch.finished", &at);
    }
    fl_html_add(html, "</table></div></details>\n");
}

void fl_page_curves(fl_html *html, const fl_report *report)
{
    bool validates = has_value(report, "validation_loss");
    const char *on = validates ? "validation samples, and test samples at the end" : "test samples";
    const fl_page_key keys[] = {{"p1", "training batches: mean, minimum and maximum"}, {"p3", on}};
    if (report->n_steps == 0) {
        return;
    }
    fl_page_section(html, "What it learned");
    fl_page_keys(html, keys, validates || has_value(report, "test_loss") ? 2 : 1);
    fl_page_figure(html, report, "Loss",
                   "Dashed lines: the number of frozen blocks, stages or replicas changed.",
                   draw_loss);
    metric_figures(html, report);
    epoch_table(html, report);
    fl_html_add(html, "<details><summary>Learning rate and gradient norm</summary>\n");
    fl_page_figure(html, report, "Learning rate", "", draw_lr);
    fl_page_figure(html, report, "Gradient norm", "Of the whole gradient, before clipping.",
                   draw_norm);
    fl_html_add(html, "</details>\n");
    fl_page_section_end(html);
    fl_page_section(html, "How fast it went");
    fl_page_figure(html, report, "Samples a second",
                   "Over the training time, without evaluation; mean, slowest and fastest step.",
                   draw_speed);
    if (has_value(report, "mfu")) {
        fl_page_figure(
            html, report, "Model FLOPs utilization (MFU), %",
            "The products that the steps of the plan require, divided by what its devices could "
            "compute in that time; over the last steps of each epoch.",
            draw_mfu);
    }
    fl_page_section_end(html);
}
