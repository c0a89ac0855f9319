/* Writes what remains of a finished run: its result and summary.txt. */
#ifndef FL_CONTROL_CONTROLLER_REPORT_SUMMARY_H
#define FL_CONTROL_CONTROLLER_REPORT_SUMMARY_H

#include <frostline/run.h>

typedef struct fl_controller fl_controller;

void fl_summary_result(const fl_controller *controller, fl_run_result *result);

/* The controller could not open what it needs (status). Whether the run begins again all the same,
 * without the hosts that it has lost. */
bool fl_summary_begins_again(const fl_controller *controller, fl_status status);

/* The same (fl_errmsg; status). The files of a run that goes back have been cut: give them an end,
 * or it would look as if its controller had been killed; not if it begins again. The end of a run
 * that cannot go back is for the caller to tell (fl_runfiles_append_failed).
 * Returns the failure. */
fl_status fl_summary_no_start(fl_controller *controller, fl_status status) FL_MUST_CHECK;

/* Write summary.txt into the run directory, and the same text to the end of the output unless the
 * run failed: then the message of the failure is the end of the output.
 * missing  what the record of the run lacks; "" if nothing */
void fl_summary_write(fl_controller *controller, const fl_run_result *result, const char *missing);

#endif
