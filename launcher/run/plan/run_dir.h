/* The directory of a run, and the job in it. */
#ifndef FL_LAUNCHER_RUN_PLAN_RUN_DIR_H
#define FL_LAUNCHER_RUN_PLAN_RUN_DIR_H

#include "launcher/run/plan/preparation.h"

/* Make and open the directory `wanted`, which must not hold a run, or, when NULL, a new one below
 * run.dir. path [PATH_MAX] out: its absolute path. *dir_fd: the caller closes it.
 * Returns FL_EINVAL for a directory that holds a run or a path that is too long; FL_EIO. */
fl_status fl_run_dir_open(const fl_job *job, const char *wanted, char *path,
                          int *dir_fd) FL_MUST_CHECK;

/* Write job.yaml, with every field's value. FL_EIO. */
fl_status fl_run_dir_write_job(const fl_preparation *p, int dir_fd) FL_MUST_CHECK;

/* Remove job.yaml of a run that ends before its first event: the directory holds no run, and the
 * same command may begin one there. Otherwise it stays. */
void fl_run_dir_forget_job(int dir_fd);

/* Write the job of a run that continues beside its job.yaml, durably, and lock the new file as a
 * run is held (fl_run_take): *held_fd. FL_EIO. */
fl_status fl_run_dir_prepare_job(const fl_preparation *p, int dir_fd, int *held_fd) FL_MUST_CHECK;

/* It replaces job.yaml, atomically and durably. On failure the old file is there. FL_EIO. */
fl_status fl_run_dir_replace_job(int dir_fd) FL_MUST_CHECK;

/* It is removed, also one that a start which was killed has left. */
void fl_run_dir_drop_job(int dir_fd);

#endif
