/* What workers send to the controller, and what is sent to them. */
#ifndef FL_CONTROL_CONTROLLER_INBOX_H
#define FL_CONTROL_CONTROLLER_INBOX_H

#include "control/link/wire.h"

typedef struct fl_controller fl_controller;

/* Bind the ROUTER to RUN/link, readable by this user alone. */
fl_status fl_inbox_open(fl_controller *controller) FL_MUST_CHECK;
void fl_inbox_close(fl_controller *controller);

/* Where workers connect. Through the inherited descriptor of the run directory, since a socket's
 * path may have 107 bytes only and a run directory's may be longer. */
void fl_inbox_endpoint(int dir_fd, char *text, size_t size_bytes);

/* Remove the socket's file: everybody has connected, and nothing is left when the controller is
 * killed.
 */
void fl_inbox_hide(fl_controller *controller);

/* Handle all that has come, without waiting. */
void fl_inbox_read(fl_controller *controller);

/* Process the step reports whose turn it is. */
void fl_inbox_drain_reports(fl_controller *controller);

/* Tell one worker; a worker without a link is passed over. */
void fl_inbox_tell(fl_controller *controller, int rank, const fl_wire_message *order);
void fl_inbox_tell_all(fl_controller *controller, const fl_wire_message *order);
fl_wire_message fl_inbox_order(const fl_controller *controller, fl_wire_type type);

/* Send a command to the leader, and wake standby workers to hear it. */
void fl_inbox_command(fl_controller *controller, const fl_command *command);
void fl_inbox_wake_standby(fl_controller *controller);

#endif
