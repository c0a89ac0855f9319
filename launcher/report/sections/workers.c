/* The workers: their memory against the budget, and which of them were slow. */
#include "launcher/report/sections/sections.h"

#include "device/text/size_text.h"

#include <math.h>
#include <stdio.h>

enum { ROWS_MAX = 200 };

static void memory_row(fl_html *html, const json_t *event, double budget)
{
    char peak_text[FL_NUMBER_BYTES];
    double peak = fl_line_real(event, "memory_peak_bytes");
    double share = budget > 0 && peak >= 0 ? peak / budget : (double)NAN;
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "rank"), 0);
    if (json_object_get(event, "host") != NULL) {
        fl_page_cell(html, fl_line_text(event, "host"));
    }
    fl_html_add(html, "<td>%s</td>", fl_size_text(peak, peak_text));
    if (isfinite(share)) {
        fl_html_add(html,
                    "<td>%.0f %%</td><td class=\"text\"><svg viewBox=\"0 0 160 10\" "
                    "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"p6\" "
                    "width=\"160\" height=\"10\" fill-opacity=\".35\"/><rect class=\"p1\" "
                    "width=\"%.1f\" height=\"10\"/></svg></td>",
                    100 * share, 160 * fmin(share, 1));
    }
    fl_html_add(html, "</tr>\n");
}

/* Workers get ready in any order. */
static const json_t *ready_of(const fl_report *report, int rank)
{
    const json_t *event;
    int64_t at = 0;
    while ((event = fl_report_next(report, "worker.ready", &at)) != NULL) {
        if (fl_line_whole(event, "rank", 0, ROWS_MAX, -1) == rank) {
            return event;
        }
    }
    return NULL;
}

static void memory(fl_html *html, const fl_report *report)
{
    char text[FL_NUMBER_BYTES];
    double budget = report->has_job ? (double)report->job.devices.memory_bytes : 0;
    const json_t *first = fl_report_first(report, "worker.ready");
    if (first == NULL) {
        return;
    }
    bool has_host = json_object_get(first, "host") != NULL;
    fl_page_section(html, "Memory");
    if (budget > 0) {
        fl_html_add(html, "<p>Each device may use %s.</p>\n", fl_size_text(budget, text));
    }
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>worker</th>");
    if (has_host) {
        fl_html_add(html, "<th class=\"text\">host</th>");
    }
    fl_html_add(html, "<th>peak</th>");
    fl_html_add(html, budget > 0 ? "<th>of the budget</th><th></th></tr>\n" : "</tr>\n");
    for (int rank = 0; rank < ROWS_MAX; rank++) {
        const json_t *event = ready_of(report, rank);
        if (event != NULL) {
            memory_row(html, event, budget);
        }
    }
    fl_html_add(html,
                "</table></div>\n<p class=\"note\">The memory of the first plan, reported by each "
                "worker when it was ready.</p>\n");
    fl_page_section_end(html);
}

/* ---- slow and lost workers ---- */

static void slow_row(fl_html *html, const json_t *event, bool slow)
{
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "time"), 1);
    fl_page_number(html, fl_line_real(event, "rank"), 0);
    fl_page_cell(html, slow ? "slow" : "as the others again");
    fl_page_number(html, fl_line_real(event, "slowness"), 2);
    fl_page_number(html, fl_line_real(event, "own_ms"), 2);
    fl_page_number(html, fl_line_real(event, "expected_ms"), 2);
    fl_html_add(html, "</tr>\n");
}

static void slow_rows(fl_html *html, const fl_report *report, const char *name)
{
    const json_t *event;
    int64_t at = 0;
    int n = 0;
    while (n++ < ROWS_MAX && (event = fl_report_next(report, name, &at)) != NULL) {
        slow_row(html, event, name[7] == 's');
    }
}

static void stragglers(fl_html *html, const fl_report *report)
{
    if (fl_report_first(report, "run.running") == NULL) {
        return;
    }
    fl_page_section(html, "Stragglers");
    if (fl_report_first(report, "worker.slow") == NULL) {
        fl_html_add(html, "<p>None: no worker was slow in its own compute.</p>\n");
        fl_page_section_end(html);
        return;
    }
    fl_html_add(
        html,
        "<p>Workers whose own compute is slow (time spent waiting for others is excluded).</p>\n"
        "<div class=\"scroll\"><table>\n<tr><th>at, s</th><th>worker</th>"
        "<th class=\"text\">is</th><th>times the others</th><th>own compute per step, ms"
        "</th><th>as profiled, ms</th></tr>\n");
    slow_rows(html, report, "worker.slow");
    slow_rows(html, report, "worker.recovered");
    fl_html_add(html, "</table></div>\n");
    fl_page_section_end(html);
}

void fl_page_workers(fl_html *html, const fl_report *report)
{
    memory(html, report);
    stragglers(html, report);
}
