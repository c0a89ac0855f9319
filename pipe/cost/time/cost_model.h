/* The predicted time of one optimizer step of a plan, from a profile. Pure. docs/planner.md
 * describes the model. */
#ifndef FL_PIPE_COST_TIME_COST_MODEL_H
#define FL_PIPE_COST_TIME_COST_MODEL_H

#include "pipe/cost/cluster.h"
#include "pipe/cost/memory/memory_model.h"
#include "pipe/cost/plan.h"

#include <frostline/plan.h>

struct fl_run_batches; /* pipe/plan/batch/capacity.h */

/* Everything that a prediction or a decision depends on. Where all samples have one length, memory
 * is that of one sample times their number. */
typedef struct fl_plan_input {
    const fl_model *model;
    const fl_job *job; /* fixed or auto k, r, m; schedule; partition; budgets; batch */
    const fl_profile *profile;
    /* [n_layers] for one sample of the greatest length: fl_memory_measure(.., 1, ..); operations
     * for one of the mean. */
    const fl_layer_memory *memory_one;
    const fl_memory_model *ragged;  /* where samples differ in length; NULL: they do not */
    struct fl_run_batches *batches; /* of the run; needed only then. It keeps what was asked. */
    int n_workers;
    int n_processors; /* that the workers share; 0: one for each core of each device */
    int F;
    uint32_t generation;
    const fl_read_cost *cached_read; /* the profile's; NULL: the run has no cache */
    double missing; /* share of the steps to be priced in which samples are not in the cache, */
    int kept;       /* blocks whose stored output serves those steps instead; 0: none */
    /* of n_workers devices or more, checked by fl_cluster_check; NULL: all are alike, in one host,
     * whose links are those of the profile. With a cluster n_processors is not read: its hosts have
     * processors for all their devices. */
    const fl_cluster *cluster;
} fl_plan_input;

/* A plan that was considered, and its prediction. */
typedef struct fl_candidate {
    fl_grid grid;
    double step_us; /* predicted; INFINITY when it does not fit */
    double bubble;
    double reduce_us;     /* all-reduce that is not hidden */
    int64_t memory_bytes; /* the largest stage; of what does not fit, what it needs at least */
    fl_status why_not;    /* FL_OK, or why it cannot be */
} fl_candidate;

/* Sums over runs of layers on one kind of device. [i]: of the layers below i. */
typedef struct fl_layer_sums {
    double fwd_call_us[FL_MAX_LAYERS + 1], fwd_us[FL_MAX_LAYERS + 1];
    double bwd_call_us[FL_MAX_LAYERS + 1], bwd_us[FL_MAX_LAYERS + 1];
} fl_layer_sums;

/* Sums of costs over runs of layers, each asked for in O(1). [i]: of the layers below i. About
 * 160 KiB. */
typedef struct fl_cost_table {
    const fl_plan_input *input; /* borrowed */
    int n_layers;
    int heaviest;                       /* the layer that takes a sample longest */
    fl_layer_sums of[1 + FL_KINDS_MAX]; /* [0]: of the profile; others: kinds of the cluster */
    int64_t n_trainable[FL_MAX_LAYERS + 1];
    int64_t n_in_buckets[FL_MAX_LAYERS + 1]; /* the same without tied parameters */
    double fastest;                          /* of the devices, relative to the profile's */
    int widest;                              /* devices of the largest host */
    fl_link_cost nearest, between;           /* the lowest latency; links between hosts */
    double thinnest;                         /* bytes of a sample at the thinnest boundary */
} fl_cost_table;

/* The table is of one F, the input's; a grid's own F is not read below. */
void fl_cost_table_init(fl_cost_table *table, const fl_plan_input *input);

/* cost [n_layers] out: one layer's forward and backward of one micro-batch, microseconds, the loss
 * with the last: what a partition balances. */
void fl_cost_model_layers(const fl_cost_table *table, fl_grid grid, double *cost);

/* The same on a kind of device of the input's cluster; 0: the profile's. */
void fl_cost_model_layers_of(const fl_cost_table *table, int kind, fl_grid grid, double *cost);

/* What stage `stage` computes in a step on the profile's device, microseconds: forward, backward,
 * and the loss with the last. first [K + 1]. */
double fl_cost_model_compute(const fl_cost_table *table, fl_grid grid, const int *first, int stage);

/* No split of this grid takes less. Much cheaper to know than fl_cost_model_price. */
double fl_cost_model_bound(const fl_cost_table *table, fl_grid grid);

/* About what the best layout on the cluster's hosts takes, when each has as many devices as the
 * largest; not less than the bound, but maybe more than the price. Without a cluster, the bound. */
double fl_cost_model_estimate(const fl_cost_table *table, fl_grid grid);

/* The step with these cuts: first [K + 1]. Fills out->grid, step_us, bubble and reduce_us.
 * device_of [K * R] which device has stage k of replica r: device_of[r * K + k]; read only where
 *           the input has a cluster; NULL: device i has place i */
void fl_cost_model_price(const fl_cost_table *table, fl_grid grid, const int *first,
                         const int *device_of, fl_candidate *out);

#endif
