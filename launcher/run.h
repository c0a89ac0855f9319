/* Everything that can be known to be wrong with a run before a process starts. */
#ifndef FL_LAUNCHER_RUN_H
#define FL_LAUNCHER_RUN_H

#include "pipe/planner.h"

#include <frostline/run.h>

/* Check that the model takes the data set's samples, that the batch fits the data, and that at
 * least one plan satisfies the job within its devices and their memory.
 * Returns FL_EINVAL or FL_EBUDGET; messages begin with the job's field ("pipe.k: ..."). */
fl_status fl_check(const fl_model *model, const fl_dataset *dataset,
                   const fl_job *job) FL_MUST_CHECK;

/* Called with a plan and all that was considered for it, cheapest first; all borrowed. */
typedef void fl_plan_seen(void *context, const fl_plan *plan, const fl_candidate *candidates,
                          int n_candidates);

/* Choose the plan as a run on this machine would, with each of frozen [n] blocks frozen in turn,
 * and start nothing. The layers' costs are measured once. Returns as fl_check. */
fl_status fl_plan_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const int *frozen, int n, fl_plan_seen *seen, void *context) FL_MUST_CHECK;

/* fl_run, into the directory `run_dir` (made if it is not there; FL_EINVAL if it holds a run) or,
 * when NULL, into a new one under run.dir. */
fl_status fl_run_in(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                    const char *run_dir, fl_run_result *result) FL_MUST_CHECK;

#endif
