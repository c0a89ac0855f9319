/* Choose K, R, M and the cuts by predicted step time. Pure: values to values. */
#ifndef FL_PIPE_PLAN_PLANNER_H
#define FL_PIPE_PLAN_PLANNER_H

#include "pipe/plan/memory.h"
#include "pipe/plan/plan.h"

#include <frostline/plan.h>

/* Reading one value of size_bytes from the cache takes call_us + size_bytes * us_per_byte. */
typedef struct fl_read_cost {
    double call_us, us_per_byte;
} fl_read_cost;

/* Everything a decision depends on. Memory is per sample and linear in the micro-batch. */
typedef struct fl_plan_input {
    const fl_model *model;
    const fl_job *job; /* fixed or auto k, r, m; schedule; partition; budgets; batch */
    const fl_profile *profile;
    const fl_layer_memory *memory_one; /* [n_layers] for one sample: fl_memory_measure(.., 1, ..) */
    int n_workers;
    int n_processors; /* that the workers share; 0: one for each core of each device */
    int F;
    uint32_t generation;
    const fl_read_cost *cached_read; /* from the run's cache; NULL: it has none */
    double missing; /* share of the steps to be priced in which samples are not in the cache, */
    int kept;       /* blocks whose stored output serves those steps instead; 0: none */
} fl_plan_input;

/* One thing that was considered. */
typedef struct fl_candidate {
    fl_grid grid;
    double step_us; /* predicted; INFINITY when it does not fit */
    double bubble;
    double reduce_us;     /* all-reduce that is not hidden */
    int64_t memory_bytes; /* the largest stage; of what does not fit, what it needs at least */
    fl_status why_not;    /* FL_OK, or why it cannot be */
} fl_candidate;

/* The cheapest plan; ties go to smaller K, then smaller M. Where the job leaves M open and the
 * profile knows which M ran fastest with the K and R that were chosen, that one is taken. Every K,
 * R and M that could be better than the best is priced; in a small cluster that is all of them.
 * candidates [capacity] out, *n_candidates of them, cheapest first, then what does not fit;
 *            capacity may be 0, and then both may be NULL
 * Returns FL_EINVAL (K greater than layers, K * R greater than workers, M greater than a replica's
 * share) or FL_EBUDGET (nothing fits). The message begins with the field's path, "pipe.k: ", and
 * has the numbers. *plan is unchanged on failure. */
fl_status fl_plan_choose(const fl_plan_input *input, fl_plan *plan, fl_candidate *candidates,
                         int capacity, int *n_candidates) FL_MUST_CHECK;

/* Predicted time of one optimizer step of one given plan, microseconds. detail may be NULL. */
double fl_plan_predict(const fl_plan_input *input, const fl_plan *plan, fl_candidate *detail);

/* The memory of stage `stage` of a given plan. Threads: pure; any. */
void fl_plan_memory(const fl_plan_input *input, const fl_plan *plan, int stage,
                    fl_stage_memory *memory);

#endif
