/* What is known of a run before it has written an event. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_STARTING_H
#define FL_LAUNCHER_RUN_RUNS_RUN_STARTING_H

#include "launcher/run/runs/run_look.h"

/* The job's name, and when the command began; what cannot be read stays "".
 * dir  the run directory, open */
void fl_run_starting_read(const char *path, int dir, fl_run_entry *entry);

#endif
