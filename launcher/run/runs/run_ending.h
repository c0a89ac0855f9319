/* A run that a process is ending, as after SIGTERM: a scheduler may start it again before that is
 * over, because the old process writes its checkpoint, or its workers take a while to end. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_ENDING_H
#define FL_LAUNCHER_RUN_RUNS_RUN_ENDING_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_RUN_ENDING_MS = 60000 }; /* twice as long as schedulers leave a process after SIGTERM */

/* Whether another process has this run directory, and its record shows that it ends the run; true,
 * too, while there is no record, as of a start that has not begun to train. */
bool fl_run_is_ending(const char *path);

/* Wait until no other process has the run, if one ends it, and say so: for timeout_ms at most.
 * Returns  the number of the signal for which `stop` ended the wait (NULL: nothing does); 0: the
 *          wait is over, or there was none */
int fl_run_await_end(const char *path, int64_t timeout_ms, int (*stop)(void));

#endif
