/* Train a model. */
#ifndef FROSTLINE_RUN_H
#define FROSTLINE_RUN_H

#include <frostline/dataset.h>
#include <frostline/job.h>
#include <frostline/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a run ended. */
typedef struct fl_run_result {
    int64_t steps, epochs;           /* completed */
    double train_loss;               /* mean of the last epoch's steps */
    double test_loss, test_accuracy; /* of the last evaluation; NAN if there was none */
    double seconds;                  /* from the first step to the last, without evaluation */
    double samples_per_s;
    double wall_seconds; /* from the start of the workers to the end of the last one */
    int K, R, M;
    char run_dir[4096];
} fl_run_result;

/* Train `model` on `dataset` as `job` says, to the end: plan, fork one worker a device, watch them.
 * The caller becomes the head. Call it before the process has made threads or used OpenMP: workers
 * are forks of the caller and see its model and data set as they are now.
 * Output goes to standard output and standard error as for `frostline run`.
 * result   may be NULL; on failure it holds what was reached
 * Returns  FL_OK, FL_EINVAL and FL_EBUDGET (nothing was started), FL_ESTOPPED (SIGINT or SIGTERM),
 *          FL_EFAILED (a worker died, stopped answering or reported an error; the message names
 * it). Threads  one run a process at a time. */
fl_status fl_run(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                 fl_run_result *result) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
