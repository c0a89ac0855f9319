/* Changes of the plan: what was predicted of each transition and what came of it, and what its
 * parts took; and the plans that a run got where it regrouped or continued without a transition. */
#include "launcher/report/sections/sections.h"

#include "device/text/size_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 200 };

/* One transition, or one change without a transition; the events that were missing are NULL. */
typedef struct change {
    const json_t *prepare, *done, *measured, *cancelled;
    const json_t *recovered, *resumed; /* of a change without a transition */
    const json_t *chosen;              /* the plan with which the run was resumed */
    fl_grid before, after;
    int64_t generation;
    bool over; /* no later event belongs to it: the run continued from an earlier state */
} change;

typedef struct changes {
    change of[ROWS_MAX];
    int n;
    int64_t n_more;
    fl_grid now;           /* the plan after the events so far */
    const json_t *resumed; /* the newest run.resumed so far; the next plan.chosen is its plan */
} changes;

/* ---- gathering ---- */

static int64_t generation_of(const json_t *event, const char *key)
{
    return fl_line_whole(event, key, 0, INT64_C(1) << 40, -1);
}

/* The newest transition to this generation, among those that are done or those that are still in
 * progress; NULL: none is kept. */
static change *find_change(changes *all, int64_t generation, bool done)
{
    for (int i = all->n - 1; i >= 0; i--) {
        change *c = &all->of[i];
        bool open = c->done == NULL && c->cancelled == NULL && !c->over;
        if (c->generation == generation && (done ? c->done != NULL : open)) {
            return c;
        }
    }
    return NULL;
}

static change *begin_change(changes *all, int64_t generation, fl_grid after)
{
    if (all->n == ROWS_MAX) {
        all->n_more++;
        return NULL;
    }
    all->of[all->n] = (change){.generation = generation, .before = all->now, .after = after};
    return &all->of[all->n++];
}

static void take_prepare(changes *all, const json_t *event)
{
    fl_grid after = fl_report_plan_of(event, all->now);
    change *c = begin_change(all, generation_of(event, "next_generation"), after);
    if (c != NULL) {
        c->prepare = event;
    }
}

static void take_done(changes *all, const json_t *event)
{
    int64_t generation = generation_of(event, "generation");
    change *c = find_change(all, generation, false);
    fl_grid after = fl_report_plan_of(event, all->now);
    if (c == NULL) {
        c = begin_change(all, generation, after);
    }
    if (c != NULL) {
        c->done = event;
        c->before = all->now;
        c->after = after;
    }
    all->now = after;
}

static void take_measured(changes *all, const json_t *event)
{
    change *c = find_change(all, generation_of(event, "generation"), true);
    if (c != NULL) {
        c->measured = event;
    }
}

static void take_cancelled(changes *all, const json_t *event)
{
    change *c = find_change(all, generation_of(event, "next_generation"), false);
    if (c != NULL) {
        c->cancelled = event;
    }
}

/* The transition.done before it has the same plan, unless the record lacks that event. */
static void take_recovered(changes *all, const json_t *event)
{
    fl_grid after = fl_report_plan_of(event, all->now);
    change *c = fl_grid_is_same(after, all->now) ? NULL : begin_change(all, -1, after);
    if (c != NULL) {
        c->recovered = event;
    }
    all->now = after;
}

static void take_resumed(changes *all, const json_t *event)
{
    all->resumed = event;
    for (int i = 0; i < all->n; i++) {
        all->of[i].over = true;
    }
}

/* The first plan of a run is no change. */
static void take_chosen(changes *all, const json_t *event)
{
    fl_grid after = fl_report_plan_of(event, all->now);
    bool changes_plan = all->resumed != NULL && !fl_grid_is_same(after, all->now);
    change *c = changes_plan ? begin_change(all, -1, after) : NULL;
    if (c != NULL) {
        c->resumed = all->resumed;
        c->chosen = event;
    }
    all->now = after;
}

static void gather_changes(const fl_report *report, changes *all)
{
    static const struct {
        const char *name;
        void (*take)(changes *all, const json_t *event);
    } takers[] = {
        {"transition.prepare", take_prepare},   {"transition.done", take_done},
        {"transition.measured", take_measured}, {"transition.cancelled", take_cancelled},
        {"run.recovered", take_recovered},      {"run.resumed", take_resumed},
        {"plan.chosen", take_chosen},
    };
    const fl_grid none = {0, 0, 0, 0};
    all->n = 0;
    all->n_more = 0;
    all->resumed = NULL;
    all->now = fl_report_plan_of(fl_report_first(report, "plan.chosen"), none);
    for (int64_t i = 0; i < report->n_events; i++) {
        for (size_t k = 0; k < sizeof takers / sizeof *takers; k++) {
            if (fl_report_is(report->event[i], takers[k].name)) {
                takers[k].take(all, report->event[i]);
            }
        }
    }
}

/* ---- the text of one transition ---- */

/* A transition to another M alone. A regroup has no transition.prepare. */
static bool is_trial(const change *c)
{
    fl_grid a = c->before;
    a.M = c->after.M;
    return c->prepare != NULL && c->cancelled == NULL && c->before.M != c->after.M &&
           fl_grid_is_same(a, c->after);
}

/* What a row of a transition that did not change the plan begins with. */
static const char *mark_of(const change *c)
{
    bool happened = c->done != NULL || c->recovered != NULL || c->resumed != NULL;
    return c->cancelled != NULL ? "cancelled: " : happened ? "" : "not finished: ";
}

/* The event that has the step of a change; NULL: it did not happen. */
static const json_t *place_of(const change *c)
{
    return c->done != NULL ? c->done : c->recovered != NULL ? c->recovered : c->resumed;
}

static void why_text(fl_html *html, const change *c)
{
    const json_t *event = c->cancelled != NULL  ? c->cancelled
                          : c->chosen != NULL   ? c->chosen
                          : place_of(c) != NULL ? place_of(c)
                                                : c->prepare;
    if (c->resumed != NULL) {
        fl_html_add(html, "the run %s %s: ",
                    fl_page_is_return(c->resumed) ? "goes back to" : "is resumed from",
                    fl_line_text(c->resumed, "checkpoint"));
    }
    if (c->cancelled != NULL && c->prepare != NULL) { /* what it was for, and why it was not done */
        fl_html_add(html, "%s; cancelled: ", fl_line_text(c->prepare, "why"));
    }
    fl_html_add(html, "%s", fl_line_text(event, "why"));
}

static void change_cell(fl_html *html, const change *c)
{
    static const char name[] = "FKRM";
    int before[] = {c->before.F, c->before.K, c->before.R, c->before.M};
    int after[] = {c->after.F, c->after.K, c->after.R, c->after.M};
    fl_html_add(html, "<td class=\"text\">%s", mark_of(c));
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
    fl_page_number(html, fl_line_real(place_of(c), "step"), 0);
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
    fl_html_add(html, "<tr class=\"why\"><td></td><td colspan=\"5\">");
    why_text(html, c);
    fl_html_add(html, "</td></tr>\n");
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
        if (is_trial(&all->of[i]) == trials) {
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

static bool has_parts(const change *c)
{
    return !is_trial(c) && c->done != NULL;
}

static void parts_table(fl_html *html, const changes *all)
{
    bool has_comm = some_have_comm(all), any = false;
    for (int i = 0; i < all->n; i++) {
        any = any || has_parts(&all->of[i]);
    }
    if (!any) {
        return;
    }
    fl_html_add(html,
                "<div class=\"scroll\"><table><caption>Time of each part, ms</caption>\n"
                "<tr><th>at step</th><th>prepare</th><th>wait</th><th>vote</th><th>migrate</th>"
                "<th>switch</th><th>stall</th><th>moved</th><th>rate</th><th>kept in place</th>");
    if (has_comm) {
        fl_html_add(html, "<th class=\"text\">NCCL's communicators</th><th>opened in</th>");
    }
    fl_html_add(html, "</tr>\n");
    for (int i = 0; i < all->n; i++) {
        if (has_parts(&all->of[i])) {
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
        n_trials += is_trial(&all.of[i]);
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
        fl_html_add(html, "<p class=\"note\">%lld more changes are in events.jsonl.</p>\n",
                    (long long)all.n_more);
    }
    fl_page_section_end(html);
}
