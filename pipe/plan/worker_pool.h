/* The workers that a plan may use: those that were not drained, limited to the number to which the
 * run was scaled. Pure. */
#ifndef FL_PIPE_PLAN_WORKER_POOL_H
#define FL_PIPE_PLAN_WORKER_POOL_H

#include "pipe/plan/planner.h"

typedef struct fl_worker_pool {
    int limit; /* workers that may have work at once; 0: all */
    bool drained[FL_MAX_WORKERS];
} fl_worker_pool;

/* How many of n_workers the pool leaves. */
int fl_worker_pool_count(const fl_worker_pool *usable, int n_workers);

/* Choose K and R again, even if the job fixes them, where this many devices do not allow them. */
void fl_worker_pool_loosen(fl_job *job, int64_t devices);

/* fl_plan_choose over the usable workers. input->n_workers counts all workers, and *plan is a plan
 * for all of them in which only usable ones have a place. */
fl_status fl_worker_pool_choose(const fl_worker_pool *usable, const fl_plan_input *input,
                                fl_plan *plan) FL_MUST_CHECK;

/* The same, and the candidates as fl_plan_choose lists them. */
fl_status fl_worker_pool_choose_listed(const fl_worker_pool *usable, const fl_plan_input *input,
                                       fl_plan *plan, fl_candidate *candidates, int capacity,
                                       int *n_candidates) FL_MUST_CHECK;

/* Whether the plan gives work to usable workers only. */
bool fl_worker_pool_covers(const fl_worker_pool *usable, const fl_plan *plan);

/* Mark the drained workers as departed: they are not members of the run under this plan. */
void fl_worker_pool_members(const fl_worker_pool *usable, fl_plan *plan);

#endif
