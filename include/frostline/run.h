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
    double train_loss;               /* mean of the last epoch's steps that were not skipped */
    double test_loss, test_accuracy; /* of the last evaluation on test samples; NAN: none; 0 to 1 */
    double seconds;                  /* from the first step to the last, without evaluation */
    double samples_per_s;
    double wall_seconds; /* from the start of the workers to the end of the last one */
    int K, R, M;         /* of the plan that it began with */
    char run_dir[4096];
    double validation_loss, validation_accuracy; /* of the last evaluation on validation samples;
                                                  * NAN if there was none */
    int64_t skipped_steps; /* of `steps`: their loss or gradient norm was not finite, and the
                            * optimizer's step was left out (train.on_nonfinite) */
} fl_run_result;

/* Train `model` on `dataset` as `job` says, to the end: plan, fork one worker a device, watch them.
 * The caller becomes the controller. Call it before the process has made threads or used OpenMP:
 * workers are forks of the caller and see its model and data set as they are now. Output goes to
 * standard output and standard error as for `frostline run`. The trained weights are lost when the
 * workers exit: this version stores none, and the caller's model is unchanged.
 *
 * model, dataset, job  borrowed; of the job's sections model and data only data.samples counts, and
 *                      data.augment where the cache needs it
 * result    may be NULL; after a failure it holds what was reached
 *
 * Returns   FL_OK
 *           FL_ESTOPPED: SIGINT, SIGTERM or `frostline ctl stop`
 *           FL_EFAILED: a worker died, stopped answering or reported an error, and the message
 *           names it; or a loss or gradient norm was not finite, and the message names step, layer,
 *           worker and samples; or the run trained to its end but its files could not be written,
 *           and the message names what is missing
 *           any other status if no worker was started: FL_EINVAL, FL_EBUDGET, FL_EIO (the run
 *           directory), FL_ENOMEM
 * Threads   one run per process at a time */
fl_status fl_run(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                 fl_run_result *result) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
