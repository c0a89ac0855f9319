/* Reports of a host: the event of its state, and the times at which it joined and left. */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_HOST_REPORT_H
#define FL_CONTROL_CONTROLLER_MEMBERS_HOST_REPORT_H

#include <stdint.h>

typedef struct fl_controller fl_controller;

/* Each turn, for host i. A host that leaves and joins between two turns is reported once, as what
 * it is now. */
void fl_host_report(fl_controller *controller, int i, int64_t now_us);

/* The finished steps of the run when this worker was lost. One that was lost with its host was lost
 * when the host was, at the step that the host's event names. */
int64_t fl_host_report_loss_step(const fl_controller *controller, int rank);

/* Of hosts that were lost or drained before the run went back, and whose events were cut off: they
 * stand before that of the return, as their times do. */
void fl_host_report_gone(fl_controller *controller, int64_t now_us);

#endif
