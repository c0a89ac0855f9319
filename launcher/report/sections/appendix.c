/* What the page was made from: the events, the job, and what of it could not be read. */
#include "launcher/report/sections/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 3000, DETAIL_BYTES = 700 };

/* The event's other fields as JSON, without what stands in columns of its own. */
static void detail_cell(fl_html *html, const json_t *event)
{
    static const char *const apart[] = {"time", "wall", "event", "generation"};
    json_t *rest = json_copy((json_t *)event);
    for (int i = 0; i < 4; i++) {
        json_object_del(rest, apart[i]);
    }
    char *text = json_dumps(rest, JSON_REAL_PRECISION(6));
    json_decref(rest);
    fl_html_add(html, "<td class=\"all\">");
    if (text != NULL && strlen(text) > 2) {
        size_t n = strlen(text + 1) - 1; /* without the braces */
        bool cut = n > DETAIL_BYTES;
        n = cut ? DETAIL_BYTES : n;
        while (cut && n > 0 && (text[n + 1] & 0xC0) == 0x80) {
            n--; /* not within a character */
        }
        fl_html_text(html, text + 1, n);
        fl_html_add(html, "%s", cut ? " ..." : "");
    }
    fl_html_add(html, "</td>");
    free(text);
}

static void events(fl_html *html, const fl_report *report)
{
    int64_t shown = report->n_events > ROWS_MAX ? ROWS_MAX : report->n_events;
    int64_t all = report->n_events + report->n_left_out;
    fl_html_add(html, "<details><summary>Events: %lld</summary>\n", (long long)all);
    if (shown < all) {
        fl_html_add(html, "<p class=\"note\">The last %lld are shown; events.jsonl has all.</p>\n",
                    (long long)shown);
    }
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>at, s</th><th class=\"text\">event"
                      "</th><th>generation</th><th class=\"text\">content</th></tr>\n");
    for (int64_t i = report->n_events - shown; i < report->n_events; i++) {
        const json_t *event = report->event[i];
        fl_html_add(html, "<tr>");
        fl_page_number(html, fl_line_real(event, "time"), 3);
        fl_page_cell(html, fl_line_text(event, "event"));
        fl_page_number(html, fl_line_real(event, "generation"), 0);
        detail_cell(html, event);
        fl_html_add(html, "</tr>\n");
    }
    fl_html_add(html, "</table></div></details>\n");
}

static void job(fl_html *html, const fl_report *report)
{
    fl_html_add(html, "<details><summary>The job, every field</summary>");
    if (report->job_text != NULL) {
        fl_html_add(html, "<pre>");
        fl_html_text(html, report->job_text, report->job_bytes);
        fl_html_add(html, "</pre>");
    }
    if (!report->has_job) {
        fl_html_add(html, "<p>It could not be read: %s</p>", report->job_why);
    }
    fl_html_add(html, "</details>\n");
}

/* ---- what could not be read ---- */

static void file_line(fl_html *html, const fl_lines *file)
{
    if (file->missing[0] != '\0') {
        fl_html_add(html, "<p>%s could not be read: %s.</p>\n", file->name, file->missing);
    }
    if (file->n_bad > 0) {
        fl_html_add(html,
                    "<p>%s: %lld of %lld lines could not be read; the first is line %lld: "
                    "%s.</p>\n",
                    file->name, (long long)file->n_bad, (long long)file->n,
                    (long long)file->first_bad, file->why);
    }
}

static void gaps(fl_html *html, const fl_report *report)
{
    file_line(html, &report->steps_file);
    file_line(html, &report->events_file);
}

void fl_page_raw(fl_html *html, const fl_report *report)
{
    fl_page_section(html, "Sources of this page");
    gaps(html, report);
    events(html, report);
    job(html, report);
    fl_page_section_end(html);
}
