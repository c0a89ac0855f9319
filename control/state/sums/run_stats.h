/* Sums over the workers' reports: progress, speed, and when an epoch is over. Pure; no I/O. */
#ifndef FL_CONTROL_STATE_SUMS_RUN_STATS_H
#define FL_CONTROL_STATE_SUMS_RUN_STATS_H

#include "control/link/wire/wire.h"
#include "control/state/sums/early_stop.h"

#include <frostline/run.h>

enum { FL_RUN_STATS_WINDOW = 1024 };

/* One epoch so far. */
typedef struct fl_epoch_stats {
    int64_t epoch, steps, samples;
    int64_t n_skipped; /* steps whose loss or gradient norm was not finite */
    double loss_sum;   /* of the steps that were not skipped */
    double metric_sum[FL_METRICS_MAX];
    double ms;           /* of the steps */
    bool evaluated;      /* at least once */
    fl_eval_report eval; /* valid if `evaluated` */
} fl_epoch_stats;

/* Microseconds that one worker spent in the parts of its steps, summed over some of its steps; no
 * number of reports makes them overflow. */
typedef struct fl_time_sums {
    double compute_us, wait_us, reduce_wait_us, optimizer_us, data_us;
} fl_time_sums;

typedef struct fl_run_stats {
    fl_metric_list metrics;                     /* of the model's loss; borrowed */
    int64_t n_steps, n_epochs, steps_per_epoch; /* of the whole run; n_epochs: started */
    int64_t n_steps_asked; /* n_steps as planned, or as a request has shortened it */
    bool evaluates;
    int64_t evaluation_period; /* steps; 0: only at the end. fl_run_stats_init: an epoch */
    int64_t steps;             /* finished */
    int64_t n_skipped;         /* finished steps that skipped the optimizer's step */
    int64_t epochs;            /* finished */
    fl_step_report last;
    fl_epoch_stats now;  /* the current epoch */
    fl_epoch_stats past; /* the epoch finished last */
    fl_eval_report last_eval;
    bool any_eval;
    fl_stop_rule stop_rule; /* fl_run_stats_init: none */
    fl_early_stop stop;
    bool ended_early; /* for lack of improvement, after n_steps steps */
    int64_t samples, tokens;
    double step_ms;            /* of all steps */
    int64_t first_us, last_us; /* start of the first step, end of the last one */
    double eval_ms;            /* of evaluations, pauses, losses and starts between steps */
    double pending_eval_ms;    /* the part of eval_ms after the last step */
    int64_t n_window;          /* steps ever put into the window */
    int64_t window_from;       /* those before it are not in the window: another process ran them */
    double window_ms[FL_RUN_STATS_WINDOW];
    int64_t window_samples[FL_RUN_STATS_WINDOW];
} fl_run_stats;

/* No metrics: the caller may set stats->metrics. */
void fl_run_stats_init(fl_run_stats *stats, int64_t n_samples, int64_t batch, int64_t n_steps,
                       int64_t n_epochs, bool evaluates);

/* Add a finished step. The time before the first one of a process is left out. False if the step is
 * known already (another worker reported it, too): then nothing has changed. */
bool fl_run_stats_step(fl_run_stats *stats, const fl_step_report *report, int64_t at_us);

/* Count n steps that were done but whose reports are lost; nothing else is known of them. */
void fl_run_stats_skip(fl_run_stats *stats, int64_t n_steps);

/* Add an evaluation. A second one of the last step is of the test samples, in a run that ended
 * earlier than planned: it joins the first one. False for any other report of a step that is known
 * already: then nothing has changed. */
bool fl_run_stats_eval(fl_run_stats *stats, const fl_eval_report *report);

/* Whether the last evaluation was of all n_test test samples, alone or after validation samples. */
bool fl_run_stats_is_tested(const fl_run_stats *stats, int64_t n_test);

/* Leave out time during which the run was paused on purpose, or did not train because of a loss. */
void fl_run_stats_idle(fl_run_stats *stats, double ms);

/* End the run after n_steps steps, earlier than planned. */
void fl_run_stats_end(fl_run_stats *stats, int64_t n_steps);

/* The same, for lack of improvement: such a run counts as finished. */
void fl_run_stats_end_early(fl_run_stats *stats, int64_t n_steps);

/* True once for each epoch that is over; stats->past then holds it. An epoch is over when all its
 * steps are done and, if the run evaluates after its last step, that evaluation has arrived; only
 * then past.evaluated is true. With `no_more` (the run is over), an epoch that was cut short is
 * over, too, if it has been evaluated. */
bool fl_run_stats_epoch_over(fl_run_stats *stats, bool no_more);

/* The mean loss of an epoch's steps, without the skipped ones; NAN if it has no other steps. */
double fl_run_stats_loss(const fl_epoch_stats *epoch);

/* The same for each metric. */
fl_metric_means fl_run_stats_metrics(const fl_run_stats *stats, const fl_epoch_stats *epoch);

/* The metrics of an epoch's training, and those of an evaluation, by name; NULL: none. Returns the
 * number of metrics. */
int fl_run_stats_name(const fl_run_stats *stats, const fl_epoch_stats *epoch,
                      const fl_eval_report *eval, fl_metric_result out[FL_METRICS_MAX]);

/* Samples a second and milliseconds a step over the last `span_ms` of training; 0 before the first
 * step. */
double fl_run_stats_rate(const fl_run_stats *stats, double span_ms, double *ms_per_step);

/* Seconds until the end at the present speed; NAN if unknown. */
double fl_run_stats_left_s(const fl_run_stats *stats);

/* Fill the fields of a result that the statistics know; leave the others unchanged. */
void fl_run_stats_result(const fl_run_stats *stats, fl_run_result *result);

#endif
