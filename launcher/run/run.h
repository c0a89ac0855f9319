/* Everything that can be known to be wrong with a run before a process starts. */
#ifndef FL_LAUNCHER_RUN_RUN_H
#define FL_LAUNCHER_RUN_RUN_H

#include "control/controller/run.h"

#include <frostline/run.h>

/* Check that the model takes the data set's samples, that the batch fits the data, and that at
 * least one plan satisfies the job within its devices and their memory.
 * Returns FL_EINVAL or FL_EBUDGET; messages begin with the job's field ("pipe.k: ..."). */
fl_status fl_check(const fl_model *model, const fl_dataset *dataset,
                   const fl_job *job) FL_MUST_CHECK;

/* What is to be planned, and who hears of it; all that is passed on is borrowed. */
typedef struct fl_plan_request {
    const int *frozen; /* [n] blocks, each in turn */
    int n;
    const char *profile; /* take the costs from this file and measure nothing; NULL: as a run */
    void (*costs)(void *context, const fl_costs_origin *origin); /* once, before any plan */
    /* why_not: NULL, or why nothing fits (of *plan then only F holds); candidates [n_candidates],
     * cheapest first */
    void (*seen)(void *context, const fl_plan *plan, const char *why_not,
                 const fl_candidate *candidates, int n_candidates);
    void *context;
} fl_plan_request;

/* Choose plans as a run on this machine would, and start nothing. Returns as fl_check; what fits
 * with some of the frozen blocks only is told, and no failure. */
fl_status fl_plan_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_plan_request *request) FL_MUST_CHECK;

/* fl_run, into the directory `run_dir` (made if it is not there; FL_EINVAL if it holds a run) or,
 * when NULL, into a new one under run.dir. */
fl_status fl_run_in(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                    const char *run_dir, fl_run_result *result) FL_MUST_CHECK;

/* The same, with all decisions of the run in `recorded_dir`, each at the step at which it took
 * effect there: equal to that run to the last bit on the same hardware. NULL: decide anew. Returns
 * also as fl_recording_read does. */
fl_status fl_run_again(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                       const char *run_dir, const char *recorded_dir,
                       fl_run_result *result) FL_MUST_CHECK;

#endif
