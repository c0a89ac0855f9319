/* The plan that a run starts with, chosen from the costs of this machine. The functions fill fields
 * of a preparation that fl_preparation_check has passed. */
#ifndef FL_LAUNCHER_RUN_PLAN_RUN_PLAN_H
#define FL_LAUNCHER_RUN_PLAN_RUN_PLAN_H

#include "launcher/run/plan/preparation.h"
#include "pipe/plan/worker_pool.h"

/* Make costs in proportion to parameters: enough to find out whether any plan fits, and to choose
 * one where nothing is measured. */
void fl_run_plan_guess(fl_preparation *p);

/* Choose plan and candidates for F frozen blocks. FL_EBUDGET if no plan fits. */
fl_status fl_run_plan_choose(fl_preparation *p, int F) FL_MUST_CHECK;

/* *out: all workers but those of hosts that the run has lost. Whether there are such hosts. */
bool fl_run_plan_pool(const fl_preparation *p, fl_worker_pool *out);

/* FL_ENOTSUP if autodp.transport is nccl and two workers of the plan share a GPU. */
fl_status fl_run_plan_check_transport(const fl_preparation *p) FL_MUST_CHECK;

/* Open the cache of what frozen blocks compute, if the job asks for it. */
fl_status fl_run_plan_open_cache(fl_preparation *p) FL_MUST_CHECK;

/* Where no processors were taken: let costs be those of workers on the first processors that this
 * process may run on. Before fl_run_plan_costs. */
void fl_run_plan_seat(fl_preparation *p);

/* What fl_costs_get needs; `only` as there. */
fl_costs_options fl_run_plan_costs(const fl_preparation *p, const char *only);

/* Everything from the recording to the plan and its due steps: open, take, measure and choose. A
 * job without a plan is refused before anything is measured. Where hosts or the links between them
 * are to be measured first (fl_run_survey_is_wanted), fl_run_plan_settle chooses the plan later. */
fl_status fl_run_plan_make(fl_preparation *p) FL_MUST_CHECK;

/* Choose the plan from all that was measured. */
fl_status fl_run_plan_settle(fl_preparation *p) FL_MUST_CHECK;

#endif
