/* The checkpoints of a run: each that was written, that failed, or from which the run continued. */
#include "launcher/report/sections/sections.h"

#include "control/state/options.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 200 };

/* A run also goes back to a snapshot, or to its start. */
static bool continues_from_one(const json_t *event)
{
    const char *from = fl_line_text(event, "checkpoint");
    return fl_report_is(event, "run.resumed") && strstr(from, "snapshot") == NULL &&
           strcmp(from, FL_RESUME_START) != 0;
}

static bool is_row(const json_t *event)
{
    return fl_report_is(event, "checkpoint.written") || fl_report_is(event, "checkpoint.failed") ||
           continues_from_one(event);
}

static void bytes_cell(fl_html *html, const json_t *event, const char *key)
{
    char text[FL_NUMBER_BYTES];
    double bytes = fl_line_real(event, key);
    fl_html_add(html, "<td>%s</td>", isfinite(bytes) ? fl_size_text(bytes, text) : "-");
}

static void outcome_cell(fl_html *html, const json_t *event)
{
    bool failed = fl_report_is(event, "checkpoint.failed");
    fl_html_add(html, "<td class=\"text\">%s%s</td>",
                failed                                         ? "failed: "
                : fl_report_is(event, "run.resumed")           ? "the run continued from it"
                : json_is_true(json_object_get(event, "best")) ? "written, the best so far"
                                                               : "written",
                failed ? fl_line_text(event, "why") : "");
}

/* A number that an event does not have is shown as "-". */
static void row(fl_html *html, const json_t *event)
{
    char text[FL_NUMBER_BYTES];
    double durable_ms = fl_line_real(event, "copy_ms") + fl_line_real(event, "write_ms") +
                        fl_line_real(event, "commit_ms");
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "step"), 0);
    fl_html_add(html, "<td>%s</td>", fl_html_duration(fl_line_real(event, "time"), text));
    bytes_cell(html, event, "bytes");
    bytes_cell(html, event, "linked_bytes");
    fl_page_number(html, fl_line_real(event, "copy_ms"), 3);
    fl_page_number(html, durable_ms, 1);
    outcome_cell(html, event);
    fl_html_add(html, "</tr>\n");
}

/* The newest rows: a run of days has thousands. */
static void table(fl_html *html, const fl_report *report, int64_t n)
{
    int64_t left_out = n > ROWS_MAX ? n - ROWS_MAX : 0, i = 0;
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>after steps</th><th>time</th>"
                      "<th>written</th><th>linked</th><th>stall, ms</th><th>durable after, ms</th>"
                      "<th class=\"text\">outcome</th></tr>\n");
    for (int64_t at = 0; at < report->n_events; at++) {
        if (is_row(report->event[at]) && i++ >= left_out) {
            row(html, report->event[at]);
        }
    }
    fl_html_add(html, "</table></div>\n");
    if (left_out > 0) {
        fl_html_add(html, "<p class=\"note\">The last %d; events.jsonl has all of them.</p>\n",
                    (int)ROWS_MAX);
    }
}

static void describe_kept(fl_html *html, const fl_run_checkpoints *c)
{
    char moment[40], n[FL_COUNT_BYTES];
    if (c->n == 0) {
        fl_html_add(html, "<p>The run directory holds no checkpoint.</p>\n");
        return;
    }
    snprintf(moment, sizeof moment, "%.10s %.8s UTC", c->written, c->written + 11);
    fl_html_add(html,
                "<p>The run directory holds %d. The newest one, after <b>%s</b>, was written "
                "%s.</p>\n",
                c->n, fl_count(c->step, "step", n), moment);
    if (c->best_step >= 0) {
        fl_html_add(html, "<p><code>checkpoints/best</code> is the one after <b>%s</b>.</p>\n",
                    fl_count(c->best_step, "step", n));
    }
}

void fl_page_checkpoints(fl_html *html, const fl_report *report)
{
    int64_t n = 0;
    for (int64_t at = 0; at < report->n_events; at++) {
        n += is_row(report->event[at]);
    }
    if (n == 0 && report->checkpoints.n == 0) {
        return;
    }
    fl_page_section(html, "Checkpoints");
    describe_kept(html, &report->checkpoints);
    if (n > 0) {
        table(html, report, n);
        fl_html_add(html, "<p class=\"note\">Stall: training stood still while the state was "
                          "copied. Durable: on the disk, with its manifest.</p>\n");
    }
    fl_page_section_end(html);
}
