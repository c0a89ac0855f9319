/* Receives the messages of the controller's ROUTER socket and hands each to the part that handles
 * it. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_INBOX_H
#define FL_CONTROL_CONTROLLER_COURSE_INBOX_H

#include "control/controller/parts/inbox_state.h"

typedef struct fl_controller fl_controller;

/* Handle all messages that have arrived. Never waits. */
void fl_inbox_read(fl_controller *controller);

/* Process the step reports that are next in the order of the steps. */
void fl_inbox_drain_reports(fl_controller *controller);

/* Report the epoch in stats->past, to the program's callback as well, and restart the sums of the
 * workers' times. */
void fl_inbox_end_epoch(fl_controller *controller);

#endif
