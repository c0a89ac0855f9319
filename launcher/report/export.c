#include "launcher/report/export.h"

#include "launcher/job/number.h"
#include "launcher/report/tfevents.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* ---- what a run has measured ---- */

/* An event that ends an epoch or tells of an evaluation, and the step that it belongs to. */
typedef struct evaluation {
    const json_t *event;
    int64_t step, epoch; /* -1: not known */
    double end_s;        /* time in training up to that step */
} evaluation;

static const struct {
    const char *tag, *column, *key; /* TensorBoard's name, the table's, the event's */
} measures[] = {
    {"test/accuracy", "test_accuracy", "test_accuracy"},
    {"test/loss", "test_loss", "test_loss"},
    {"validation/accuracy", "validation_accuracy", "validation_accuracy"},
    {"validation/loss", "validation_loss", "validation_loss"},
    {"epoch/train_loss", "train_loss", "train_loss"},
    {"epoch/samples_per_s", "samples_per_s", "samples_per_s"},
    {"epoch/mfu", "mfu", "mfu"},
};
enum { N_MEASURES = sizeof measures / sizeof measures[0] };

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

static bool is_measured(const json_t *event)
{
    for (int i = 0; i < N_MEASURES; i++) {
        if (!isnan(fl_line_real(event, measures[i].key))) {
            return true;
        }
    }
    return false;
}

/* The next evaluation at or after *at; false: none. *at goes behind it. How the run ended repeats
 * the last one, and is left out. */
static bool next_evaluation(const fl_report *report, int64_t *at, evaluation *out)
{
    for (; *at < report->n_events; (*at)++) {
        const json_t *event = report->event[*at];
        if (strncmp(fl_line_text(event, "event"), "run.", 4) == 0 || !is_measured(event)) {
            continue;
        }
        const int64_t most = INT64_C(1) << 50;
        int64_t step = fl_line_whole(event, "step", 0, most, -1);
        int64_t epoch = fl_line_whole(event, "epoch", 0, most, -1);
        const fl_report_step *s =
            step >= 0 ? step_numbered(report, step) : last_of_epoch(report, epoch);
        *out = (evaluation){.event = event,
                            .step = s != NULL ? s->step : step,
                            .epoch = s != NULL ? s->epoch : epoch,
                            .end_s = s != NULL ? s->end_s : (double)NAN};
        (*at)++;
        return true;
    }
    return false;
}

int64_t fl_export_n_evaluations(const fl_report *report)
{
    int64_t at = 0, n = 0;
    evaluation e;
    while (next_evaluation(report, &at, &e)) {
        n++;
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

static fl_status put_step(FILE *file, double begin_s, const fl_report_step *s)
{
    fl_tf_scalar scalars[FL_TF_SCALARS_MAX];
    int n = 0;
    n = add_scalar(scalars, n, "train/loss", s->loss);
    n = add_scalar(scalars, n, "train/grad_norm", s->grad_norm);
    n = add_scalar(scalars, n, "train/learning_rate", s->lr);
    n = add_scalar(scalars, n, "speed/step_ms", s->ms);
    n = add_scalar(scalars, n, "speed/samples_per_s", samples_per_s(s));
    n = add_scalar(scalars, n, "plan/F", s->plan.F);
    n = add_scalar(scalars, n, "plan/K", s->plan.K);
    n = add_scalar(scalars, n, "plan/R", s->plan.R);
    n = add_scalar(scalars, n, "plan/M", s->plan.M);
    return fl_tfevents_put(file, begin_s + s->end_s, s->step, scalars, n);
}

static fl_status put_evaluation(FILE *file, double begin_s, const evaluation *e)
{
    fl_tf_scalar scalars[FL_TF_SCALARS_MAX];
    int n = 0;
    if (e->step < 0) {
        return FL_OK; /* its steps could not be read */
    }
    for (int i = 0; i < N_MEASURES; i++) {
        n = add_scalar(scalars, n, measures[i].tag, fl_line_real(e->event, measures[i].key));
    }
    return fl_tfevents_put(file, begin_s + (isnan(e->end_s) ? 0 : e->end_s), e->step, scalars, n);
}

fl_status fl_export_tensorboard(const fl_report *report, FILE *file)
{
    double begin_s = started_s(report);
    int64_t at = 0;
    evaluation e;
    FL_TRY(fl_tfevents_begin(file, begin_s));
    for (int64_t i = 0; i < report->n_steps; i++) {
        FL_TRY(put_step(file, begin_s, &report->step[i]));
    }
    while (next_evaluation(report, &at, &e)) {
        FL_TRY(put_evaluation(file, begin_s, &e));
    }
    return FL_OK;
}

/* ---- tables ---- */

static void put_real(FILE *file, double value)
{
    char text[40];
    fprintf(file, ",%s", isnan(value) ? "" : fl_write_number(value, text, sizeof text));
}

/* To the microsecond: sums of rounded times have no more. */
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
    fputs("step,epoch,seconds,ms,samples,samples_per_s,loss,grad_norm,lr,f,k,r,m\r\n", file);
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
        fprintf(file, ",%d,%d,%d,%d\r\n", s->plan.F, s->plan.K, s->plan.R, s->plan.M);
    }
    return end_table(file);
}

fl_status fl_export_evaluations(const fl_report *report, FILE *file)
{
    int64_t at = 0;
    evaluation e;
    fputs("step,epoch,seconds", file);
    for (int i = 0; i < N_MEASURES; i++) {
        fprintf(file, ",%s", measures[i].column);
    }
    fputs("\r\n", file);
    while (next_evaluation(report, &at, &e)) {
        put_integer(file, e.step);
        fputc(',', file);
        put_integer(file, e.epoch);
        put_seconds(file, e.end_s);
        for (int i = 0; i < N_MEASURES; i++) {
            put_real(file, fl_line_real(e.event, measures[i].key));
        }
        fputs("\r\n", file);
    }
    return end_table(file);
}
