/* Which plan the run had when: F, K, R and M over the time in training. */
#include "launcher/report/sections/sections.h"

#include <math.h>
#include <stdio.h>

enum { CORNERS_MAX = 400, BINS = 300, TRACK_HEIGHT = 62, ROWS_MAX = 400 };

static const char *const track_name[] = {"F, frozen blocks", "K, stages of a pipeline",
                                         "R, replicas", "M, micro-batches"};

static int value_of(fl_grid plan, int track)
{
    const int value[] = {plan.F, plan.K, plan.R, plan.M};
    return value[track];
}

typedef struct plan_track {
    const fl_report *report;
    int which;
    double unit_s;
} plan_track;

static fl_point point_at(const void *context, int64_t i)
{
    const plan_track *t = context;
    const fl_report_step *s = &t->report->step[i];
    return (fl_point){s->end_s / t->unit_s, value_of(s->plan, t->which), s->ms};
}

/* Two corners for each stretch of equal values; -1 when they are too many to draw one by one. */
static int corners_of(const plan_track *t, fl_bin *corners)
{
    int n = 0;
    for (int64_t i = 0; i < t->report->n_steps; i++) {
        const fl_report_step *s = &t->report->step[i];
        double value = value_of(s->plan, t->which), end = s->end_s / t->unit_s;
        if (n > 0 && corners[n - 1].mean == value) {
            corners[n - 1].x = end;
            continue;
        }
        if (n + 2 > CORNERS_MAX) {
            return -1;
        }
        double begin = i == 0 ? 0 : t->report->step[i - 1].end_s / t->unit_s;
        corners[n++] = (fl_bin){begin, 0, value, value};
        corners[n++] = (fl_bin){end, 0, value, value};
    }
    return n;
}

static void draw_track(fl_chart *c, const plan_track *t, double end)
{
    fl_bin corners[CORNERS_MAX];
    double highest = 1;
    int n = corners_of(t, corners);
    if (n < 0) {
        n = fl_bins_make(point_at, t, t->report->n_steps, 0, end, BINS, corners);
    }
    for (int i = 0; i < n; i++) {
        highest = fmax(highest, corners[i].high);
    }
    c->y = fl_axis_fit(0, highest, highest < 3 ? 2 : 3, true, true);
    fl_chart_y_axis(c, "");
    fl_chart_name(c, track_name[t->which]);
    fl_chart_band(c, t->which == 0 ? "frost" : "band", corners, n);
    fl_chart_line(c, t->which == 0 ? "frostline" : "line", corners, n);
}

static void draw_plans(fl_html *html, const fl_report *report, int width)
{
    double end_s = report->step[report->n_steps - 1].end_s;
    fl_page_clock clock = fl_page_clock_of(end_s);
    double end = end_s / clock.unit_s;
    fl_drawing_open(html, width, 4 * (TRACK_HEIGHT + 26) + 22,
                    "Frozen blocks, stages, replicas and micro-batches over the training time");
    for (int i = 0; i < 4; i++) {
        plan_track t = {report, i, clock.unit_s};
        fl_chart c = fl_page_plot(html, width, 0);
        c.top = 22 + i * (TRACK_HEIGHT + 26);
        c.bottom = c.top + TRACK_HEIGHT;
        c.x = fl_axis_fit(0, end, width >= FL_PAGE_WIDE ? 8 : 5, false, false);
        draw_track(&c, &t, end);
        if (i == 3) {
            fl_chart_x_axis(&c, clock.name);
        }
    }
    fl_drawing_close(html);
}

/* ---- the table ---- */

typedef struct stretch {
    int64_t first, last; /* of step[] */
} stretch;

static stretch stretch_from(const fl_report *report, int64_t first)
{
    int64_t last = first;
    while (last + 1 < report->n_steps &&
           fl_grid_is_same(report->step[last + 1].plan, report->step[first].plan)) {
        last++;
    }
    return (stretch){first, last};
}

static void row(fl_html *html, const fl_report *report, stretch s)
{
    const fl_report_step *a = &report->step[s.first], *b = &report->step[s.last];
    double before_s = s.first == 0 ? 0 : report->step[s.first - 1].end_s, samples = 0;
    double seconds = b->end_s - before_s, n = (double)(s.last - s.first + 1);
    for (int64_t i = s.first; i <= s.last; i++) {
        samples += (double)report->step[i].samples;
    }
    fl_html_add(html, "<tr><td>%lld</td><td>%lld</td>", (long long)a->step, (long long)b->step);
    for (int i = 0; i < 4; i++) {
        fl_html_add(html, "<td>%d</td>", value_of(a->plan, i));
    }
    fl_page_number(html, seconds, 1);
    fl_page_number(html, 1000 * seconds / n, 1);
    fl_page_number(html, seconds > 0 ? samples / seconds : (double)NAN, 0);
    fl_html_add(html, "</tr>\n");
}

static void table(fl_html *html, const fl_report *report)
{
    int n = 0;
    int64_t at = 0;
    fl_html_add(html,
                "<details><summary>Plans as a table</summary><div class=\"scroll\"><table>\n"
                "<tr><th>from step</th><th>to step</th><th>F</th><th>K</th><th>R</th><th>M</th>"
                "<th>seconds</th><th>step, ms</th><th>samples/s</th></tr>\n");
    for (; at < report->n_steps && n < ROWS_MAX; n++) {
        stretch s = stretch_from(report, at);
        row(html, report, s);
        at = s.last + 1;
    }
    fl_html_add(html, "</table></div>\n");
    if (at < report->n_steps) {
        fl_html_add(html, "<p class=\"note\">The first %d of them; steps.jsonl has all.</p>\n", n);
    }
    fl_html_add(html, "</details>\n");
}

void fl_page_plans(fl_html *html, const fl_report *report)
{
    if (report->n_steps == 0) {
        return;
    }
    fl_page_section(html, "Which plan it had");
    fl_page_figure(
        html, report, "Plan",
        "Below the frost line F nothing trains. There are R pipelines of K stages, and each "
        "cuts its share of a batch into M micro-batches.",
        draw_plans);
    table(html, report);
    fl_page_section_end(html);
}
