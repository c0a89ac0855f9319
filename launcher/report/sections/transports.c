/* How workers exchange data: which pairs use NCCL, why others do not, and what its communicators
 * took to open. */
#include "launcher/report/sections/sections.h"

enum { ROWS_MAX = 100 };

static void put_host_pairs(fl_html *html, const json_t *event)
{
    const json_t *list = json_object_get(event, "host_pairs"), *line;
    size_t i;
    json_array_foreach(list, i, line)
    {
        const char *text = json_string_value(line);
        fl_html_add(html, "%s%s", i == 0 ? "" : "; ", text == NULL ? "?" : text);
    }
}

static void generation_row(fl_html *html, const json_t *event)
{
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "of_generation"), 0);
    fl_page_number(html, fl_line_real(event, "nccl_pairs"), 0);
    fl_page_number(html, fl_line_real(event, "pairs"), 0);
    fl_html_add(html, "<td class=\"text\">%s</td>", fl_line_text(event, "comm"));
    fl_page_number(html, fl_line_real(event, "comm_ms"), 2);
    const char *registration = fl_line_text(event, "registration");
    fl_html_add(html, "<td class=\"text\">%s</td><td class=\"text\">",
                registration == NULL ? "" : registration);
    put_host_pairs(html, event);
    fl_html_add(html, "</td></tr>\n");
}

void fl_page_transports(fl_html *html, const fl_report *report)
{
    const json_t *event;
    int64_t at = 0;
    int n = 0;
    if (fl_report_first(report, "transport.chosen") == NULL) {
        return;
    }
    fl_page_section(html, "How workers exchange data");
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>generation</th><th>pairs over NCCL"
                      "</th><th>of</th><th class=\"text\">communicators</th><th>opened in, ms</th>"
                      "<th class=\"text\">registered buffers</th>"
                      "<th class=\"text\">through host memory, because</th></tr>\n");
    while (n < ROWS_MAX && (event = fl_report_next(report, "transport.chosen", &at)) != NULL) {
        generation_row(html, event);
        n++;
    }
    fl_html_add(html, "</table></div>\n");
    if (n == ROWS_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d; events.jsonl has all of them.</p>\n", n);
    }
    fl_page_section_end(html);
}
