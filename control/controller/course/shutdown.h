/* The states of a run, and its end: after a lost worker (losses.h), after a stop request
 * (stop_request.h), or because it is complete. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_SHUTDOWN_H
#define FL_CONTROL_CONTROLLER_COURSE_SHUTDOWN_H

#include "control/controller/parts/shutdown_state.h"

typedef struct fl_controller fl_controller;

void fl_shutdown_init(fl_shutdown *shutdown, const fl_job *job);

/* The controller's loop starts: silence counts from now on. */
void fl_shutdown_begin(fl_shutdown *shutdown, int64_t now_us);

/* A step was not finite: log it. If the workers end the run because of it, keep the reason. */
void fl_shutdown_nonfinite(fl_controller *controller, const fl_nonfinite_report *report);

/* There was no memory for a report of worker `rank` (fl_errmsg); `kind` names it. The run ends as
 * after a stop, with FL_EFAILED. */
void fl_shutdown_report_lost(fl_controller *controller, int rank, const char *kind);

/* The lines of a pass could not be kept or written (fl_errmsg): it ends, with FL_EFAILED; with
 * FL_ESTOPPED if their reader has left. */
void fl_shutdown_pass_failed(fl_controller *controller, fl_status status);

/* Detect lost workers and passed deadlines, and enter the next state when its condition holds. */
void fl_shutdown_watch(fl_controller *controller, int64_t now_us);

/* All workers have left: determine the result of the run. */
void fl_shutdown_conclude(fl_controller *controller);

#endif
