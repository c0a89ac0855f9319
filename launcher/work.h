/* What the commands about a job begin and end with: the job of the command line, its model and its
 * data set. */
#ifndef FL_LAUNCHER_WORK_H
#define FL_LAUNCHER_WORK_H

#include "launcher/cli.h"

#include <frostline/job.h>
#include <frostline/model.h>

typedef struct fl_work {
    fl_job job;
    fl_model *model;
    fl_dataset dataset;
} fl_work;

/* From the operand and every --set. *work is zeros before; fl_work_fini also after a failure. */
fl_status fl_work_init(const fl_args *args, fl_work *work) FL_MUST_CHECK;
void fl_work_fini(fl_work *work);

/* Say what went wrong, with its place in the job; returns the exit code. */
int fl_work_finish(fl_status status);

#endif
