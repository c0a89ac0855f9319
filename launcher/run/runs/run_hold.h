/* Which process has a run: it locks the run directory's job.yaml, and its controller listens at the
 * control socket there. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_HOLD_H
#define FL_LAUNCHER_RUN_RUNS_RUN_HOLD_H

#include <frostline/status.h>

#include <stdbool.h>
#include <sys/types.h>

/* Mark the run in this directory as one of this process, until the process ends or closes the
 * descriptor that is returned (-1: there is none). job.yaml must be there. */
int fl_run_hold(int dir_fd);

/* The same, and make sure of it: FL_EBUSY if another process holds the run, FL_EIO if job.yaml
 * cannot be opened. The process must not open and close the file again: that would release it. */
fl_status fl_run_take(int dir_fd, int *held_fd) FL_MUST_CHECK;

/* Lock a file that is to become job.yaml. False: another process has it. */
bool fl_run_lock(int fd);

/* Whether the controller of this run directory is listening. */
bool fl_run_is_live(const char *path);

/* Whether it listens, but not at its control socket: that was removed, or is another file. */
bool fl_run_is_unreachable(const char *path);

/* Whether another process holds the run: also one that starts, or goes back after a loss. */
bool fl_run_is_held(const char *path);

/* Whether another process holds the run in the open directory `dir`. *holder: that process, 0 if it
 * is in another name space or on another host. */
bool fl__run_is_held_in(int dir, pid_t *holder);

/* The process `pid` of this name space as it sees itself, which is another number in a container; 0
 * if that is not known. */
pid_t fl__run_own_pid(pid_t pid);

#endif
