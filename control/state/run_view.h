/* The state of the run for the parts that report it (status, metrics). The controller fills it from
 * its parts, at most once in a turn of its loop; readers change nothing. */
#ifndef FL_CONTROL_STATE_RUN_VIEW_H
#define FL_CONTROL_STATE_RUN_VIEW_H

#include "control/state/run_facts.h"
#include "control/state/sums/cache_sums.h"
#include "control/state/sums/checkpoint_sums.h"
#include "control/state/sums/recovery_sums.h"
#include "control/state/sums/run_times.h"

/* How far training has come. NAN: not known yet. */
typedef struct fl_run_progress {
    int64_t steps, planned_steps, epoch, epochs, planned_epochs, steps_per_epoch;
    int64_t samples, tokens;
    double loss, grad_norm, lr;
    /* Of the last evaluation, by split; that of a run with validation samples uses test samples
     * only at the end. Accuracy NAN: also if the loss has no such metric. */
    double validation_loss, validation_accuracy, test_loss, test_accuracy;
    fl_metric_list metrics;                           /* of the model's loss */
    fl_metric_means train_metrics;                    /* of the last step; n 0: no step yet */
    fl_metric_means validation_metrics, test_metrics; /* n 0: not evaluated on this split */
    bool validates;                /* the last evaluation used validation samples */
    double step_ms, samples_per_s; /* over the last ten seconds of training */
    double left_s, trained_s;
} fl_run_progress;

void fl_run_progress_of(const fl_run_stats *stats, fl_run_progress *progress);

/* The operations that a step needs, those that the devices that train can perform, and the used
 * share. NAN: unknown. */
typedef struct fl_mfu {
    double step_flops; /* operations of one step */
    double peak_flops; /* operations a second */
    double share;
} fl_mfu;

/* Transitions since the run began. */
typedef struct fl_transition_sums {
    int64_t n_committed, n_cancelled;
    int64_t stall_us, last_stall_us;
    int64_t moved_bytes;
} fl_transition_sums;

/* Counters of the control socket since the run began. */
typedef struct fl_ctl_counts {
    int64_t events;  /* published */
    int64_t dropped; /* of the published events: those that found some subscriber's queue full */
    int64_t answered, refused; /* requests */
} fl_ctl_counts;

typedef struct fl_run_view {
    const fl_run_facts *run;
    const char *state;       /* "starting", "running", "paused", ... */
    const char *transition;  /* "idle", "preparing", "committing", "recovering" */
    const char *metrics_url; /* NULL: the run has no metrics */
    double time_s;           /* since the run began */
    fl_run_progress progress;
    int n_blocks, n_frozen_layers;
    const bool *pinned; /* [n_blocks] */
    fl_mfu mfu;
    fl_transition_sums transitions;
    fl_recovery_sums recovery;
    int64_t n_snapshots;   /* taken */
    int64_t snapshot_step; /* of the one in memory; -1: there is none */
    fl_checkpoint_sums checkpoints;
    double checkpoint_age_s;    /* since the newest one became durable; NAN: unknown */
    const fl_comm_report *comm; /* NULL: workers exchange data through host memory alone */
    bool has_cache, cache_used;
    fl_cache_sums cache;
    fl_cache_stats cache_store;
    const fl_run_times *times;
    double times_s; /* seconds for which times->recent has been summed */
    int straggler;  /* rank of the worker last named as slow; -1: none */
    int64_t n_stragglers;
    fl_ctl_counts counts;
} fl_run_view;

#endif
