/* How large the micro-batches of a plan get. The order of a run's samples and their sizes are known
 * before it starts, so the largest micro-batch is found by splitting every batch of the run, with
 * the function with which a step splits it. Where all samples have one length, a division tells. */
#ifndef FL_PIPE_PLAN_BATCH_CAPACITY_H
#define FL_PIPE_PLAN_BATCH_CAPACITY_H

#include "pipe/cost/memory/extent.h"
#include "pipe/cost/memory/sample_sizes.h"
#include "pipe/plan/batch/store_map.h"

#include <frostline/plan.h>

enum { FL_CAPACITY_KEPT = 256 };

/* An answer, and its question. */
typedef struct fl_kept_capacity {
    uint64_t question;
    fl_capacity capacity;
} fl_kept_capacity;

/* All batches of a run. It keeps what was found. Threads: one at a time. */
typedef struct fl_run_batches {
    const fl_job *job; /* borrowed */
    const fl_sample_sizes *sizes;
    int64_t n_samples, n_validation, n_steps; /* as in fl_worker_context */
    fl_store_map stores; /* of the cache; one store: who reads from which does not matter */
    int n_kept;
    fl_kept_capacity kept[FL_CAPACITY_KEPT];
    int64_t batch_work; /* of the batch that has the most; 0: not asked for yet */
    fl_extent batch;    /* the most samples of a batch, and the most tokens */
    int64_t longest;    /* tokens of the longest sample that is used */
} fl_run_batches;

/* Exact for the plan: of its batches, its R and M, and where there are several stores, the workers
 * of its first stages. Time: samples of the run, where they differ in length; FL_ENOMEM. */
fl_status fl_capacity_of_plan(fl_run_batches *run, const fl_plan *plan,
                              fl_capacity *out) FL_MUST_CHECK;

/* No plan with this R and M has less than *least (which tells nothing of what is read ahead), and
 * none has more than *most. Either may be NULL. Time: O(1), after samples of the run for the first
 * question; FL_ENOMEM. */
fl_status fl_capacity_bounds(fl_run_batches *run, int R, int M, fl_capacity *least,
                             fl_capacity *most) FL_MUST_CHECK;

/* The exact one if the workers do not matter to it; otherwise the upper bound. */
fl_status fl_capacity_of_grid(fl_run_batches *run, int R, int M, fl_capacity *out) FL_MUST_CHECK;

/* FL_EINVAL if a micro-batch would have more rows somewhere in the model than the offsets of a
 * tensor can count. Pure. */
fl_status fl_capacity_check_rows(const fl_sample_sizes *sizes,
                                 const fl_capacity *capacity) FL_MUST_CHECK;

#endif
