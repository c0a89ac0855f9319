/* What the commands about a job begin and end with: the job of the command line, its model and its
 * data set. */
#ifndef FL_LAUNCHER_CLI_JOB_CONTEXT_H
#define FL_LAUNCHER_CLI_JOB_CONTEXT_H

#include "launcher/cli/cli.h"

#include <frostline/job.h>
#include <frostline/model.h>

typedef struct fl_job_context {
    fl_job job;
    fl_model *model;
    fl_dataset dataset;
} fl_job_context;

/* From the operand and every --set. *work is zeros before; fl_job_context_fini also after a
 * failure. */
fl_status fl_job_context_init(const fl_args *args, fl_job_context *work) FL_MUST_CHECK;
void fl_job_context_fini(fl_job_context *work);

/* Every --set of the command line; returns how many. */
int fl_job_context_overrides(const fl_args *args, const char *overrides[FL_ARGS_MAX]);

/* The model and the data set of work->job. */
fl_status fl_job_context_make(fl_job_context *work) FL_MUST_CHECK;

/* Say what went wrong; returns the exit code. */
int fl_job_context_finish(fl_status status);

#endif
