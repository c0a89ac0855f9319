/* The contents of a run directory: read once, then never changed. */
#ifndef FL_LAUNCHER_REPORT_READ_READ_H
#define FL_LAUNCHER_REPORT_READ_READ_H

#include "autodp/ledger.h"
#include "launcher/report/read/lines.h"
#include "launcher/run/runs/run_checkpoints.h"
#include "launcher/run/runs/runs.h"
#include "nn/loss.h"
#include "pipe/cost/plan.h"

#include <frostline/job.h>

typedef struct fl_report_step {
    int64_t step, epoch, samples; /* step, epoch: from 0 */
    double end_s;                 /* time in training up to its end */
    double ms;                    /* finite, >= 0 */
    double loss, lr, grad_norm;   /* NAN: not known */
    fl_grid plan;
    bool skipped; /* the optimizer did not apply it: loss or gradient norm was not finite */
} fl_report_step;

/* A metric of the model's loss: a run has its values under train_, validation_ and test_. */
typedef struct fl_report_metric {
    char name[FL_METRIC_NAME_MAX];
    bool is_share;
    bool has_train; /* each step has it */
} fl_report_metric;

typedef struct fl_report {
    fl_run_entry run;
    fl_lines steps_file, events_file;
    fl_report_step *step; /* [n_steps], step ascending */
    int64_t n_steps;
    size_t steps_capacity;
    int n_metrics;
    fl_report_metric metric[FL_METRICS_MAX];
    double *train_metric; /* [n_steps][n_metrics], NAN: not known; use fl_report_train_metric */
    size_t train_metric_capacity;
    json_t **event; /* [n_events], in their order; each has the text "event" */
    int64_t n_events;
    size_t events_capacity;
    int64_t n_left_out; /* events beyond what a page can show */
    double kept_bytes;
    char *job_text; /* job.yaml as it is; NULL: could not be read */
    size_t job_bytes;
    bool has_job; /* job holds what it says */
    fl_job job;
    char job_why[512]; /* why not */
    bool has_ledger;
    fl_ledger_proof ledger;
    char ledger_why[512];
    fl_run_checkpoints checkpoints; /* that the directory has now */
} fl_report;

/* Read the run directory of `run`. *report records missing and broken files. The call fails only
 * for FL_ENOMEM and for a folder that cannot be opened (FL_EIO). fl_report_fini frees *report, also
 * after a failure. */
fl_status fl_report_read(const fl_run_entry *run, fl_report *report) FL_MUST_CHECK;
void fl_report_fini(fl_report *report);

bool fl_report_is(const json_t *event, const char *name);

/* The next event of this name at or after *at, borrowed; NULL: none. *at goes behind it. */
const json_t *fl_report_next(const fl_report *report, const char *name, int64_t *at);

/* The first, the last event of this name, borrowed; NULL: none. */
const json_t *fl_report_first(const fl_report *report, const char *name);
const json_t *fl_report_last(const fl_report *report, const char *name);

/* A metric of the training batch of step[i]; NAN: not known. */
double fl_report_train_metric(const fl_report *report, int64_t i, int metric);

/* "test_mae": the field in which an event has a metric. Returns key. */
enum { FL_METRIC_KEY_BYTES = 16 + FL_METRIC_NAME_MAX };
const char *fl_report_metric_key(const char *samples, const fl_report_metric *metric,
                                 char key[FL_METRIC_KEY_BYTES]);

/* The plan that a step or an event tells; a number that is missing is `otherwise`'s. */
fl_grid fl_report_plan_of(const json_t *object, fl_grid otherwise);

#endif
