/* The hosts of a run on several ones: which there were, and when each joined or left. */
#include "launcher/report/sections/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 200 };

static bool is_same(const json_t *a, const json_t *b)
{
    return strcmp(fl_line_text(a, "host"), fl_line_text(b, "host")) == 0 &&
           strcmp(fl_line_text(a, "address"), fl_line_text(b, "address")) == 0;
}

/* Whether the host of event[i] was with the run before it. The agents of all hosts connect again
 * when a run goes back for a loss; a run that had ended begins without them. */
static bool is_member(const fl_report *report, int64_t i)
{
    const json_t *host = report->event[i];
    for (i--; i >= 0; i--) {
        const json_t *event = report->event[i];
        if (fl_report_is(event, "run.resumed") && !fl_page_is_return(event)) {
            return false;
        }
        bool joined = fl_report_is(event, "host.joined");
        bool left = fl_report_is(event, "host.lost") || fl_report_is(event, "host.drained");
        if ((joined || left) && is_same(event, host)) {
            return joined;
        }
    }
    return false;
}

static bool is_row(const fl_report *report, int64_t i)
{
    const json_t *event = report->event[i];
    return strncmp(fl_line_text(event, "event"), "host.", strlen("host.")) == 0 &&
           !(fl_report_is(event, "host.joined") && is_member(report, i));
}

static void host_cells(fl_html *html, const json_t *host)
{
    double first = fl_line_real(host, "first_worker"), n = fl_line_real(host, "workers");
    fl_page_cell(html, fl_line_text(host, "host"));
    fl_page_cell(html, fl_line_text(host, "address"));
    if (n > 1) {
        fl_html_add(html, "<td>%.0f to %.0f</td>", first, first + n - 1);
    } else {
        fl_page_number(html, first, 0);
    }
}

static void event_row(fl_html *html, const json_t *event)
{
    char text[FL_NUMBER_BYTES];
    const char *why = fl_line_text(event, "why");
    fl_html_add(html, "<tr><td>%s</td>", fl_html_duration(fl_line_real(event, "time"), text));
    fl_page_number(html, fl_line_real(event, "step"), 0);
    host_cells(html, event);
    fl_page_cell(html, fl_line_text(event, "event") + strlen("host."));
    fl_page_cell(html, why[0] == '\0' ? "-" : why);
    fl_html_add(html, "</tr>\n");
}

/* An event of the record, and when it happened. */
typedef struct event_place {
    double time_s;
    int64_t at;
} event_place;

/* Each host once for each address that it has had. */
typedef struct host_rows {
    const json_t *row[ROWS_MAX];
    int n;
} host_rows;

static bool is_listed(const host_rows *rows, const json_t *host)
{
    for (int i = 0; i < rows->n; i++) {
        if (is_same(rows->row[i], host)) {
            return true;
        }
    }
    return false;
}

static void add_row(host_rows *rows, const json_t *host)
{
    bool named = fl_line_text(host, "host")[0] != '\0';
    if (named && rows->n < ROWS_MAX && !is_listed(rows, host)) {
        rows->row[rows->n++] = host;
    }
}

/* Those with which the run was started or resumed, and those that joined it by hand. */
static void find_hosts(const fl_report *report, host_rows *rows)
{
    for (int64_t i = 0; i < report->n_events; i++) {
        const json_t *event = report->event[i], *host;
        size_t k;
        if (fl_report_is(event, "host.joined")) {
            add_row(rows, event);
        } else if (fl_report_is(event, "run.started") || fl_report_is(event, "run.resumed")) {
            json_array_foreach(json_object_get(event, "hosts"), k, host)
            {
                add_row(rows, host);
            }
        }
    }
}

static void list_hosts(fl_html *html, const host_rows *rows)
{
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th class=\"text\">host</th><th class="
                      "\"text\">address</th><th>ranks</th><th class=\"text\">layer costs</th>"
                      "</tr>\n");
    for (int i = 0; i < rows->n; i++) {
        const char *profile = fl_line_text(rows->row[i], "profile");
        fl_html_add(html, "<tr>");
        host_cells(html, rows->row[i]);
        fl_page_cell(html, profile[0] == '\0' ? "-" : profile);
        fl_html_add(html, "</tr>\n");
    }
    fl_html_add(html, "</table></div>\n");
}

/* Events that are written again after a return have their first time. */
static int by_time(const void *a, const void *b)
{
    const event_place *x = a, *y = b;
    return x->time_s != y->time_s ? (x->time_s > y->time_s) - (x->time_s < y->time_s)
                                  : (x->at > y->at) - (x->at < y->at);
}

static void list_events(fl_html *html, const fl_report *report)
{
    event_place place[ROWS_MAX];
    int n = 0, n_shown;
    for (int64_t i = 0; i < report->n_events; i++) {
        if (is_row(report, i) && n++ < ROWS_MAX) {
            place[n - 1] = (event_place){fl_line_real(report->event[i], "time"), i};
        }
    }
    n_shown = n < ROWS_MAX ? n : ROWS_MAX;
    qsort(place, (size_t)n_shown, sizeof *place, by_time);
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>time</th><th>step</th><th class="
                      "\"text\">host</th><th class=\"text\">address</th><th>ranks</th><th class="
                      "\"text\">event</th><th class=\"text\">reason</th></tr>\n");
    for (int i = 0; i < n_shown; i++) {
        event_row(html, report->event[place[i].at]);
    }
    fl_html_add(html, "</table></div>\n");
    if (n > ROWS_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d; events.jsonl has all of them.</p>\n",
                    ROWS_MAX);
    }
}

void fl_page_hosts(fl_html *html, const fl_report *report)
{
    host_rows rows = {.n = 0};
    find_hosts(report, &rows);
    if (rows.n == 0) {
        return;
    }
    fl_page_section(html, "Hosts");
    list_hosts(html, &rows);
    list_events(html, report);
    fl_page_section_end(html);
}
