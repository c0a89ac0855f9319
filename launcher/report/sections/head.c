/* The head of the page: what was run, how it ended, what came of it. */
#include "launcher/report/sections/sections.h"

#include "control/state/options.h"
#include "device/text/plural.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what came of it ---- */

/* The result that the run's last word tells, or that its steps and epochs tell so far. */
typedef struct outcome {
    int64_t n_skipped;
    double steps, seconds, samples_per_s, train_loss, test_loss, mfu;
    double metric[FL_METRICS_MAX]; /* of the last evaluation on test samples, */
    double tested;                 /* and the steps that were done before it; NAN: not known */
} outcome;

static const json_t *last_word(const fl_report *report)
{
    static const char *const ends[] = {"run.finished", "run.stopped", "run.failed"};
    for (int i = 0; i < 3; i++) {
        const json_t *event = fl_report_last(report, ends[i]);
        if (event != NULL) {
            return event;
        }
    }
    return NULL;
}

static double either(double value, double otherwise)
{
    return isfinite(value) ? value : otherwise;
}

static double last_tested(const fl_report *report)
{
    int64_t at = 0;
    const json_t *event;
    double tested = (double)NAN;
    while ((event = fl_report_next(report, "evaluation", &at)) != NULL) {
        if (json_object_get(event, "test_loss") != NULL) {
            tested = fl_line_real(event, "step") + 1;
        }
    }
    return tested;
}

static outcome outcome_of(const fl_report *report)
{
    const json_t *over = last_word(report), *epoch = fl_report_last(report, "epoch.finished");
    outcome o = {.samples_per_s = (double)NAN,
                 .train_loss = (double)NAN,
                 .test_loss = (double)NAN,
                 .mfu = (double)NAN};
    char key[FL_METRIC_KEY_BYTES];
    double samples = 0;
    for (int64_t i = 0; i < report->n_steps; i++) {
        samples += (double)report->step[i].samples;
        o.n_skipped += report->step[i].skipped;
    }
    if (report->n_steps > 0) {
        const fl_report_step *last = &report->step[report->n_steps - 1];
        o.steps = (double)last->step + 1;
        o.seconds = last->end_s;
        o.samples_per_s = o.seconds > 0 ? samples / o.seconds : (double)NAN;
        o.train_loss = last->loss;
    }
    o.steps = either(fl_line_real(over, "steps"), o.steps);
    o.seconds = either(fl_line_real(over, "seconds"), o.seconds);
    o.samples_per_s = either(fl_line_real(over, "samples_per_s"), o.samples_per_s);
    o.train_loss = either(fl_line_real(over, "train_loss"),
                          either(fl_line_real(epoch, "train_loss"), o.train_loss));
    o.test_loss = either(fl_line_real(over, "test_loss"), fl_line_real(epoch, "test_loss"));
    for (int i = 0; i < report->n_metrics; i++) {
        fl_report_metric_key("test", &report->metric[i], key);
        o.metric[i] = either(fl_line_real(over, key), fl_line_real(epoch, key));
    }
    o.mfu = fl_line_real(epoch, "mfu");
    o.tested = last_tested(report);
    return o;
}

/* ---- facts ---- */

static void fact(fl_html *html, const char *look, const char *name, const char *value,
                 const char *small)
{
    fl_html_add(html, "<div class=\"%s\"><dt>%s</dt><dd>%s", look, name, value);
    if (small[0] != '\0') {
        fl_html_add(html, "<small>%s</small>", small);
    }
    fl_html_add(html, "</dd></div>\n");
}

/* The metrics of the last evaluation, each with its own name; its loss below the first of them. */
static void evaluation_facts(fl_html *html, const fl_report *report, const outcome *o)
{
    char text[FL_NUMBER_BYTES], more[FL_NUMBER_BYTES], small[96], name[FL_METRIC_KEY_BYTES];
    char after[FL_COUNT_BYTES + 16] = "", steps[FL_COUNT_BYTES];
    int n = 0;
    if (o->tested > 0 && o->tested < o->steps) { /* the run was stopped later */
        snprintf(after, sizeof after, "after %s", fl_count((int64_t)o->tested, "step", steps));
    }
    snprintf(small, sizeof small, "test loss %s%s%s", fl_html_number(o->test_loss, 4, more),
             after[0] == '\0' ? "" : ", ", after);
    for (int i = 0; i < report->n_metrics; i++) {
        bool is_share = report->metric[i].is_share;
        snprintf(name, sizeof name, "Test %s", report->metric[i].name);
        if (isfinite(o->metric[i])) {
            fl_html_number((is_share ? 100 : 1) * o->metric[i], is_share ? 2 : 4, more);
            snprintf(text, sizeof text, "%s%s", more, is_share ? " %" : "");
            fact(html, "one", name, text, n++ == 0 ? small : "");
        }
    }
    if (n == 0 && isfinite(o->test_loss)) {
        fact(html, "one", "Test loss", fl_html_number(o->test_loss, 4, text), after);
    }
}

/* Because of losses, so far; NAN: not known. */
static double without_training_ms(const fl_report *report)
{
    double ms = (double)NAN;
    for (int64_t i = 0; i < report->n_events; i++) {
        ms = either(fl_line_real(report->event[i], "all_without_training_ms"), ms);
    }
    return ms;
}

static void result_facts(fl_html *html, const fl_report *report, const outcome *o, double wall_s)
{
    char text[FL_NUMBER_BYTES], more[FL_NUMBER_BYTES], small[96];
    evaluation_facts(html, report, o);
    if (isfinite(o->train_loss)) {
        fact(html, "one", "Training loss", fl_html_number(o->train_loss, 4, text), "");
    }
    if (o->n_skipped > 0) {
        fact(html, "one", "Skipped steps", fl_html_number((double)o->n_skipped, 0, text),
             "loss or gradient norm was not finite");
    }
    snprintf(small, sizeof small, "%s in all", fl_html_duration(wall_s, more));
    fact(html, "one", "Time in training", fl_html_duration(o->seconds, text), small);
    double lost_ms = without_training_ms(report);
    if (lost_ms > 0) {
        fact(html, "one", "Time without training", fl_html_duration(lost_ms * 1e-3, text),
             "after losses");
    }
    small[0] = '\0';
    if (isfinite(o->mfu)) {
        snprintf(small, sizeof small, "MFU at the end %.1f %%", 100 * o->mfu);
    }
    fact(html, "one", "Samples a second", fl_html_number(o->samples_per_s, 0, text), small);
}

/* What the ledger proves. */
static void ledger_fact(fl_html *html, const fl_report *report)
{
    const fl_ledger_proof *p = &report->ledger;
    char small[128], n[FL_NUMBER_BYTES];
    if (!report->has_ledger) {
        if (report->n_steps > 0) {
            fact(html, "one", "Samples once an epoch", "not known", report->ledger_why);
        }
        return;
    }
    fl_ledger_result result = fl_ledger_judge(p);
    bool live = fl_run_state_lives(report->run.state);
    snprintf(small, sizeof small, "of %s, in %lld %s begun",
             fl_html_number((double)p->n_samples, 0, n), (long long)p->n_epochs,
             p->n_epochs == 1 ? "epoch" : "epochs");
    fact(html, "one", "Samples once an epoch",
         result == FL_LEDGER_BROKEN     ? "NO"
         : result == FL_LEDGER_COMPLETE ? "proved"
         : p->n_epochs == 0             ? "-"
         : live                         ? "so far"
                                        : "not proved: the record is incomplete",
         small);
}

static void plan_facts(fl_html *html, const fl_report *report)
{
    const fl_grid none = {0, 0, 0, 0};
    char first[FL_PLAN_BYTES], last[FL_PLAN_BYTES];
    const json_t *chosen = fl_report_first(report, "plan.chosen");
    fl_grid plan = fl_report_plan_of(chosen, none);
    if (chosen == NULL && report->n_steps == 0) {
        return;
    }
    fl_grid begin = report->n_steps > 0 && chosen == NULL ? report->step[0].plan : plan;
    fl_grid end = report->n_steps > 0 ? report->step[report->n_steps - 1].plan : begin;
    if (fl_grid_is_same(begin, end)) {
        fact(html, "two", "Plan, from start to end", fl_page_plan(begin, first), "");
        return;
    }
    fl_html_add(html,
                "<div class=\"two\"><dt>Plan at the start and at the end</dt><dd>%s<br/>%s</dd>"
                "</div>\n",
                fl_page_plan(begin, first), fl_page_plan(end, last));
}

static void facts(fl_html *html, const fl_report *report)
{
    outcome o = outcome_of(report);
    char text[FL_NUMBER_BYTES], of[FL_NUMBER_BYTES], small[96] = "";
    double wall_s = report->n_events == 0
                        ? (double)NAN
                        : fl_line_real(report->event[report->n_events - 1], "time");
    fl_html_add(html, "<dl class=\"facts\">\n");
    result_facts(html, report, &o, wall_s);
    if (report->run.n_steps > 0) {
        snprintf(small, sizeof small, "of %s", fl_html_number((double)report->run.n_steps, 0, of));
    }
    fact(html, "one", "Steps", fl_html_number(o.steps, 0, text), small);
    ledger_fact(html, report);
    plan_facts(html, report);
    fl_html_add(html, "</dl>\n");
}

/* ---- what it was, how it ended ---- */

/* A time of an event: "2026-01-31 09:30:00 UTC".
 * field  "wall" (when it came), or "begun" of run.started (when the command began) */
enum { MOMENT_BYTES = 64 };
static const char *moment_of(const json_t *event, const char *field, char text[MOMENT_BYTES])
{
    const char *wall = fl_line_text(event, field);
    if (strlen(wall) < 19 || wall[10] != 'T') {
        snprintf(text, MOMENT_BYTES, "%s", wall[0] == '\0' ? "at an unknown time" : wall);
    } else {
        snprintf(text, MOMENT_BYTES, "%.10s %.8s UTC", wall, wall + 11);
    }
    return text;
}

static const char *moment(const json_t *event, char text[MOMENT_BYTES])
{
    return moment_of(event, "wall", text);
}

static void describe_model(fl_html *html, const fl_job *job, const json_t *started)
{
    const json_t *model = json_object_get(started, "model");
    char n[FL_NUMBER_BYTES];
    if (job->model.kind == FL_MODEL_VIT) {
        fl_html_add(html, "A vision transformer of %lld blocks (%lld wide, %lld heads)",
                    (long long)job->model.blocks, (long long)job->model.dim,
                    (long long)job->model.heads);
    } else if (job->model.kind == FL_MODEL_GPT2) {
        fl_html_add(html, "A GPT-2 of %lld blocks (%lld wide, %lld heads)",
                    (long long)job->model.blocks, (long long)job->model.dim,
                    (long long)job->model.heads);
    } else if (job->model.kind == FL_MODEL_PLUGIN) {
        fl_html_add(html, "The model of %s", job->model.plugin);
    } else if (job->model.kind == FL_MODEL_HF) {
        fl_html_add(html, "The Hugging Face model of %s", job->model.path);
    } else {
        fl_html_add(
            html, "A program's own model, %s, of %lld layers in %lld blocks (%s parameters)",
            fl_line_text(model, "name"), (long long)fl_line_whole(model, "layers", 0, INT_MAX, 0),
            (long long)fl_line_whole(model, "blocks", 0, INT_MAX, 0),
            fl_html_number(fl_line_real(model, "parameters"), 0, n));
    }
}

static bool has_host(const json_t *start, const char *name)
{
    const json_t *host;
    size_t i;
    json_array_foreach(json_object_get(start, "hosts"), i, host)
    {
        if (strcmp(fl_line_text(host, "host"), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Those of the start before this one that it does not have; a start on one host names none. */
static void name_missing_hosts(fl_html *html, const json_t *before, const json_t *start)
{
    const json_t *host;
    size_t i;
    int n = 0;
    json_array_foreach(json_object_get(before, "hosts"), i, host)
    {
        const char *name = fl_line_text(host, "host");
        if (json_object_get(start, "hosts") != NULL && !has_host(start, name)) {
            fl_html_add(html, "%s%s", n++ == 0 ? "; without " : ", ", name);
        }
    }
}

static void describe_resume(fl_html *html, const json_t *before, const json_t *resumed,
                            const char *from, const char *n)
{
    char text[MOMENT_BYTES], cut[FL_COUNT_BYTES];
    fl_html_add(html, "<p>Resumed %s from %s after %s (before: %s; ", moment(resumed, text), from,
                n, fl_line_text(resumed, "ended"));
    fl_html_add(
        html, "cut off: %s",
        fl_count(fl_line_whole(resumed, "cut_steps", 0, INT64_C(1) << 50, 0), "later step", cut));
    name_missing_hosts(html, before, resumed);
    fl_html_add(html, ").</p>\n");
}

/* By itself: it had not ended. */
static void describe_return(fl_html *html, const json_t *resumed, const char *from, const char *n)
{
    char text[MOMENT_BYTES], again[FL_COUNT_BYTES];
    bool from_start = strcmp(from, FL_RESUME_START) == 0;
    fl_html_add(html, "<p>Went back %s to %s%s%s: ", moment(resumed, text), from,
                from_start ? "" : " after ", from_start ? "" : n);
    fl_html_add(
        html, "%s (%s again).</p>\n", fl_line_text(resumed, "why"),
        fl_count(fl_line_whole(resumed, "repeated_steps", 0, INT64_C(1) << 50, 0), "step", again));
}

/* Each time that the run continued from a checkpoint or a snapshot. */
static void list_resumes(fl_html *html, const fl_report *report)
{
    const json_t *before = fl_report_first(report, "run.started"), *resumed;
    char n[FL_COUNT_BYTES];
    int64_t at = 0;
    while ((resumed = fl_report_next(report, "run.resumed", &at)) != NULL) {
        const char *checkpoint = fl_line_text(resumed, "checkpoint");
        const char *from = strstr(checkpoint, "snapshot") != NULL     ? "the snapshot in memory"
                           : strcmp(checkpoint, FL_RESUME_START) == 0 ? checkpoint
                                                                      : "the checkpoint";
        fl_count(fl_line_whole(resumed, "step", 0, INT64_C(1) << 50, 0), "step", n);
        if (fl_page_is_return(resumed)) {
            describe_return(html, resumed, from, n);
        } else {
            describe_resume(html, before, resumed, from, n);
        }
        before = resumed;
    }
}

/* A worker of a lost host stays in the list; it has no process. */
static bool has_process(const json_t *worker)
{
    return fl_line_whole(worker, "pid", 0, INT64_C(1) << 40, 1) > 0;
}

/* The workers with which the run was started or resumed; of one host, or of all (NULL). */
static int64_t count_workers(const json_t *start, const char *host)
{
    const json_t *worker;
    int64_t n = 0;
    size_t i;
    json_array_foreach(json_object_get(start, "workers"), i, worker)
    {
        n += has_process(worker) &&
             (host == NULL || strcmp(fl_line_text(worker, "host"), host) == 0);
    }
    return n;
}

/* The hosts of these workers: a lost host stays in the list, too. */
static int64_t count_hosts(const json_t *start)
{
    const json_t *host;
    int64_t n = 0;
    size_t i;
    json_array_foreach(json_object_get(start, "hosts"), i, host)
    {
        n += count_workers(start, fl_line_text(host, "host")) > 0;
    }
    return n;
}

static void describe_run(fl_html *html, const fl_report *report)
{
    const json_t *started = fl_report_first(report, "run.started");
    const json_t *resumed = fl_report_last(report, "run.resumed");
    const json_t *newest = resumed == NULL ? started : resumed;
    char n[FL_NUMBER_BYTES], text[MOMENT_BYTES];
    if (started == NULL) {
        return;
    }
    int64_t n_workers = count_workers(newest, NULL);
    int64_t n_hosts = count_hosts(newest);
    char workers[FL_COUNT_BYTES], hosts[FL_COUNT_BYTES];
    fl_html_add(html, "<p>");
    if (report->has_job) {
        describe_model(html, &report->job, started);
    } else {
        fl_html_add(html, "A model");
    }
    fl_html_add(html, " on %s samples", fl_html_number(fl_line_real(started, "samples"), 0, n));
    fl_html_add(html, ", %s to a batch", fl_html_number(fl_line_real(started, "batch"), 0, n));
    double epochs = fl_line_real(newest, "epochs");
    fl_html_add(html, ", for %s", fl_html_number(epochs, 0, n));
    fl_html_add(html, " epoch%s at most, with %s", fl_plural_ending(epochs == 1 ? 1 : 2, "epoch"),
                fl_count(n_workers, "worker", workers));
    if (n_hosts > 0) {
        fl_html_add(html, " on %s at %s", fl_count(n_hosts, "host", hosts),
                    resumed == NULL ? "its start" : "its newest start");
    }
    fl_html_add(html, ". ");
    const char *field = fl_line_text(started, "begun")[0] == '\0' ? "wall" : "begun";
    fl_html_add(html, "Begun %s.</p>\n", moment_of(started, field, text));
    list_resumes(html, report);
}

/* A run without improvement is finished before its last step. */
static void describe_early_end(fl_html *html, const fl_report *report)
{
    const json_t *ending = fl_report_last(report, "run.ending");
    char metric[FL_TEXT_MAX], n[FL_NUMBER_BYTES];
    if (ending == NULL || json_object_get(ending, "why") == NULL) {
        return;
    }
    snprintf(metric, sizeof metric, "%s", fl_line_text(ending, "metric"));
    for (char *at = strchr(metric, '_'); at != NULL; at = strchr(at, '_')) {
        *at = ' ';
    }
    fl_html_add(html, "<p>It ended early (<code>%s</code>): the best %s",
                fl_line_text(ending, "why"), metric);
    fl_html_add(html, ", %s, is that of epoch %lld.</p>\n",
                fl_html_number(fl_line_real(ending, "best"), 4, n),
                (long long)fl_line_whole(ending, "best_epoch", 0, INT64_C(1) << 50, 0) + 1);
}

static void why_it_ended(fl_html *html, const fl_report *report)
{
    const json_t *stopping = fl_report_last(report, "run.stopping");
    char text[MOMENT_BYTES];
    const json_t *last = report->n_events == 0 ? NULL : report->event[report->n_events - 1];
    switch (report->run.state) {
    case FL_RUN_LIVE:
    case FL_RUN_STARTING:
    case FL_RUN_RECOVERING:
        fl_html_add(html, "<p>The run is still in progress; this page shows it as of %s.</p>\n",
                    moment(last, text));
        break;
    case FL_RUN_STOPPED:
        fl_html_add(html, "<p>The user stopped the run: %s.</p>\n",
                    stopping == NULL ? "at once" : fl_line_text(stopping, "why"));
        break;
    case FL_RUN_FAILED:
        fl_html_add(html, "<pre class=\"alarm\">%s</pre>\n",
                    fl_line_text(fl_report_last(report, "run.failed"), "message"));
        break;
    case FL_RUN_LOST:
        fl_html_add(html,
                    "<p>Its controller vanished; the last event is of %s. It was killed, or "
                    "the machine went down.</p>\n",
                    moment(last, text));
        break;
    case FL_RUN_ELSEWHERE:
        fl_html_add(html,
                    "<p>The run was started on another machine, and has recorded no end; the last "
                    "event is of %s.</p>\n",
                    moment(last, text));
        break;
    case FL_RUN_FINISHED:
        describe_early_end(html, report);
        break;
    }
}

void fl_page_head(fl_html *html, const fl_report *report)
{
    const char *name = report->run.job[0] == '\0' ? report->run.name : report->run.job;
    const char *state = fl_run_state_text(report->run.state);
    fl_html_add(html, "<header>\n<h1>%s <span class=\"state %s\">%s</span></h1>\n", name, state,
                state);
    describe_run(html, report);
    why_it_ended(html, report);
    facts(html, report);
    fl_html_add(html, "</header>\n");
}
