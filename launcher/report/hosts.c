/* The hosts of a run on several ones: which there were, and when each joined or left. */
#include "launcher/report/page.h"

#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 200 };

static bool is_row(const json_t *event)
{
    return strncmp(fl_line_text(event, "event"), "host.", strlen("host.")) == 0;
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

static void list_hosts(fl_html *html, const json_t *hosts)
{
    const json_t *host;
    size_t i;
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th class=\"text\">host</th><th class="
                      "\"text\">address</th><th>workers</th><th class=\"text\">layer costs</th>"
                      "</tr>\n");
    json_array_foreach(hosts, i, host)
    {
        if (i < ROWS_MAX) {
            fl_html_add(html, "<tr>");
            host_cells(html, host);
            fl_page_cell(html, fl_line_text(host, "profile"));
            fl_html_add(html, "</tr>\n");
        }
    }
    fl_html_add(html, "</table></div>\n");
}

static void list_events(fl_html *html, const fl_report *report)
{
    int n = 0;
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>time</th><th>step</th><th class="
                      "\"text\">host</th><th class=\"text\">address</th><th>workers</th><th class="
                      "\"text\">event</th><th class=\"text\">reason</th></tr>\n");
    for (int64_t i = 0; i < report->n_events; i++) {
        if (is_row(report->event[i]) && n++ < ROWS_MAX) {
            event_row(html, report->event[i]);
        }
    }
    fl_html_add(html, "</table></div>\n");
    if (n > ROWS_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d; events.jsonl has all of them.</p>\n",
                    ROWS_MAX);
    }
}

void fl_page_hosts(fl_html *html, const fl_report *report)
{
    const json_t *hosts = json_object_get(fl_report_first(report, "run.started"), "hosts");
    if (json_array_size(hosts) == 0) {
        return;
    }
    fl_page_section(html, "Hosts");
    list_hosts(html, hosts);
    list_events(html, report);
    fl_page_section_end(html);
}
