/* Carries what a run keeps when it goes back (control/state/lasting.h) from one controller to the
 * next. */
#ifndef FL_CONTROL_CONTROLLER_REPORT_LASTING_H
#define FL_CONTROL_CONTROLLER_REPORT_LASTING_H

#include <stdint.h>

typedef struct fl_controller fl_controller;

/* The files are open: the clock of the run is that of its first controller. */
void fl_lasting_keep_clock(fl_controller *controller);

/* Into *options->lasting, if that is wanted: all workers have left. */
void fl_lasting_keep(const fl_controller *controller);

/* The part of it that is about the hosts: a run that could not start may go on without them.
 */
void fl_lasting_keep_hosts(const fl_controller *controller);

/* For how long a start that is given up has waited for them. */
void fl_lasting_keep_wait(const fl_controller *controller, int64_t now_us);

/* From there, if there was a controller before: after the state of the snapshot or the checkpoint
 * was taken over, before workers start. The workers' part is in their birth. */
void fl_lasting_restore(fl_controller *controller);

#endif
