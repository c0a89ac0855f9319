/* The directory of all runs, while a doctor has files in it. A doctor makes it where it is missing,
 * and the last one of those that are at work there removes it. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_RUNS_FOLDER_H
#define FL_LAUNCHER_DOCTOR_HOSTS_RUNS_FOLDER_H

#include <frostline/status.h>

#include <limits.h>
#include <stdbool.h>

typedef struct fl_runs_folder {
    char path[PATH_MAX]; /* as it was given */
    char real[PATH_MAX]; /* where that leads; "": nowhere */
    int dir_fd;          /* -1: not open */
} fl_runs_folder;

/* path: from the root. On failure, what was made is removed. FL_EIO */
fl_status fl_runs_folder_open(const char *path, fl_runs_folder *out) FL_MUST_CHECK;

/* Whether another doctor has removed it since it was opened: the caller closes it, and opens it
 * again. */
bool fl_runs_folder_is_gone(const fl_runs_folder *f);

/* The caller's own files are no longer there. */
void fl_runs_folder_close(fl_runs_folder *f);

#endif
