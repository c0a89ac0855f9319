/* Runs as found through their directories: which are live, and how the others ended. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUNS_H
#define FL_LAUNCHER_RUN_RUNS_RUNS_H

#include <frostline/run.h>
#include <frostline/status.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum fl_run_state {
    FL_RUN_LIVE,     /* its controller answers */
    FL_RUN_FINISHED, /* to its last step */
    FL_RUN_STOPPED,  /* by the user */
    FL_RUN_FAILED,
    FL_RUN_LOST,       /* its controller died before it could report an end */
    FL_RUN_STARTING,   /* its controller lives, but does not answer yet */
    FL_RUN_RECOVERING, /* the same, because the run goes back after a loss */
} fl_run_state;

typedef struct fl_run_entry {
    char name[256]; /* of the directory */
    char path[PATH_MAX];
    fl_run_state state;
    char job[256];
    char started[40];           /* UTC, "2026-01-31T09:30:00.000Z"; sorts as time does */
    int64_t n_steps;            /* of the whole run */
    int64_t steps;              /* finished steps; -1: unknown */
    int64_t skipped_steps;      /* not finite, so not applied; 0 until the run has ended */
    bool record_incomplete;     /* its files lack something that the run could not write */
    double loss, test_accuracy; /* NAN: none */
    int n_metrics;              /* of the model's loss */
    fl_metric_result metrics[FL_METRICS_MAX]; /* only names, and `test` once the run has ended */
} fl_run_entry;

const char *fl_run_state_text(fl_run_state state);

/* Whether a process trains it, or is about to. */
bool fl_run_state_lives(fl_run_state state);

/* Read the run directory at `path`. FL_EINVAL if it holds no run. */
fl_status fl_run_look(const char *path, fl_run_entry *entry) FL_MUST_CHECK;

/* Read all run directories directly in `dir`, the newest first: *entries [*n]; free with fl_free.
 * FL_EIO if `dir` cannot be read. */
fl_status fl_runs_list(const char *dir, fl_run_entry **entries, int *n) FL_MUST_CHECK;

/* Find the live run that a user means by `name`: a directory, the name of one below `dir`, or the
 * name of a job with live runs there; NULL: any below `dir`. Of several, the newest. FL_EINVAL,
 * with a list of candidates, when none matches; FL_EBUSY for a run that lives, but does not answer
 * yet, as one that starts, or goes back after a loss. */
fl_status fl_run_find(const char *dir, const char *name, fl_run_entry *entry) FL_MUST_CHECK;

/* The same among all runs, live or ended. name is not NULL. */
fl_status fl_run_find_any(const char *dir, const char *name, fl_run_entry *entry) FL_MUST_CHECK;

/* The directory that a user means by `name`, for commands that read files of a run: `name` itself
 * if it is a directory other than one of runs, else the run that fl_run_find_any finds below
 * run.dir's default. FL_EINVAL if there is none. */
fl_status fl_run_find_dir(const char *name, char path[PATH_MAX]) FL_MUST_CHECK;

/* Mark the run in this directory as one of this process, until the process ends or closes the
 * descriptor that is returned (-1: there is none). job.yaml must be there. */
int fl_run_hold(int dir_fd);

/* The same, and make sure of it: FL_EINVAL if another process holds the run, FL_EIO if job.yaml
 * cannot be opened. The process must not open and close the file again: that would release it. */
fl_status fl_run_take(int dir_fd, int *held_fd) FL_MUST_CHECK;

/* Lock a file that is to become job.yaml. False: another process has it. */
bool fl_run_lock(int fd);

/* Whether the controller of this run directory is listening. */
bool fl_run_is_live(const char *path);

/* Whether another process holds the run: also one that starts, or goes back after a loss. */
bool fl_run_is_held(const char *path);

#endif
