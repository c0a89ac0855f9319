/* The directory of a run, and the job in it. */
#ifndef FL_LAUNCHER_RUN_PLAN_RUN_DIR_H
#define FL_LAUNCHER_RUN_PLAN_RUN_DIR_H

#include "launcher/run/plan/preparation.h"

/* A directory in which a run begins. */
typedef struct fl_run_place {
    int dir_fd;
    bool alone; /* no other process begins a run there: the descriptor has the directory's lock */
} fl_run_place;

/* Make and open the directory `wanted`, which must not hold a run, or, when NULL, a new one below
 * run.dir. path [PATH_MAX] out: its absolute path. The caller closes out->dir_fd,
 * which is -1 after a failure.
 * Returns FL_EINVAL for a directory that holds a run or a path that is too long; FL_EBUSY where
 * another process has the run, or begins one there; FL_EIO. */
fl_status fl_run_dir_open(const fl_job *job, const char *wanted, char *path,
                          fl_run_place *out) FL_MUST_CHECK;

/* The run has begun, and its job.yaml is locked: others may look at the directory. */
void fl_run_dir_release(int dir_fd);

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
