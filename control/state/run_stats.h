/* Sums over what the workers report: where the run stands, how fast it is, when an epoch is over.
 * Pure accounting, no I/O. */
#ifndef FL_CONTROL_CONTROLLER_RUN_STATS_H
#define FL_CONTROL_CONTROLLER_RUN_STATS_H

#include "control/link/wire.h"

#include <frostline/run.h>

enum { FL_RUN_STATS_WINDOW = 1024 };

/* One epoch as far as it has come. */
typedef struct fl_epoch_stats {
    int64_t epoch, steps, samples;
    int64_t n_skipped;   /* of the steps: their loss or gradient norm was not finite */
    double loss_sum;     /* of the other steps' losses */
    double ms;           /* of the steps */
    bool evaluated;      /* at all */
    fl_eval_report eval; /* holds when evaluated */
} fl_epoch_stats;

/* Microseconds that one worker spent in the parts of its steps, over some of them. */
typedef struct fl_time_sums {
    int64_t compute_us, wait_us, reduce_wait_us, optimizer_us, data_us;
} fl_time_sums;

typedef struct fl_run_stats {
    int64_t n_steps, n_epochs, steps_per_epoch; /* of the whole run; n_epochs: that it begins */
    bool evaluates;
    int64_t evaluation_period; /* steps; 0: only at the end. fl_run_stats_init: an epoch */
    int64_t steps;             /* finished */
    int64_t n_skipped;         /* of them: the optimizer's step was left out */
    int64_t epochs;            /* finished */
    fl_step_report last;
    fl_epoch_stats now;  /* the epoch at hand */
    fl_epoch_stats past; /* the one finished last */
    fl_eval_report last_eval;
    bool any_eval;
    int64_t samples, tokens;
    double step_ms;            /* of all steps */
    int64_t first_us, last_us; /* the first step's beginning and the last one's end */
    double eval_ms;            /* of evaluations and pauses between steps */
    double pending_eval_ms;    /* of those that no step has followed yet */
    int64_t n_window;          /* steps ever put into the window */
    double window_ms[FL_RUN_STATS_WINDOW];
    int64_t window_samples[FL_RUN_STATS_WINDOW];
} fl_run_stats;

void fl_run_stats_init(fl_run_stats *stats, int64_t n_samples, int64_t batch, int64_t n_steps,
                       int64_t n_epochs, bool evaluates);

/* False for a step that is known already (a second worker told it too): nothing has changed. */
bool fl_run_stats_step(fl_run_stats *stats, const fl_step_report *report, int64_t at_us);

/* Steps were done whose reports are lost: they count, and nothing else is known of them. */
void fl_run_stats_skip(fl_run_stats *stats, int64_t n_steps);

bool fl_run_stats_eval(fl_run_stats *stats, const fl_eval_report *report);

/* Nobody trained for so long, on purpose: it is not time of the training. */
void fl_run_stats_idle(fl_run_stats *stats, double ms);

/* The run ends after n_steps steps, sooner than it was planned. */
void fl_run_stats_end(fl_run_stats *stats, int64_t n_steps);

/* True once for each epoch that is over: all its steps are done and, where the run evaluates after
 * the last of them, that evaluation is there; past.evaluated is only then true. It is then
 * tally->past. `no_more` (the run is over) also ends an epoch that was cut short, if it has been
 * evaluated. */
bool fl_run_stats_epoch_over(fl_run_stats *stats, bool no_more);

/* The mean loss of an epoch's steps, without those that were skipped; NAN if there is none. */
double fl_run_stats_loss(const fl_epoch_stats *epoch);

/* Samples a second and milliseconds a step over the last `span_ms` of training; 0 before the first
 * step. */
double fl_run_stats_rate(const fl_run_stats *stats, double span_ms, double *ms_per_step);

/* Seconds until the end at the present speed; NAN if nobody knows. */
double fl_run_stats_left_s(const fl_run_stats *stats);

/* Fill what a tally knows of a result; the rest is left alone. */
void fl_run_stats_result(const fl_run_stats *stats, fl_run_result *result);

#endif
