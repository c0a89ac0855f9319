/* A signal that asks for the end of a run while the run starts.
 *
 *     before the run directory is open       the command's handler ends the process
 *     until the controller runs              fl_start_stop_look, and the survey of hosts
 *     while workers are started, and then    the controller */
#ifndef FL_LAUNCHER_RUN_START_STOP_H
#define FL_LAUNCHER_RUN_START_STOP_H

#include "launcher/run/plan/preparation.h"

#include <signal.h>

/* Signals wait from now on, until fl_start_stop_end: files are to be closed. */
void fl_start_stop_begin(void);

/* Between two parts of a start: FL_ESTOPPED if a signal has come. Agents of other hosts that the
 * start has met wait for the run: they are told. A run that goes back leaves the signal to its
 * controller, which records it. */
fl_status fl_start_stop_look(const fl_preparation *p, bool has_met,
                             fl_run_result *result) FL_MUST_CHECK;

/* Whether the run has ended before its training began. */
bool fl_start_stop_is_early(fl_status status, const fl_run_result *result);

/* The run has returned: say so if it was stopped early, also by a signal that is still pending, and
 * restore the mask of the caller. */
void fl_start_stop_end(fl_status status, fl_run_result *result, const sigset_t *mask);

#endif
