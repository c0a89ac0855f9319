/* The workers that were lost, and what followed: the others went on, or the run went back. */
#include "launcher/report/sections/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 200 };

/* Whether event[i], the new start of a worker, follows its loss, and not that its host was drained
 * or that a request took it out. The loss may have been cut off where the run went back. */
static bool follows_loss(const fl_report *report, int64_t i)
{
    const json_t *event = report->event[i];
    double rank = fl_line_real(event, "rank");
    bool lost = strcmp(fl_line_text(event, "why"), "lost") == 0, known = lost;
    while (!known && --i >= 0) {
        const json_t *before = report->event[i];
        lost = fl_report_is(before, "worker.lost");
        known = (lost || fl_report_is(before, "worker.restarted")) &&
                fl_line_real(before, "rank") == rank;
    }
    return known && lost;
}

static bool is_row(const fl_report *report, int64_t i)
{
    const json_t *event = report->event[i];
    return fl_report_is(event, "worker.lost") || fl_report_is(event, "run.recovered") ||
           (fl_report_is(event, "worker.restarted") && follows_loss(report, i)) ||
           fl_page_is_return(event);
}

/* Where the files lack steps, as after a full disk, fewer lines were cut than steps are repeated.
 */
static double repeated_steps(const json_t *event)
{
    return fl_line_real(event, json_object_get(event, "repeated_steps") != NULL ? "repeated_steps"
                                                                                : "cut_steps");
}

static void lost_text(fl_html *html, const json_t *event)
{
    const char *host = fl_line_text(event, "host");
    fl_html_add(html, "worker %.0f%s%s is lost: %s", fl_line_real(event, "rank"),
                host[0] == '\0' ? "" : " of host ", host, fl_line_text(event, "how"));
}

static void recovered_text(fl_html *html, const json_t *event)
{
    const fl_grid none = {0, 0, 0, 0};
    fl_grid plan = fl_report_plan_of(event, none);
    fl_html_add(html, "the others go on, K=%d R=%d M=%d: %s", plan.K, plan.R, plan.M,
                fl_line_text(event, "why"));
}

/* The finished steps of the run when it happened. A record of an earlier version has only those of
 * the lost worker. */
static double step_of(const json_t *event)
{
    bool has_step = json_object_get(event, "step") != NULL;
    if (fl_report_is(event, "worker.lost") && !has_step) {
        return fl_line_real(event, "steps");
    }
    return fl_line_real(event, "step") + (fl_page_is_return(event) ? repeated_steps(event) : 0.0);
}

/* The end of the return that begins with event[i]; NULL: the run has not trained since, or went
 * back once more before. */
static const json_t *returned(const fl_report *report, int64_t i)
{
    for (i++; i < report->n_events && !fl_page_is_return(report->event[i]); i++) {
        if (fl_report_is(report->event[i], "run.returned")) {
            return report->event[i];
        }
    }
    return NULL;
}

/* How long the run did not train. A record of an earlier version has only the parts. */
static double without_training_ms(const fl_report *report, int64_t i)
{
    const json_t *event = report->event[i];
    double ms =
        fl_line_real(fl_page_is_return(event) ? returned(report, i) : event, "without_training_ms");
    return isfinite(ms) ? ms
                        : fl_line_real(event, "detect_ms") + fl_line_real(event, "collect_ms") +
                              fl_line_real(event, "move_ms");
}

/* Of a return, the loss: it stands above what the run did before it trained again. */
static double time_of(const json_t *event)
{
    bool has_loss = fl_page_is_return(event) && json_object_get(event, "lost_at") != NULL;
    return fl_line_real(event, has_loss ? "lost_at" : "time");
}

static void row(fl_html *html, const fl_report *report, int64_t i)
{
    const json_t *event = report->event[i];
    char text[FL_NUMBER_BYTES];
    fl_html_add(html, "<tr><td>%s</td>", fl_html_duration(time_of(event), text));
    fl_page_number(html, step_of(event), 0);
    fl_html_add(html, "<td class=\"all\">");
    if (fl_report_is(event, "worker.lost")) {
        lost_text(html, event);
    } else if (fl_report_is(event, "run.recovered")) {
        recovered_text(html, event);
    } else if (fl_page_is_return(event)) {
        fl_html_add(html, "the run goes back to %s (step %.0f): %s",
                    fl_line_text(event, "checkpoint"), fl_line_real(event, "step"),
                    fl_line_text(event, "why"));
    } else {
        fl_html_add(html, "worker %.0f is started again (%s)", fl_line_real(event, "rank"),
                    fl_line_text(event, "why"));
    }
    fl_html_add(html, "</td>");
    fl_page_number(html, without_training_ms(report, i), 1);
    fl_page_number(html, fl_page_is_return(event) ? repeated_steps(event) : (double)NAN, 0);
    fl_html_add(html, "</tr>\n");
}

static void snapshots(fl_html *html, const fl_report *report)
{
    int64_t at = 0, n = 0;
    const json_t *event, *last = NULL;
    while ((event = fl_report_next(report, "snapshot.taken", &at)) != NULL) {
        last = event;
        n++;
    }
    if (last != NULL) {
        fl_html_add(html,
                    "<p class=\"note\">Snapshots in memory: %d, the last after %.0f steps, for "
                    "which training stood still %.1f ms.</p>\n",
                    (int)n, fl_line_real(last, "step"), fl_line_real(last, "copy_ms"));
    }
}

void fl_page_losses(fl_html *html, const fl_report *report)
{
    int n = 0;
    for (int64_t i = 0; i < report->n_events; i++) {
        n += is_row(report, i);
    }
    if (n == 0) {
        return;
    }
    int left_out = n > ROWS_MAX ? n - ROWS_MAX : 0, seen = 0;
    fl_page_section(html, "Losses");
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>time</th><th>step</th>"
                      "<th class=\"text\">what happened</th><th>without training, ms</th>"
                      "<th>steps again</th></tr>\n");
    for (int64_t i = 0; i < report->n_events; i++) {
        if (is_row(report, i) && seen++ >= left_out) {
            row(html, report, i);
        }
    }
    fl_html_add(html, "</table></div>\n");
    snapshots(html, report);
    fl_page_section_end(html);
}
