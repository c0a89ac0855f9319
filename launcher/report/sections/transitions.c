/* Transitions: what was predicted of each and what came of it, and what its parts took. */
#include "launcher/report/sections/sections.h"

#include "device/text/size_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 200 };

/* One transition; the events that were missing are NULL. */
typedef struct change {
    const json_t *prepare, *done, *measured, *cancelled;
    fl_grid before, after;
    int64_t generation;
} change;

typedef struct changes {
    change of[ROWS_MAX];
    int n;
    int64_t n_more;
} changes;

/* ---- gathering ---- */

static int64_t generation_of(const json_t *event, const char *key)
{
    return fl_line_whole(event, key, 0, INT64_C(1) << 40, -1);
}

/* The newest transition to this generation; NULL: none is kept. */
static change *find_change(changes *all, int64_t generation)
{
    for (int i = all->n - 1; i >= 0; i--) {
        if (all->of[i].generation == generation) {
            return &all->of[i];
        }
    }
    return NULL;
}

static change *begin_change(changes *all, int64_t generation, fl_grid now)
{
    if (all->n == ROWS_MAX) {
        all->n_more++;
        return NULL;
    }
    all->of[all->n] = (change){.generation = generation, .before = now, .after = now};
    return &all->of[all->n++];
}

static void take_prepare(changes *all, const json_t *event, fl_grid now)
{
    change *c = begin_change(all, generation_of(event, "next_generation"), now);
    if (c != NULL) {
        c->prepare = event;
        c->after = fl_report_plan_of(event, now);
    }
}

static void take_done(changes *all, const json_t *event, fl_grid *now)
{
    int64_t generation = generation_of(event, "generation");
    change *c = find_change(all, generation);
    fl_grid after = fl_report_plan_of(event, *now);
    if (c == NULL || c->done != NULL) {
        c = begin_change(all, generation, *now);
    }
    if (c != NULL) {
        c->done = event;
        c->after = after;
    }
    *now = after;
}

static void take_end(changes *all, const json_t *event, bool cancelled)
{
    change *c =
        find_change(all, generation_of(event, cancelled ? "next_generation" : "generation"));
    if (c != NULL && cancelled) {
        c->cancelled = event;
    } else if (c != NULL) {
        c->measured = event;
    }
}

static void gather_changes(const fl_report *report, changes *all)
{
    const fl_grid none = {0, 0, 0, 0};
    fl_grid now = fl_report_plan_of(fl_report_first(report, "plan.chosen"), none);
    all->n = 0;
    all->n_more = 0;
    for (int64_t i = 0; i < report->n_events; i++) {
        const json_t *event = report->event[i];
        if (fl_report_is(event, "transition.prepare")) {
            take_prepare(all, event, now);
        } else if (fl_report_is(event, "transition.done")) {
            take_done(all, event, &now);
        } else if (fl_report_is(event, "transition.measured")) {
            take_end(all, event, false);
        } else if (fl_report_is(event, "transition.cancelled")) {
            take_end(all, event, true);
        }
    }
}

/* ---- the text of one transition ---- */

static bool only_m(const change *c)
{
    fl_grid a = c->before;
    a.M = c->after.M;
    return c->cancelled == NULL && fl_grid_is_same(a, c->after);
}

static const char *why_of(const change *c)
{
    const char *why = fl_line_text(c->done != NULL ? c->done : c->prepare, "why");
    return c->cancelled == NULL ? why : fl_line_text(c->cancelled, "why");
}

static void change_cell(fl_html *html, const change *c)
{
    static const char name[] = "FKRM";
    int before[] = {c->before.F, c->before.K, c->before.R, c->before.M};
    int after[] = {c->after.F, c->after.K, c->after.R, c->after.M};
    fl_html_add(html, "<td class=\"text\">%s", c->cancelled != NULL ? "cancelled: " : "");
    int n = 0;
    for (int i = 0; i < 4; i++) {
        if (before[i] != after[i]) {
            char letter[2] = {name[i], '\0'};
            fl_html_add(html, "%s%s %d \xE2\x86\x92 %d", n++ == 0 ? "" : ", ", letter, before[i],
                        after[i]);
        }
    }
    fl_html_add(html, "%s</td>", n == 0 ? "same plan" : "");
}

static void predicted_row(fl_html *html, const change *c)
{
    double before = fl_line_real(c->done, "step_ms");
    double predicted = fl_line_real(c->done, "predicted_step_ms");
    double measured = fl_line_real(c->measured, "measured_step_ms");
    bool both = predicted > 0 && isfinite(measured);
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(c->done, "step"), 0);
    change_cell(html, c);
    fl_page_number(html, before > 0 ? before : (double)NAN, 1); /* 0: no step was measured yet */
    fl_page_number(html, predicted > 0 ? predicted : (double)NAN, 1);
    fl_page_number(html, measured, 1);
    if (both) {
        fl_html_add(html, "<td>%s%.0f %%</td></tr>\n", measured >= predicted ? "+" : "",
                    100 * (measured / predicted - 1));
    } else {
        fl_html_add(html, "<td>-</td></tr>\n");
    }
    fl_html_add(html, "<tr class=\"why\"><td></td><td colspan=\"5\">%s</td></tr>\n", why_of(c));
}

static void parts_row(fl_html *html, const change *c, bool has_comm)
{
    static const char *const part[] = {"prepare_ms", "wait_ms",   "vote_ms",
                                       "migrate_ms", "switch_ms", "stall_ms"};
    char text[FL_NUMBER_BYTES];
    double bytes = fl_line_real(c->done, "moved_bytes"), ms = fl_line_real(c->done, "migrate_ms");
    fl_html_add(html, "<tr>");
    fl_page_number(html, fl_line_real(c->done, "step"), 0);
    for (int i = 0; i < 6; i++) {
        fl_page_number(html, fl_line_real(c->done, part[i]), 2);
    }
    fl_html_add(html, "<td>%s</td>", fl_size_text(bytes, text));
    bool moved = bytes > 0 && ms > 0;
    fl_html_add(html, "<td>%s%s</td>", moved ? fl_size_text(bytes / ms * 1e3, text) : "-",
                moved ? "/s" : "");
    fl_html_add(html, "<td>%s</td>", fl_size_text(fl_line_real(c->done, "kept_bytes"), text));
    if (has_comm) {
        const char *comm = fl_line_text(c->done, "comm");
        fl_html_add(html, "<td class=\"text\">%s</td>", *comm == '\0' ? "-" : comm);
        fl_page_number(html, fl_line_real(c->done, "comm_ms"), 2);
    }
    fl_html_add(html, "</tr>\n");
}

/* ---- tables ---- */

static void predicted_table(fl_html *html, const changes *all, bool trials)
{
    fl_html_add(html, "<div class=\"scroll\"><table><caption>Milliseconds per step</caption>\n"
                      "<tr><th>at step</th><th class=\"text\">change</th><th>before</th>"
                      "<th>predicted</th><th>measured</th><th>off by</th></tr>\n");
    for (int i = 0; i < all->n; i++) {
        if (only_m(&all->of[i]) == trials) {
            predicted_row(html, &all->of[i]);
        }
    }
    fl_html_add(html, "</table></div>\n");
}

/* Of a run on CPUs, NCCL has none. */
static bool some_have_comm(const changes *all)
{
    bool any = false;
    for (int i = 0; i < all->n; i++) {
        const char *comm = all->of[i].done == NULL ? "" : fl_line_text(all->of[i].done, "comm");
        any = any || (comm[0] != '\0' && strcmp(comm, "none") != 0);
    }
    return any;
}

static void parts_table(fl_html *html, const changes *all)
{
    bool has_comm = some_have_comm(all);
    fl_html_add(html,
                "<div class=\"scroll\"><table><caption>Time of each part, ms</caption>\n"
                "<tr><th>at step</th><th>prepare</th><th>wait</th><th>vote</th><th>migrate</th>"
                "<th>switch</th><th>stall</th><th>moved</th><th>rate</th><th>kept in place</th>");
    if (has_comm) {
        fl_html_add(html, "<th class=\"text\">NCCL's communicators</th><th>opened in</th>");
    }
    fl_html_add(html, "</tr>\n");
    for (int i = 0; i < all->n; i++) {
        if (!only_m(&all->of[i]) && all->of[i].done != NULL) {
            parts_row(html, &all->of[i], has_comm);
        }
    }
    fl_html_add(html,
                "</table></div>\n<p class=\"note\">Training continues during prepare, in which "
                "communicators are opened. The stall, "
                "in which training is paused, is the sum of wait, vote, migrate and switch.</p>\n");
}

void fl_page_changes(fl_html *html, const fl_report *report)
{
    changes all;
    int n_trials = 0;
    gather_changes(report, &all);
    for (int i = 0; i < all.n; i++) {
        n_trials += only_m(&all.of[i]);
    }
    if (all.n == 0) {
        return;
    }
    fl_page_section(html, "How the plan changed");
    if (n_trials < all.n) {
        predicted_table(html, &all, false);
        parts_table(html, &all);
    }
    if (n_trials > 0) {
        fl_html_add(html, "<details><summary>Other micro-batches tried: %d</summary>", n_trials);
        predicted_table(html, &all, true);
        fl_html_add(html, "</details>\n");
    }
    if (all.n_more > 0) {
        fl_html_add(html, "<p class=\"note\">%lld more transitions are in events.jsonl.</p>\n",
                    (long long)all.n_more);
    }
    fl_page_section_end(html);
}
