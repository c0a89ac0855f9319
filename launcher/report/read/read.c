#include "launcher/report/read/read.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "launcher/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A run of days has some thousand events. */
enum { EVENTS_MAX = 20000, EVENT_BYTES_MAX = 64 * 1024 * 1024 };

static const int64_t LARGEST = INT64_C(1) << 50;

/* ---- steps ---- */

fl_grid fl_report_plan_of(const json_t *object, fl_grid otherwise)
{
    return (fl_grid){
        .F = (int)fl_line_whole(object, "f", 0, INT_MAX, otherwise.F),
        .K = (int)fl_line_whole(object, "k", 0, INT_MAX, otherwise.K),
        .R = (int)fl_line_whole(object, "r", 0, INT_MAX, otherwise.R),
        .M = (int)fl_line_whole(object, "m", 0, INT_MAX, otherwise.M),
    };
}

/* Of the step that is added next. */
static fl_status take_train_metrics(fl_report *report, const json_t *line)
{
    char key[FL_METRIC_KEY_BYTES];
    int64_t n = report->n_metrics, at = report->n_steps * n;
    void *array = report->train_metric;
    FL_TRY(fl_alloc_room(&array, (size_t)at, (size_t)n, sizeof *report->train_metric,
                         &report->train_metric_capacity));
    report->train_metric = array;
    for (int i = 0; i < n; i++) {
        report->train_metric[at + i] =
            fl_line_real(line, fl_report_metric_key("train", &report->metric[i], key));
    }
    return FL_OK;
}

double fl_report_train_metric(const fl_report *report, int64_t i, int metric)
{
    return report->train_metric[i * report->n_metrics + metric];
}

static fl_status take_step(void *context, json_t *line, bool *good, const char **why)
{
    fl_report *report = context;
    fl_report_step s = {
        .step = fl_line_whole(line, "step", 0, LARGEST, -1),
        .epoch = fl_line_whole(line, "epoch", 0, LARGEST, -1),
        .samples = fl_line_whole(line, "samples", 0, LARGEST, 0),
        .ms = fl_line_real(line, "ms"),
        .loss = fl_line_real(line, "loss"),
        .lr = fl_line_real(line, "lr"),
        .grad_norm = fl_line_real(line, "grad_norm"),
        .plan = fl_report_plan_of(line, (fl_grid){0, 0, 0, 0}),
        .skipped = json_is_true(json_object_get(line, "skipped")),
    };
    bool repeats = report->n_steps > 0 && s.step <= report->step[report->n_steps - 1].step;
    *why = s.step < 0    ? "no number of a step"
           : s.epoch < 0 ? "no epoch"
           : repeats     ? "not after the step before it"
                         : "no time of a step";
    if (s.step < 0 || s.epoch < 0 || repeats || !(s.ms >= 0)) {
        return FL_OK;
    }
    void *array = report->step;
    FL_TRY(fl_alloc_room(&array, (size_t)report->n_steps, 1, sizeof s, &report->steps_capacity));
    report->step = array;
    double before_s = report->n_steps == 0 ? 0 : report->step[report->n_steps - 1].end_s;
    s.end_s = before_s + s.ms / 1000;
    FL_TRY(take_train_metrics(report, line));
    report->step[report->n_steps++] = s;
    *good = true;
    return FL_OK;
}

/* ---- events ---- */

static double size_of(const json_t *value)
{
    double bytes = 64;
    const char *key;
    json_t *inner;
    size_t i;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, inner)
        {
            bytes += (double)strlen(key) + size_of(inner);
        }
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, inner)
        {
            bytes += size_of(inner);
        }
    }
    return bytes + (double)json_string_length(value);
}

static fl_status take_event(void *context, json_t *line, bool *good, const char **why)
{
    fl_report *report = context;
    const char *name = fl_line_text(line, "event");
    *why = "no event";
    if (name[0] == '\0') {
        return FL_OK;
    }
    *good = true;
    /* The event that ends the run is kept even if the list is full. */
    bool full = report->n_events >= EVENTS_MAX || report->kept_bytes > EVENT_BYTES_MAX;
    bool ends = report->n_events < 2 * EVENTS_MAX && json_object_size(line) < 64 &&
                (strcmp(name, "run.finished") == 0 || strcmp(name, "run.stopped") == 0 ||
                 strcmp(name, "run.failed") == 0);
    if (full && !ends) {
        report->n_left_out++;
        return FL_OK;
    }
    void *array = report->event;
    FL_TRY(
        fl_alloc_room(&array, (size_t)report->n_events, 1, sizeof line, &report->events_capacity));
    report->event = array;
    report->event[report->n_events++] = json_incref(line);
    report->kept_bytes += size_of(line);
    return FL_OK;
}

bool fl_report_is(const json_t *event, const char *name)
{
    return strcmp(fl_line_text(event, "event"), name) == 0;
}

const json_t *fl_report_next(const fl_report *report, const char *name, int64_t *at)
{
    for (; *at < report->n_events; (*at)++) {
        if (fl_report_is(report->event[*at], name)) {
            return report->event[(*at)++];
        }
    }
    return NULL;
}

const json_t *fl_report_first(const fl_report *report, const char *name)
{
    int64_t at = 0;
    return fl_report_next(report, name, &at);
}

const json_t *fl_report_last(const fl_report *report, const char *name)
{
    for (int64_t i = report->n_events - 1; i >= 0; i--) {
        if (fl_report_is(report->event[i], name)) {
            return report->event[i];
        }
    }
    return NULL;
}

/* ---- the metrics of the loss ---- */

const char *fl_report_metric_key(const char *samples, const fl_report_metric *metric,
                                 char key[FL_METRIC_KEY_BYTES])
{
    snprintf(key, FL_METRIC_KEY_BYTES, "%s_%s", samples, metric->name);
    return key;
}

/* Runs of older versions name none: they had accuracy alone, and only in evaluations. */
static void read_metrics(fl_report *report)
{
    const json_t *model = json_object_get(fl_report_first(report, "run.started"), "model");
    const json_t *metrics = json_object_get(model, "metrics"), *metric;
    size_t i;
    if (metrics == NULL) {
        report->metric[report->n_metrics++] =
            (fl_report_metric){.name = FL_ACCURACY, .is_share = true};
    }
    json_array_foreach((json_t *)metrics, i, metric)
    {
        const char *name = fl_line_text(metric, "name");
        if (fl_metric_name_is_valid(name) && report->n_metrics < FL_METRICS_MAX) {
            fl_report_metric *to = &report->metric[report->n_metrics++];
            snprintf(to->name, sizeof to->name, "%s", name);
            to->is_share = json_is_true(json_object_get(metric, "share"));
            to->has_train = true;
        }
    }
}

/* ---- the job, the ledger ---- */

static fl_status read_job(int dir, fl_report *report)
{
    void *text = NULL;
    const char *why;
    int fd = fl_regular_file_open(dir, "job.yaml", &why);
    if (fd < 0) {
        snprintf(report->job_why, sizeof report->job_why, "job.yaml: %s", why);
        return FL_OK;
    }
    fl_status status = fl_alloc(FL_JOB_FILE_MAX + 1, &text);
    ssize_t n = status == FL_OK ? read(fd, text, FL_JOB_FILE_MAX + 1) : 0;
    close(fd);
    if (status != FL_OK) {
        return status;
    }
    report->job_text = text;
    report->job_bytes = n < 0 ? 0 : (size_t)n;
    report->has_job = fl_job_parse("job.yaml", report->job_text, report->job_bytes, NULL, 0,
                                   &report->job) == FL_OK;
    if (!report->has_job) {
        snprintf(report->job_why, sizeof report->job_why, "%s", fl_errmsg());
    }
    return FL_OK;
}

static void read_ledger(fl_report *report)
{
    char path[PATH_MAX + 16];
    struct stat what;
    snprintf(path, sizeof path, "%s/ledger.bin", report->run.path);
    if (stat(path, &what) != 0 || !S_ISREG(what.st_mode)) {
        snprintf(report->ledger_why, sizeof report->ledger_why, "ledger.bin: there is none");
        return;
    }
    report->has_ledger = fl_ledger_prove(path, &report->ledger) == FL_OK;
    if (!report->has_ledger) {
        snprintf(report->ledger_why, sizeof report->ledger_why, "%s", fl_errmsg());
    }
}

/* A folder of them that cannot be read counts as an empty one. */
static fl_status read_checkpoints(fl_report *report)
{
    fl_status status = fl_run_checkpoints_look(report->run.path, &report->checkpoints);
    return status == FL_EIO ? FL_OK : status;
}

fl_status fl_report_read(const fl_run_entry *run, fl_report *report)
{
    *report = (fl_report){.run = *run};
    int dir = open(run->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return fl_fail(FL_EIO, "%s: %s", run->path, strerror(errno));
    }
    fl_status status = fl_lines_read(dir, "events.jsonl", take_event, report, &report->events_file);
    if (status == FL_OK) {
        read_metrics(report);
        status = fl_lines_read(dir, "steps.jsonl", take_step, report, &report->steps_file);
    }
    if (status == FL_OK) {
        status = read_job(dir, report);
    }
    close(dir);
    if (status == FL_OK) {
        read_ledger(report);
        status = read_checkpoints(report);
    }
    return status;
}

void fl_report_fini(fl_report *report)
{
    for (int64_t i = 0; i < report->n_events; i++) {
        json_decref(report->event[i]);
    }
    fl_free(report->event);
    fl_free(report->step);
    fl_free(report->train_metric);
    fl_free(report->job_text);
    if (report->has_ledger) {
        fl_ledger_proof_fini(&report->ledger);
    }
    *report = (fl_report){0};
}
