/* Where the time went: of each worker, by epoch. */
#include "launcher/report/sections/sections.h"

#include <frostline/plan.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 6, PANELS_MAX = 8, PANEL_HEIGHT = 96, ROWS_MAX = 600, ALL = -1 };

static const char *const part_key[PARTS - 1] = {"compute_s", "wait_s", "reduce_wait_s",
                                                "optimizer_s", "data_s"};
static const char *const part_name[PARTS] = {"compute",   "wait", "all-reduce",
                                             "optimizer", "data", "other"};
static const char *const part_look[PARTS] = {"p1", "p2", "p3", "p4", "p5", "p6"};

/* Seconds of a worker in an epoch, by part; false if the event does not tell. */
static bool parts_of(const json_t *event, const json_t *worker, double part[PARTS])
{
    double seconds = fl_line_real(event, "seconds"), sum = 0;
    for (int i = 0; i < PARTS - 1; i++) {
        part[i] = fl_line_real(worker, part_key[i]);
        if (!(part[i] >= 0)) {
            return false;
        }
        sum += part[i];
    }
    part[PARTS - 1] = fmax(isfinite(seconds) ? seconds - sum : 0, 0);
    return true;
}

static int rank_of(const json_t *worker)
{
    return (int)fl_line_whole(worker, "rank", 0, FL_MAX_WORKERS - 1, -1);
}

static int count_workers(const fl_report *report)
{
    const json_t *event, *worker;
    int64_t at = 0;
    int n = 0;
    while ((event = fl_report_next(report, "epoch.finished", &at)) != NULL) {
        size_t i;
        json_array_foreach(json_object_get(event, "workers"), i, worker)
        {
            n = rank_of(worker) >= n ? rank_of(worker) + 1 : n;
        }
    }
    return n;
}

/* The epochs of one worker, or the mean of all. */
static fl_columns columns_of(const fl_report *report, int rank)
{
    const json_t *event, *worker;
    int64_t at = 0, most = INT64_C(1) << 50;
    int64_t first = fl_line_whole(fl_report_first(report, "epoch.finished"), "epoch", 0, most, 0);
    int64_t last = fl_line_whole(fl_report_last(report, "epoch.finished"), "epoch", 0, most, 0);
    fl_columns columns = fl_columns_of(first, last, PARTS);
    while ((event = fl_report_next(report, "epoch.finished", &at)) != NULL) {
        int column = fl_columns_find(&columns, fl_line_whole(event, "epoch", 0, most, -1));
        double part[PARTS];
        size_t i;
        json_array_foreach(json_object_get(event, "workers"), i, worker)
        {
            bool meant = rank == ALL ? rank_of(worker) >= 0 : rank_of(worker) == rank;
            if (column >= 0 && meant && parts_of(event, worker, part)) {
                columns.n[column]++;
                for (int p = 0; p < PARTS; p++) {
                    columns.part[column][p] += part[p];
                }
            }
        }
    }
    return columns;
}

static void draw_panel(fl_html *html, const fl_columns *columns, int width, int panel,
                       const char *name, double highest, bool last)
{
    fl_chart c = fl_page_plot(html, width, 0);
    c.top = 24 + panel * (PANEL_HEIGHT + 28);
    c.bottom = c.top + PANEL_HEIGHT;
    c.x = fl_axis_fit((double)columns->first + 0.5, (double)columns->last + 1.5,
                      width >= FL_PAGE_WIDE ? 12 : 6, false, true);
    c.y = fl_axis_fit(0, highest, 3, true, false);
    fl_chart_y_axis(&c, "");
    fl_chart_name(&c, name);
    fl_columns_draw(&c, columns, part_look, part_name, " s");
    if (last) {
        fl_chart_x_axis(&c, "epoch");
    }
}

static void draw_times(fl_html *html, const fl_report *report, int width)
{
    int n = count_workers(report), panels = n > PANELS_MAX ? 1 : n;
    double highest = 0;
    for (int i = 0; i < panels; i++) {
        fl_columns columns = columns_of(report, n > PANELS_MAX ? ALL : i);
        highest = fmax(highest, fl_columns_highest(&columns));
    }
    fl_drawing_open(html, width, panels * (PANEL_HEIGHT + 28) + 24,
                    "Seconds of each worker by activity");
    for (int i = 0; i < panels; i++) {
        char name[64];
        fl_columns columns = columns_of(report, n > PANELS_MAX ? ALL : i);
        snprintf(name, sizeof name, n > PANELS_MAX ? "mean of %d workers" : "worker %d",
                 n > PANELS_MAX ? n : i);
        draw_panel(html, &columns, width, i, name, highest, i == panels - 1);
    }
    fl_drawing_close(html);
}

/* ---- tables ---- */

static void share_bar(fl_html *html, const double part[PARTS], double sum)
{
    double at = 0;
    fl_html_add(html, "<td><svg viewBox=\"0 0 160 10\" preserveAspectRatio=\"none\" "
                      "aria-hidden=\"true\">");
    for (int p = 0; p < PARTS && sum > 0; p++) {
        double width = 160 * part[p] / sum;
        fl_html_add(html, "<rect class=\"p%d\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/>", p + 1,
                    at, width);
        at += width;
    }
    fl_html_add(html, "</svg></td>");
}

static void total_row(fl_html *html, const fl_report *report, int rank)
{
    const json_t *event, *worker;
    double sums[PARTS] = {0}, part[PARTS], sum = 0;
    int64_t at = 0;
    while ((event = fl_report_next(report, "epoch.finished", &at)) != NULL) {
        const json_t *workers = json_object_get(event, "workers");
        /* As a rule they stand in the order of their ranks. */
        worker = json_array_get(workers, (size_t)rank);
        if (rank_of(worker) == rank && parts_of(event, worker, part)) {
            for (int p = 0; p < PARTS; p++) {
                sums[p] += part[p];
                sum += part[p];
            }
        }
    }
    fl_html_add(html, "<tr><td>%d</td>", rank);
    share_bar(html, sums, sum);
    for (int p = 0; p < PARTS; p++) {
        char seconds[FL_NUMBER_BYTES];
        fl_html_add(html, "<td>%s <span class=\"soft\">%.1f %%</span></td>",
                    fl_html_number(sums[p], 1, seconds), sum > 0 ? 100 * sums[p] / sum : 0);
    }
    fl_html_add(html, "</tr>\n");
}

static void totals(fl_html *html, const fl_report *report, int n_workers)
{
    fl_html_add(html, "<div class=\"scroll\"><table><caption>All epochs together, seconds and share"
                      "</caption>\n<tr><th>worker</th><th class=\"text\">share</th>");
    for (int p = 0; p < PARTS; p++) {
        fl_html_add(html, "<th>%s</th>", part_name[p]);
    }
    fl_html_add(html, "</tr>\n");
    for (int i = 0; i < n_workers; i++) {
        total_row(html, report, i);
    }
    fl_html_add(html, "</table></div>\n");
}

static void epoch_rows(fl_html *html, const json_t *event, int *n)
{
    const json_t *worker;
    double part[PARTS];
    size_t i;
    json_array_foreach(json_object_get(event, "workers"), i, worker)
    {
        if (*n >= ROWS_MAX || rank_of(worker) < 0 || !parts_of(event, worker, part)) {
            continue;
        }
        (*n)++;
        fl_html_add(html, "<tr><td>%lld</td><td>%d</td>",
                    (long long)fl_line_whole(event, "epoch", 0, INT64_C(1) << 50, -1) + 1,
                    rank_of(worker));
        for (int p = 0; p < PARTS; p++) {
            fl_page_number(html, part[p], 3);
        }
        fl_html_add(html, "</tr>\n");
    }
}

static void epochs(fl_html *html, const fl_report *report)
{
    const json_t *event;
    int64_t at = 0;
    int n = 0;
    fl_html_add(html, "<details><summary>By epoch and worker as a table</summary>"
                      "<div class=\"scroll\"><table>\n<tr><th>epoch</th><th>worker</th>");
    for (int p = 0; p < PARTS; p++) {
        fl_html_add(html, "<th>%s, s</th>", part_name[p]);
    }
    fl_html_add(html, "</tr>\n");
    while ((event = fl_report_next(report, "epoch.finished", &at)) != NULL) {
        epoch_rows(html, event, &n);
    }
    fl_html_add(html, "</table></div>\n");
    if (n == ROWS_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d; events.jsonl has all of them.</p>\n", n);
    }
    fl_html_add(html, "</details>\n");
}

void fl_page_time(fl_html *html, const fl_report *report)
{
    fl_page_key keys[PARTS];
    char per[FL_COLUMNS_NOTE], note[2 * FL_COLUMNS_NOTE];
    int n_workers = count_workers(report);
    if (n_workers == 0) {
        return;
    }
    for (int p = 0; p < PARTS; p++) {
        keys[p] = (fl_page_key){part_look[p], part_name[p]};
    }
    fl_columns columns = columns_of(report, ALL);
    snprintf(note, sizeof note,
             "%s Wait: for a neighbouring stage; all-reduce: for other replicas' gradients.",
             fl_columns_note(&columns, "mean", per));
    fl_page_section(html, "Where the time went");
    fl_page_keys(html, keys, PARTS);
    fl_page_figure(html, report, "Seconds in training steps", note, draw_times);
    totals(html, report, n_workers);
    epochs(html, report);
    fl_page_section_end(html);
}
