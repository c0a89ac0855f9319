/* Finds lost workers, and lets the run go on without them or end. Its state is in fl_shutdown. */
#ifndef FL_CONTROL_CONTROLLER_COURSE_LOSSES_H
#define FL_CONTROL_CONTROLLER_COURSE_LOSSES_H

#include <stdint.h>

typedef struct fl_controller fl_controller;

/* In every turn of the loop until the run ends: find a lost worker, and drive what follows. */
void fl_losses_watch(fl_controller *controller, int64_t now_us);

/* Report those that were lost and that the run continues without, unless the event log has them. */
void fl_losses_report_spared(fl_controller *controller);

/* Write into shutdown.message which worker was lost and how, from everything that is known by now.
 */
void fl_losses_explain(fl_controller *controller);

/* All workers have left, and the run goes back: count those that were lost, by their own death or
 * in a recovery that has failed. */
void fl_losses_count(fl_controller *controller);

/* Set phase.back: whether the run goes back for the loss that ends these processes. */
void fl_losses_find_return(fl_controller *controller);

#endif
