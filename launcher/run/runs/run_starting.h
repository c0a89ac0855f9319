/* What is known of a run before it has written an event. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_STARTING_H
#define FL_LAUNCHER_RUN_RUNS_RUN_STARTING_H

#include "launcher/run/runs/run_look.h"

/* The job's name, and when the run began, by its job.yaml; what cannot be read stays "". */
void fl_run_starting_read(const char *path, fl_run_entry *entry);

#endif
