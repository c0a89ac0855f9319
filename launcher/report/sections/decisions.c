/* What was decided, from which numbers. */
#include "launcher/report/sections/sections.h"

#include "device/text/size_text.h"

#include <stdio.h>

enum { ROWS_MAX = 200, CANDIDATES_MAX = 24 };

/* ---- the first plan ---- */

static void candidate_row(fl_html *html, const json_t *c)
{
    char text[FL_NUMBER_BYTES];
    const char *why_not = fl_line_text(c, "why_not");
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(c, "k"), 0);
    fl_page_number(html, fl_line_real(c, "r"), 0);
    fl_page_number(html, fl_line_real(c, "m"), 0);
    fl_page_number(html, why_not[0] == '\0' ? fl_line_real(c, "step_ms") : 1e99, 1);
    fl_page_number(html, why_not[0] == '\0' ? 100 * fl_line_real(c, "bubble") : 1e99, 1);
    fl_html_add(html, "<td>%s</td><td class=\"text\">%s</td></tr>\n",
                fl_size_text(fl_line_real(c, "memory_bytes"), text), why_not);
}

static void first_plan(fl_html *html, const json_t *event)
{
    const json_t *all = json_object_get(event, "candidates"), *candidate;
    size_t i;
    fl_html_add(html,
                "<details><summary>The first plan and its alternatives</summary>\n"
                "<p>%s: %s.</p><div class=\"scroll\"><table>\n"
                "<tr><th>K</th><th>R</th><th>M</th><th>predicted step, ms</th><th>bubble, %%</th>"
                "<th>memory of the largest stage</th><th class=\"text\">why not</th></tr>\n",
                fl_line_text(event, "plan"), fl_line_text(event, "why"));
    json_array_foreach(all, i, candidate)
    {
        if (i < CANDIDATES_MAX) {
            candidate_row(html, candidate);
        }
    }
    fl_html_add(html, "</table></div>\n");
    if (json_array_size(all) > CANDIDATES_MAX) {
        fl_html_add(html, "<p class=\"note\">The first %d of %d.</p>\n", (int)CANDIDATES_MAX,
                    (int)json_array_size(all));
    }
    fl_html_add(html, "</details>\n");
}

/* ---- freezing ---- */

static void decision_row(fl_html *html, const json_t *event)
{
    char what[64];
    if (fl_report_is(event, "freeze.decided")) {
        snprintf(what, sizeof what, "freeze: F %d \xE2\x86\x92 %d",
                 (int)fl_line_whole(event, "f", 0, 1 << 20, 0),
                 (int)fl_line_whole(event, "f_next", 0, 1 << 20, 0));
    } else {
        snprintf(what, sizeof what, "plan: %.40s", fl_line_text(event, "choice"));
    }
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(event, "step"), 0);
    fl_page_cell(html, fl_report_is(event, "tune.done") ? "micro-batches" : what);
    fl_html_add(html, "<td class=\"why\">%s</td></tr>\n", fl_line_text(event, "why"));
}

static bool is_decision(const json_t *event)
{
    return fl_report_is(event, "freeze.decided") || fl_report_is(event, "plan.considered") ||
           fl_report_is(event, "tune.done");
}

static void later(fl_html *html, const fl_report *report)
{
    int n = 0;
    fl_html_add(html, "<details><summary>Decisions during the run</summary>"
                      "<div class=\"scroll\"><table>\n<tr><th>after step</th><th class=\"text\">"
                      "what</th><th class=\"text\">why</th></tr>\n");
    for (int64_t i = 0; i < report->n_events && n < ROWS_MAX; i++) {
        if (is_decision(report->event[i])) {
            decision_row(html, report->event[i]);
            n++;
        }
    }
    fl_html_add(html, "</table></div></details>\n");
}

void fl_page_decisions(fl_html *html, const fl_report *report)
{
    const json_t *chosen = fl_report_first(report, "plan.chosen");
    bool any = false;
    for (int64_t i = 0; i < report->n_events && !any; i++) {
        any = is_decision(report->event[i]);
    }
    if (chosen == NULL && !any) {
        return;
    }
    fl_page_section(html, "Why");
    if (chosen != NULL) {
        first_plan(html, chosen);
    }
    if (any) {
        later(html, report);
    }
    fl_page_section_end(html);
}
