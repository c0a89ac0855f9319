/* The cache of what frozen blocks made of each sample. */
#include "launcher/report/sections/sections.h"

#include "device/text/size_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 3, TIERS = 2, ROWS_MAX = 200 };

static const char *const part_key[PARTS] = {"hits", "upgrades", "misses"};
static const char *const tier_key[TIERS] = {"device_hits", "pinned_hits"}; /* of the hits */
static const char *const part_name[PARTS] = {"read", "read and computed further", "computed"};
static const char *const part_look[PARTS] = {"p4", "p2", "p6"};
static const char *const kinds[] = {"cache.decided", "cache.used"};

/* The epochs that have an event of the cache. */
static bool epochs_of(const fl_report *report, int64_t *first, int64_t *last)
{
    bool any = false;
    for (int k = 0; k < 2; k++) {
        const json_t *event;
        int64_t at = 0;
        while ((event = fl_report_next(report, kinds[k], &at)) != NULL) {
            int64_t epoch = fl_line_whole(event, "epoch", 0, INT64_C(1) << 50, -1);
            if (epoch >= 0) {
                *first = !any || epoch < *first ? epoch : *first;
                *last = !any || epoch > *last ? epoch : *last;
                any = true;
            }
        }
    }
    return any;
}

static fl_columns columns_of(const fl_report *report)
{
    int64_t first = 0, last = 0;
    epochs_of(report, &first, &last);
    fl_columns columns = fl_columns_of(first, last, PARTS);
    for (int k = 0; k < 2; k++) {
        const json_t *event;
        int64_t at = 0;
        while ((event = fl_report_next(report, kinds[k], &at)) != NULL) {
            int64_t epoch = fl_line_whole(event, "epoch", 0, INT64_C(1) << 50, -1);
            int column = fl_columns_find(&columns, epoch);
            for (int p = 0; p < PARTS && column >= 0; p++) {
                columns.n[column] = 1; /* sums, not means: several workers tell of an epoch */
                columns.part[column][p] +=
                    (double)fl_line_whole(event, part_key[p], 0, INT64_C(1) << 50, 0);
            }
        }
    }
    return columns;
}

static void draw_cache(fl_html *html, const fl_report *report, int width)
{
    fl_columns columns = columns_of(report);
    fl_chart c = fl_page_plot(html, width, 190);
    c.x = fl_axis_fit((double)columns.first + 0.5, (double)columns.last + 1.5,
                      width >= FL_PAGE_WIDE ? 12 : 6, false, true);
    c.y = fl_axis_fit(0, fl_columns_highest(&columns), 4, true, true);
    fl_drawing_open(html, width, 190, "Samples through the frozen blocks, by epoch");
    fl_chart_y_axis(&c, "");
    fl_columns_draw(&c, &columns, part_look, part_name, "");
    fl_chart_x_axis(&c, "epoch");
    fl_drawing_close(html);
}

static void row(fl_html *html, const json_t *event, bool decided, bool tiers)
{
    char text[FL_NUMBER_BYTES];
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "step"), 0);
    fl_page_number(html, fl_line_real(event, "rank"), 0);
    fl_page_cell(html,
                 decided ? (strcmp(fl_line_text(event, "state"), "on") == 0 ? "use it" : "leave it")
                         : fl_line_text(event, "state"));
    fl_page_number(html, fl_line_real(event, "f"), 0);
    for (int p = 0; p < PARTS; p++) {
        fl_page_number(html, fl_line_real(event, part_key[p]), 0);
    }
    for (int t = 0; tiers && t < TIERS; t++) {
        fl_page_number(html, fl_line_real(event, tier_key[t]), 0);
    }
    fl_page_number(html, fl_line_real(event, "read_us"), 2);
    fl_page_number(html, fl_line_real(event, "compute_us"), 1);
    fl_html_add(html, "<td>%s</td>", fl_size_text(fl_line_real(event, "used_bytes"), text));
    fl_page_number(html, fl_line_real(event, "evicted"), 0);
    fl_html_add(html, "</tr>\n");
}

static void table(fl_html *html, const fl_report *report, bool decided)
{
    const json_t *event;
    bool tiers = fl_report_first(report, "cache.tiers") != NULL;
    int64_t at = 0;
    int n = 0;
    fl_html_add(html,
                "<div class=\"scroll\"><table>\n<tr><th>step</th><th>worker</th>"
                "<th class=\"text\">%s</th><th>F</th><th>read</th><th>further</th>"
                "<th>computed</th>",
                decided ? "decided" : "state");
    if (tiers) {
        fl_html_add(html, "<th>read on GPU</th><th>read, pinned</th>");
    }
    fl_html_add(html, "<th>read, \xC2\xB5s</th><th>compute, \xC2\xB5s</th>"
                      "<th>holds</th><th>evicted</th></tr>\n");
    while (n < ROWS_MAX && (event = fl_report_next(report, kinds[!decided], &at)) != NULL) {
        row(html, event, decided, tiers);
        n++;
    }
    fl_html_add(html, "</table></div>\n");
    if (n == ROWS_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d; events.jsonl has all of them.</p>\n", n);
    }
}

static void opened(fl_html *html, const json_t *event)
{
    char memory[FL_NUMBER_BYTES], disk[FL_NUMBER_BYTES];
    const char *why_not = fl_line_text(event, "why_not");
    if (why_not[0] != '\0') {
        fl_html_add(html, "<p>There was no cache: %s.</p>\n", why_not);
        return;
    }
    fl_html_add(html, "<p>Policy <b>%s</b>; up to %s in memory and %s on disk.</p>\n",
                fl_line_text(event, "policy"),
                fl_size_text(fl_line_real(event, "memory_bytes"), memory),
                fl_size_text(fl_line_real(event, "disk_bytes"), disk));
}

/* The tiers that workers have for themselves. */
static void describe_tiers(fl_html *html, const fl_report *report)
{
    const json_t *event;
    int64_t at = 0;
    while ((event = fl_report_next(report, "cache.tiers", &at)) != NULL) {
        char device[FL_NUMBER_BYTES], pinned[FL_NUMBER_BYTES];
        const char *why_not = fl_line_text(event, "why_not");
        fl_html_add(html, "<p>Worker %.0f: %s in GPU memory, %s in pinned memory",
                    fl_line_real(event, "rank"),
                    fl_size_text(fl_line_real(event, "device_bytes"), device),
                    fl_size_text(fl_line_real(event, "pinned_bytes"), pinned));
        if (why_not[0] != '\0') {
            fl_html_add(html, " (%s)", why_not);
        }
        fl_html_add(html, ".</p>\n");
    }
}

void fl_page_cache(fl_html *html, const fl_report *report)
{
    const json_t *event = fl_report_first(report, "cache.opened");
    int64_t first, last;
    bool used = epochs_of(report, &first, &last);
    if (event == NULL && !used) {
        return;
    }
    fl_page_section(html, "The cache");
    if (event != NULL) {
        opened(html, event);
    }
    describe_tiers(html, report);
    if (used) {
        fl_page_key keys[PARTS];
        for (int p = 0; p < PARTS; p++) {
            keys[p] = (fl_page_key){part_look[p], part_name[p]};
        }
        fl_page_keys(html, keys, PARTS);
        char per[FL_COLUMNS_NOTE], note[512];
        fl_columns columns = columns_of(report);
        snprintf(
            note, sizeof note,
            "%s Samples of training and evaluation. Further: stored for fewer frozen blocks than "
            "now. The counts of an epoch that a plan did not finish are lost when it gives way "
            "to another.",
            fl_columns_note(&columns, "sum", per));
        fl_page_figure(html, report, "Samples through the frozen blocks", note, draw_cache);
        table(html, report, true);
        fl_html_add(html, "<details><summary>By epoch and worker as a table</summary>");
        table(html, report, false);
        fl_html_add(html, "</details>\n");
    } else {
        fl_html_add(html, "<p>The cache was not used, because no block was frozen.</p>\n");
    }
    fl_page_section_end(html);
}
