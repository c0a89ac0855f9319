/* CUDA graphs: how often stages were captured, launched and computed call by call, and which way
 * was chosen for each shape of micro-batches. */
#include "launcher/report/sections/sections.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 200 };

/* A worker's reports of one generation hold the counts so far: the last one has all of them. */
static bool is_last(const fl_report *report, const json_t *event, int64_t at)
{
    const json_t *later;
    double rank = fl_line_real(event, "rank"), generation = fl_line_real(event, "generation");
    while ((later = fl_report_next(report, "graphs", &at)) != NULL) {
        if (fl_line_real(later, "rank") == rank &&
            fl_line_real(later, "generation") == generation) {
            return false;
        }
    }
    return true;
}

static void count_row(fl_html *html, const json_t *event)
{
    static const char *const numbers[] = {"step",     "rank",     "generation",
                                          "captures", "launches", "calls"};
    fl_html_add(html, "<tr>");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fl_page_number(html, fl_line_real(event, numbers[i]), 0);
    }
    fl_page_cell(html, fl_line_text(event, "reason"));
    fl_html_add(html, "</tr>\n");
}

static void shape_row(fl_html *html, const json_t *event, const json_t *shape)
{
    static const char *const numbers[] = {"samples", "rows", "longest"};
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "rank"), 0);
    fl_page_number(html, fl_line_real(event, "generation"), 0);
    fl_page_cell(html, fl_line_text(shape, "for"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fl_page_number(html, fl_line_real(shape, numbers[i]), 0);
    }
    fl_page_cell(html, fl_line_text(shape, "way"));
    fl_page_number(html, fl_line_real(shape, "calls_us"), 1);
    fl_page_number(html, fl_line_real(shape, "graphs_us"), 1);
    fl_html_add(html, "</tr>\n");
}

typedef void put_event(fl_html *html, const json_t *event, int *n);

static void put_counts(fl_html *html, const json_t *event, int *n)
{
    count_row(html, event);
    ++*n;
}

static void put_shapes(fl_html *html, const json_t *event, int *n)
{
    const json_t *list = json_object_get(event, "by_shape");
    for (size_t i = 0; i < json_array_size(list) && *n < ROWS_MAX; i++) {
        shape_row(html, event, json_array_get(list, i));
        ++*n;
    }
}

static void put_rows(fl_html *html, const fl_report *report, put_event *put)
{
    const json_t *event;
    int64_t at = 0;
    int n = 0;
    while (n < ROWS_MAX && (event = fl_report_next(report, "graphs", &at)) != NULL) {
        if (is_last(report, event, at)) {
            put(html, event, &n);
        }
    }
    fl_html_add(html, "</table></div>\n");
    if (n == ROWS_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d; events.jsonl has all of them.</p>\n", n);
    }
}

void fl_page_graphs(fl_html *html, const fl_report *report)
{
    if (fl_report_first(report, "graphs") == NULL) {
        return;
    }
    fl_page_section(html, "CUDA graphs");
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>up to step</th><th>worker</th>"
                      "<th>generation</th><th>captures</th><th>launches</th><th>call by call</th>"
                      "<th class=\"text\">given up, because</th></tr>\n");
    put_rows(html, report, put_counts);
    fl_html_add(html, "<div class=\"scroll\"><table>\n<tr><th>worker</th><th>generation</th>"
                      "<th class=\"text\">for</th><th>samples</th><th>rows</th><th>longest</th>"
                      "<th class=\"text\">computed by</th><th>calls, \xC2\xB5s</th>"
                      "<th>graphs, \xC2\xB5s</th></tr>\n");
    put_rows(html, report, put_shapes);
    fl_page_section_end(html);
}
