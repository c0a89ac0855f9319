/* The runs of a folder, and the one that a user means. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUNS_H
#define FL_LAUNCHER_RUN_RUNS_RUNS_H

#include "launcher/run/runs/run_look.h"

/* Read all run directories directly in `dir`, the newest first: *entries [*n]; free with fl_free.
 * FL_EIO if `dir` cannot be read. */
fl_status fl_runs_list(const char *dir, fl_run_entry **entries, int *n) FL_MUST_CHECK;

/* Find the live run that a user means by `name`: a directory, the name of one below `dir`, or the
 * name of a job with live runs there; NULL: any below `dir`. Of several, the newest. FL_EINVAL,
 * with a list of candidates, when none matches; FL_EBUSY for a run that lives, but does not answer
 * yet, as one that starts, or goes back after a loss; FL_EFAILED for one that lost its control
 * socket. */
fl_status fl_run_find(const char *dir, const char *name, fl_run_entry *entry) FL_MUST_CHECK;

/* FL_EBUSY, with what is known of the return of the run in `path`, of which people read `name`. */
fl_status fl_run_fail_recovering(const char *path, const char *name) FL_MUST_CHECK;

/* FL_EBUSY for a run that starts, with the hosts for which it waits. */
fl_status fl_run_fail_starting(const char *path, const char *name) FL_MUST_CHECK;

/* FL_EINVAL for a run that was lost before it trained, with the command that begins it again. */
fl_status fl_run_fail_untrained(const char *path, const char *name) FL_MUST_CHECK;

/* `status` for a run that was lost after it had trained, with the command that continues it. */
fl_status fl_run_fail_lost(fl_status status, const char *path, const char *name) FL_MUST_CHECK;

/* As fl_run_find among all runs, live or ended. name is not NULL. */
fl_status fl_run_find_any(const char *dir, const char *name, fl_run_entry *entry) FL_MUST_CHECK;

/* The directory that a user means by `name`, for commands that read files of a run: `name` itself
 * if it is a directory other than one of runs, else the run that fl_run_find_any finds below
 * run.dir's default. FL_EINVAL if there is none. */
fl_status fl_run_find_dir(const char *name, char path[PATH_MAX]) FL_MUST_CHECK;

#endif
