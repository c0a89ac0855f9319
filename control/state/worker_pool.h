/* Which workers may have work: those that nobody drained, and no more of them than the run was
 * scaled to. */
#ifndef FL_CONTROL_CONTROLLER_WORKER_POOL_H
#define FL_CONTROL_CONTROLLER_WORKER_POOL_H

#include "pipe/plan/planner.h"

typedef struct fl_worker_pool {
    int limit; /* workers that may have work at once; 0: all */
    bool drained[FL_MAX_WORKERS];
} fl_worker_pool;

/* How many of n_workers that leaves. Pure. */
int fl_worker_pool_count(const fl_worker_pool *usable, int n_workers);

/* fl_plan_choose over them: input->n_workers is the number of workers alive, and *plan is a plan
 * for all of them in which only usable ones have a place. Pure. */
fl_status fl_worker_pool_choose(const fl_worker_pool *usable, const fl_plan_input *input,
                                fl_plan *plan) FL_MUST_CHECK;

/* Whether the plan gives work to others. Pure. */
bool fl_worker_pool_covers(const fl_worker_pool *usable, const fl_plan *plan);

/* Who is drained is no member of the run under this plan. Pure. */
void fl_worker_pool_members(const fl_worker_pool *usable, fl_plan *plan);

#endif
