/* Whether a run has the job of the recorded run whose decisions it is to repeat. */
#ifndef FL_LAUNCHER_RUN_RUNS_RECORDING_JOB_H
#define FL_LAUNCHER_RUN_RUNS_RECORDING_JOB_H

#include <frostline/job.h>
#include <frostline/status.h>

#include <stdbool.h>

/* FL_EINVAL when something in the place of RUN/job.yaml is not a regular file: to open a named pipe
 * would wait for ever. */
fl_status fl_recording_check_job_file(const char *run_dir) FL_MUST_CHECK;

/* Whether a run may differ in this field from the recorded one. Pure. */
bool fl_recording_may_differ(const char *path);

/* FL_EINVAL if another field differs from that in RUN/job.yaml. */
fl_status fl_recording_check_job(const char *run_dir, const fl_job *job) FL_MUST_CHECK;

#endif
