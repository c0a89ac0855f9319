/* Takes requests to end the run: signals, and what a client or a callback wants. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_STOP_REQUEST_H
#define FL_CONTROL_CONTROLLER_COURSE_STOP_REQUEST_H

#include "control/state/lasting.h"

#include <stdint.h>

typedef struct fl_controller fl_controller;

/* Handle the pending signals: exits of workers, stop requests of the user. */
void fl_stop_request_signals(fl_controller *controller);

/* End the run after the step in flight, as a first Ctrl-C does. who: names who requested it. */
void fl_stop_request(fl_controller *controller, const char *who);

/* Request it again after the run has gone back. Does nothing if wish->who is NULL. */
void fl_stop_request_again(fl_controller *controller, const fl_stop_wish *wish);

/* In every turn of the loop: kill workers that have not stopped within fault.deadline of SIGTERM,
 * and do not wait for those that still open connections. */
void fl_stop_request_watch(fl_controller *controller, int64_t now_us);

#endif
