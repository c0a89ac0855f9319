/* How the parts of the controller open and close. */
#ifndef FL_CONTROL_CONTROLLER_CONTROLLER_OPEN_H
#define FL_CONTROL_CONTROLLER_CONTROLLER_OPEN_H

#include "control/controller/parts/parts.h"

/* Open all parts, start the agent, and wait until each worker has a process. Close them after a
 * failure, too. */
fl_status fl__controller_open(fl_controller *controller) FL_MUST_CHECK;

/* status: how the run has ended */
void fl__controller_close(fl_controller *controller, fl_status status);

/* Whether SIGTERM has ended the run, or its start, where that signal is still pending. */
bool fl__controller_is_terminated(const fl_shutdown *shutdown);

/* Give the metrics endpoint what it shows, if that is due. */
void fl__controller_tell_metrics(fl_controller *controller);

#endif
