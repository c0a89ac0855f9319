/* Choose K, R, M and the cuts by predicted step time. Pure: values to values. */
#ifndef FL_PIPE_PLAN_PLANNER_H
#define FL_PIPE_PLAN_PLANNER_H

#include "pipe/cost/time/cost_model.h"

#include <frostline/plan.h>

/* The cheapest plan; ties go to smaller K, then smaller M. Where the job leaves M open and the
 * profile knows which M ran fastest with the K and R that were chosen, that one is taken. Every K,
 * R and M that could be better than the best is priced; in a small cluster that is all of them.
 * Where the input has a cluster, its devices are the workers, and fl_layouts_next lists the ways to
 * place the stages; each stage fits all devices that have it.
 * candidates [capacity] out, *n_candidates of them, cheapest first, then what does not fit;
 *            capacity may be 0, and then both may be NULL
 * Returns FL_EINVAL (K greater than layers, K * R greater than workers, M greater than a replica's
 * share) or FL_EBUDGET (nothing fits). The message begins with the field's path, "pipe.k: ", and
 * has the numbers. *plan is unchanged on failure. */
fl_status fl_plan_choose(const fl_plan_input *input, fl_plan *plan, fl_candidate *candidates,
                         int capacity, int *n_candidates) FL_MUST_CHECK;

/* Predicted time of one optimizer step of one given plan, microseconds. detail may be NULL. */
double fl_plan_predict(const fl_plan_input *input, const fl_plan *plan, fl_candidate *detail);

/* The memory of stage `stage` of a given plan. Where samples differ in length, the run's batches
 * are split for the plan's R and M, unless they were before; FL_ENOMEM. */
fl_status fl_plan_memory(const fl_plan_input *input, const fl_plan *plan, int stage,
                         fl_stage_memory *memory) FL_MUST_CHECK;

#endif
