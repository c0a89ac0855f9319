/* What a run that is over leaves behind: its result, and summary.txt. */
#ifndef FL_CONTROL_CONTROLLER_SUMMARY_H
#define FL_CONTROL_CONTROLLER_SUMMARY_H

#include <frostline/run.h>

typedef struct fl_controller fl_controller;

void fl_summary_result(const fl_controller *controller, fl_run_result *result);

/* Write summary.txt into the run directory, and the same at the end of the output unless the run
 * failed: the message of a failure is the end of the output then.
 * missing  what the record of the run lacks, "" if nothing */
void fl_summary_write(fl_controller *controller, const fl_run_result *result, const char *missing);

#endif
