#include "launcher/report/export/export.h"

#include "launcher/job/text/number.h"
#include "launcher/report/export/tfevents.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* ---- what a run has measured ---- */

typedef struct measure {
    char tag[FL_TF_TAG_MAX];       /* TensorBoard's name */
    char key[FL_METRIC_KEY_BYTES]; /* the event's, and the table's */
    bool of_epoch;                 /* it describes an epoch's training; otherwise an evaluation */
} measure;

/* Every table of evaluations has these columns, in this order; those of metrics follow. */
static const measure of_each_run[] = {
    {"test/accuracy", "test_accuracy", false},
    {"test/loss", "test_loss", false},
    {"validation/accuracy", "validation_accuracy", false},
    {"validation/loss", "validation_loss", false},
    {"epoch/train_loss", "train_loss", true},
    {"epoch/samples_per_s", "samples_per_s", true},
    {"epoch/mfu", "mfu", true},
};
enum {
    N_OF_EACH_RUN = sizeof of_each_run / sizeof of_each_run[0],
    MEASURES_MAX = N_OF_EACH_RUN + 3 * FL_METRICS_MAX,
};

_Static_assert((int)MEASURES_MAX <= (int)FL_TF_SCALARS_MAX, "one event has all measures");

typedef struct measure_list {
    int n;
    measure all[MEASURES_MAX];
} measure_list;

static void add_metric(measure_list *m, const char *samples, const fl_report_metric *metric)
{
    measure *to = &m->all[m->n++];
    to->of_epoch = strcmp(samples, "train") == 0;
    fl_report_metric_key(samples, metric, to->key);
    snprintf(to->tag, sizeof to->tag, to->of_epoch ? "epoch/%s_%s" : "%s/%s", samples,
             metric->name);
}

static measure_list measures_of(const fl_report *report)
{
    measure_list m = {.n = N_OF_EACH_RUN};
    memcpy(m.all, of_each_run, sizeof of_each_run);
    for (int i = 0; i < report->n_metrics; i++) {
        const fl_report_metric *metric = &report->metric[i];
        if (strcmp(metric->name, FL_ACCURACY) != 0) {
            add_metric(&m, "test", metric);
            add_metric(&m, "validation", metric);
        }
        if (metric->has_train) {
            add_metric(&m, "train", metric);
        }
    }
    return m;
}

/* The results after one step: of an evaluation, of an epoch that ended, or of both. */
typedef struct results {
    int64_t step, epoch;        /* -1: not known */
    double end_s;               /* time in training up to that step */
    double value[MEASURES_MAX]; /* NAN: not measured */
} results;

/* A position between two events. */
typedef struct export_cursor {
    const fl_report *report;
    const measure_list *measures;
    int64_t at;
    bool has_evaluations; /* the run wrote `evaluation` events */
} export_cursor;

static export_cursor cursor_of(const fl_report *report, const measure_list *measures)
{
    return (export_cursor){.report = report,
                           .measures = measures,
                           .has_evaluations = fl_report_first(report, "evaluation") != NULL};
}

/* The last step of an epoch that was done; NULL: none. */
static const fl_report_step *last_of_epoch(const fl_report *report, int64_t epoch)
{
    const fl_report_step *last = NULL;
    for (int64_t i = 0; i < report->n_steps && report->step[i].epoch <= epoch; i++) {
        last = report->step[i].epoch == epoch ? &report->step[i] : last;
    }
    return last;
}

static const fl_report_step *step_numbered(const fl_report *report, int64_t step)
{
    int64_t low = 0, high = report->n_steps;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        low = report->step[mid].step < step ? mid + 1 : low;
        high = report->step[mid].step < step ? high : mid;
    }
    bool there = low < report->n_steps && report->step[low].step == step;
    return there ? &report->step[low] : NULL;
}

/* Add the values of an event; false: it has none. The end of an epoch repeats the newest
 * evaluation, which may belong to an earlier step: it counts only where the run wrote no
 * `evaluation` events. */
static bool add_values(const export_cursor *c, const json_t *event, double *value)
{
    bool repeats =
        c->has_evaluations && strcmp(fl_line_text(event, "event"), "epoch.finished") == 0;
    bool any = false;
    for (int i = 0; i < c->measures->n; i++) {
        double v = fl_line_real(event, c->measures->all[i].key);
        if (!isnan(v) && (c->measures->all[i].of_epoch || !repeats)) {
            value[i] = v;
            any = true;
        }
    }
    return any;
}

static results results_of(const fl_report *report, const json_t *event)
{
    const int64_t most = INT64_C(1) << 50;
    int64_t step = fl_line_whole(event, "step", 0, most, -1);
    int64_t epoch = fl_line_whole(event, "epoch", 0, most, -1);
    const fl_report_step *s =
        step >= 0 ? step_numbered(report, step) : last_of_epoch(report, epoch);
    results r = {.step = s != NULL ? s->step : step,
                 .epoch = s != NULL ? s->epoch : epoch,
                 .end_s = s != NULL ? s->end_s : (double)NAN};
    for (int i = 0; i < MEASURES_MAX; i++) {
        r.value[i] = (double)NAN;
    }
    return r;
}

/* The results of the next event that has any; false: there is none. Events that report how the run
 * ended repeat the last results and are left out. */
static bool read_event(export_cursor *c, results *out)
{
    while (c->at < c->report->n_events) {
        const json_t *event = c->report->event[c->at++];
        if (strncmp(fl_line_text(event, "event"), "run.", 4) != 0) {
            *out = results_of(c->report, event);
            if (add_values(c, event, out->value)) {
                return true;
            }
        }
    }
    return false;
}

/* The results after the next step that has any: all that consecutive events report of it. */
static bool next_results(export_cursor *c, results *out)
{
    results more;
    if (!read_event(c, out)) {
        return false;
    }
    for (export_cursor ahead = *c;
         read_event(&ahead, &more) && more.step == out->step && out->step >= 0; *c = ahead) {
        for (int i = 0; i < c->measures->n; i++) {
            out->value[i] = isnan(more.value[i]) ? out->value[i] : more.value[i];
        }
    }
    return true;
}

static bool is_evaluation(const measure_list *m, const results *r)
{
    for (int i = 0; i < m->n; i++) {
        if (!m->all[i].of_epoch && !isnan(r->value[i])) {
            return true;
        }
    }
    return false;
}

int64_t fl_export_n_evaluations(const fl_report *report)
{
    measure_list m = measures_of(report);
    export_cursor c = cursor_of(report, &m);
    int64_t n = 0;
    for (results r; next_results(&c, &r);) {
        n += is_evaluation(&m, &r);
    }
    return n;
}

static double samples_per_s(const fl_report_step *s)
{
    return s->ms > 0 && s->samples > 0 ? (double)s->samples * 1000 / s->ms : (double)NAN;
}

/* ---- TensorBoard ---- */

/* Seconds since 1970 at which training began: the start of the run, as steps have no time of day.
 */
static double started_s(const fl_report *report)
{
    struct tm utc = {0};
    const char *rest = strptime(report->run.started, "%Y-%m-%dT%H:%M:%S", &utc);
    return rest == NULL ? 0 : (double)timegm(&utc);
}

static int add_scalar(fl_tf_scalar *scalars, int n, const char *tag, double value)
{
    if (!isnan(value)) {
        scalars[n++] = (fl_tf_scalar){.tag = tag, .value = (float)value};
    }
    return n;
}

static fl_status put_step(FILE *file, double begin_s, const fl_report *report, int64_t i)
{
    const fl_report_step *s = &report->step[i];
    fl_tf_scalar scalars[FL_TF_SCALARS_MAX];
    char tag[FL_METRICS_MAX][FL_TF_TAG_MAX];
    int n = 0;
    n = add_scalar(scalars, n, "train/loss", s->loss);
    n = add_scalar(scalars, n, "train/grad_norm", s->grad_norm);
    n = add_scalar(scalars, n, "train/learning_rate", s->lr);
    for (int m = 0; m < report->n_metrics; m++) {
        snprintf(tag[m], FL_TF_TAG_MAX, "train/%s", report->metric[m].name);
        n = add_scalar(scalars, n, tag[m], fl_report_train_metric(report, i, m));
    }
    n = add_scalar(scalars, n, "speed/step_ms", s->ms);
    n = add_scalar(scalars, n, "speed/samples_per_s", samples_per_s(s));
    n = add_scalar(scalars, n, "plan/F", s->plan.F);
    n = add_scalar(scalars, n, "plan/K", s->plan.K);
    n = add_scalar(scalars, n, "plan/R", s->plan.R);
    n = add_scalar(scalars, n, "plan/M", s->plan.M);
    return fl_tfevents_put(file, begin_s + s->end_s, s->step, scalars, n);
}

static fl_status put_results(FILE *file, double begin_s, const measure_list *m, const results *r)
{
    fl_tf_scalar scalars[FL_TF_SCALARS_MAX];
    int n = 0;
    if (r->step < 0) {
        return FL_OK; /* its steps could not be read */
    }
    for (int i = 0; i < m->n; i++) {
        n = add_scalar(scalars, n, m->all[i].tag, r->value[i]);
    }
    return fl_tfevents_put(file, begin_s + (isnan(r->end_s) ? 0 : r->end_s), r->step, scalars, n);
}

fl_status fl_export_tensorboard(const fl_report *report, FILE *file)
{
    double begin_s = started_s(report);
    measure_list m = measures_of(report);
    export_cursor c = cursor_of(report, &m);
    FL_TRY(fl_tfevents_begin(file, begin_s));
    for (int64_t i = 0; i < report->n_steps; i++) {
        FL_TRY(put_step(file, begin_s, report, i));
    }
    for (results r; next_results(&c, &r);) {
        FL_TRY(put_results(file, begin_s, &m, &r));
    }
    return FL_OK;
}

/* ---- tables ---- */

static void put_real(FILE *file, double value)
{
    char text[40];
    fprintf(file, ",%s", isnan(value) ? "" : fl_write_number(value, text, sizeof text));
}

/* Rounded to microseconds: sums of rounded times are not more precise. */
static void put_seconds(FILE *file, double seconds)
{
    put_real(file, rint(seconds * 1e6) / 1e6);
}

static void put_integer(FILE *file, int64_t value)
{
    if (value >= 0) {
        fprintf(file, "%" PRId64, value);
    }
}

static fl_status end_table(FILE *file)
{
    return ferror(file) ? fl_fail(FL_EIO, "the table could not be written") : FL_OK;
}

fl_status fl_export_steps(const fl_report *report, FILE *file)
{
    fputs("step,epoch,seconds,ms,samples,samples_per_s,loss,grad_norm,lr,f,k,r,m", file);
    for (int m = 0; m < report->n_metrics; m++) {
        if (report->metric[m].has_train) {
            fprintf(file, ",train_%s", report->metric[m].name);
        }
    }
    fputs("\r\n", file);
    for (int64_t i = 0; i < report->n_steps; i++) {
        const fl_report_step *s = &report->step[i];
        fprintf(file, "%" PRId64 ",%" PRId64, s->step, s->epoch);
        put_seconds(file, s->end_s);
        put_real(file, s->ms);
        fprintf(file, ",%" PRId64, s->samples);
        put_real(file, samples_per_s(s));
        put_real(file, s->loss);
        put_real(file, s->grad_norm);
        put_real(file, s->lr);
        fprintf(file, ",%d,%d,%d,%d", s->plan.F, s->plan.K, s->plan.R, s->plan.M);
        for (int m = 0; m < report->n_metrics; m++) {
            if (report->metric[m].has_train) {
                put_real(file, fl_report_train_metric(report, i, m));
            }
        }
        fputs("\r\n", file);
    }
    return end_table(file);
}

fl_status fl_export_evaluations(const fl_report *report, FILE *file)
{
    measure_list m = measures_of(report);
    export_cursor c = cursor_of(report, &m);
    fputs("step,epoch,seconds", file);
    for (int i = 0; i < m.n; i++) {
        fprintf(file, ",%s", m.all[i].key);
    }
    fputs("\r\n", file);
    for (results r; next_results(&c, &r);) {
        put_integer(file, r.step);
        fputc(',', file);
        put_integer(file, r.epoch);
        put_seconds(file, r.end_s);
        for (int i = 0; i < m.n; i++) {
            put_real(file, r.value[i]);
        }
        fputs("\r\n", file);
    }
    return end_table(file);
}
