/* A run that a process is ending, as after SIGTERM: a scheduler may start it again before that is
 * over, because the old process writes its checkpoint, or its workers take a while to end. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_ENDING_H
#define FL_LAUNCHER_RUN_RUNS_RUN_ENDING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FL_RUN_ENDING_MS = 60000 }; /* twice as long as schedulers leave a process after SIGTERM */

/* Another process that has a run directory. All zero: none has it, or it trains the run. */
typedef struct fl_run_ending {
    bool ends;    /* its record shows that it ends the run */
    bool starts;  /* there is no record, as of a start that has not begun to train */
    pid_t holder; /* that process, 0 if it is in another name space or on another host */
    long since_s; /* it has been ending the run for so long; -1: not known */
} fl_run_ending;

fl_run_ending fl_run_ending_look(const char *path);

/* Wait until no other process has the run, if one ends it or has not begun to train it, and say so:
 * for timeout_ms at most, and no longer than that is so.
 * Returns  the number of the signal for which `stop` ended the wait (NULL: nothing does); 0: the
 *          wait is over, or there was none */
int fl_run_await_end(const char *path, int64_t timeout_ms, int (*stop)(void));

#endif
