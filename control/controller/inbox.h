/* What comes to the controller over its router: each message goes to the part that it is for. */
#ifndef FL_CONTROL_CONTROLLER_INBOX_H
#define FL_CONTROL_CONTROLLER_INBOX_H

typedef struct fl_controller fl_controller;

/* Handle all that has come, without waiting. */
void fl_inbox_read(fl_controller *controller);

/* Process the step reports whose turn it is. */
void fl_inbox_drain_reports(fl_controller *controller);

/* Report the epoch that stats->past holds, and sum the workers' times anew. */
void fl_inbox_end_epoch(fl_controller *controller);

#endif
