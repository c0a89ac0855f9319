/* The metrics of a run, in the text format that Prometheus reads (version 0.0.4). From values to
 * text: pure, no I/O. docs/metrics.md lists every metric; a test compares the two.
 *
 * Names follow the conventions of Prometheus: base units (seconds, bytes), counters end in _total.
 * The place of a worker may change, so it is in a metric of its own (frostline_worker_info), and
 * the worker's counters continue. */
#ifndef FL_CONTROL_OBSERVE_METRICS_METRICS_H
#define FL_CONTROL_OBSERVE_METRICS_METRICS_H

#include "control/state/hosts/hosts.h"
#include "nn/loss.h"

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FL_METRICS_NAME_MAX = 256,
    FL_METRICS_STATE_MAX = 16,
    FL_METRICS_PARTS = 5,
    FL_METRICS_GPU_MAX = 96
};

/* The parts of fl_metrics_worker's seconds, in order. */
extern const char *const fl_metrics_parts[FL_METRICS_PARTS];

/* How a worker's micro-batches are computed on a device that captures work (CUDA graphs). */
typedef struct fl_metrics_graphs {
    bool any; /* the worker's device has graphs */
    int64_t captures, launches, calls;
    int n_measured, n_by_graphs, n_by_calls; /* shapes of the running plan */
    int64_t memory_bytes;                    /* the driver's for the graphs */
} fl_metrics_graphs;

/* A host of a run on several ones. */
typedef struct fl_metrics_host {
    char name[FL_HOST_TEXT], address[FL_HOST_TEXT];
    char state[FL_METRICS_STATE_MAX];    /* as in the status */
    int n_workers;                       /* that are members of the run */
    double end_time_s;                   /* since 1970: drained or lost */
    double clock_offset_s, round_trip_s; /* against the head's clock, and to it and back */
    const char *apart_from; /* the host that it does not reach, and is left out for; NULL: none */
} fl_metrics_host;

/* A class of links between workers, as plans know it. */
typedef struct fl_metrics_link {
    const char *between; /* "devices", "sockets", "hosts" */
    double latency_seconds, bytes_per_second;
} fl_metrics_link;

enum { FL_METRICS_LINKS = 3 };

typedef struct fl_metrics_worker {
    char state[FL_METRICS_STATE_MAX];  /* as in the status */
    int replica, stage;                /* -1: none */
    int host;                          /* of fl_metrics.hosts; -1: none */
    int gpu;                           /* its number on its host, with gpu_name */
    char gpu_name[FL_METRICS_GPU_MAX]; /* "": none */
    bool slow;                         /* currently named as a straggler */
    int64_t steps;
    double seconds[FL_METRICS_PARTS];
    int64_t memory_used_bytes, memory_peak_bytes;
    int64_t memory_parked_bytes, memory_workspace_bytes; /* outside the budget */
    fl_metrics_graphs graphs;
} fl_metrics_worker;

/* Unknown doubles are NAN and are left out. */
typedef struct fl_metrics {
    char version[32];
    char job[FL_METRICS_NAME_MAX], run[FL_METRICS_NAME_MAX]; /* names; run: of its directory */
    char state[FL_METRICS_STATE_MAX];                        /* as in the status */
    double start_time_s;                                     /* since 1970 */
    int64_t steps, planned_steps, epochs, planned_epochs, samples, tokens;
    double loss, gradient_norm, learning_rate;
    double validation_loss, validation_accuracy, test_loss, test_accuracy; /* last evaluation */
    fl_metric_list loss_metrics;                      /* of the model's loss; borrowed */
    fl_metric_means train_metrics;                    /* of the last step */
    fl_metric_means validation_metrics, test_metrics; /* n 0: not evaluated on this split */
    double step_seconds_sum, predicted_step_seconds, mfu;
    uint32_t generation;
    int blocks, frozen, stages, replicas, micro_batches;
    int64_t n_committed, n_cancelled; /* transitions */
    double stall_seconds_sum, last_stall_seconds;
    int64_t migrated_bytes;
    int64_t n_losses, n_recoveries, n_returns, n_repeated, n_snapshots;
    double recovery_seconds_sum;
    int64_t n_checkpoints, n_checkpoints_failed;
    int64_t checkpoint_step; /* of the newest one; -1: there is none, and the rest is unknown */
    int64_t checkpoint_bytes;
    double checkpoint_seconds, checkpoint_age_seconds;
    int64_t cache_hits, cache_upgrades, cache_misses, cache_values, cache_evicted;
    int64_t cache_device_hits, cache_pinned_hits; /* of the hits */
    int64_t cache_used_bytes, cache_memory_bytes, cache_disk_bytes;
    bool cache_used;
    int64_t n_stragglers; /* times that a worker was named */
    int64_t n_events, n_events_dropped, n_requests, n_requests_refused;
    int64_t memory_budget_bytes;             /* of a worker */
    int n_hosts;                             /* 0: the run has one host alone */
    fl_metrics_host *hosts;                  /* [n_hosts] */
    fl_metrics_link links[FL_METRICS_LINKS]; /* of a run on several hosts */
    int n_workers;
    fl_metrics_worker *workers; /* [n_workers] */
} fl_metrics;

/* Write the text, with a 0 after it, into text [size]; what does not fit is left out.
 * Returns  the length of the whole text, without the 0: if that is `size` or more, call again with
 *          more room
 * Threads  pure; any */
size_t fl_metrics_render(const fl_metrics *metrics, char *text, size_t size);

#endif
