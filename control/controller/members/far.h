/* Workers on other hosts than the controller's, with which it shares no memory. */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_FAR_H
#define FL_CONTROL_CONTROLLER_MEMBERS_FAR_H

#include "control/controller/parts/parts.h"

/* Open the control link, on a network, too, where the run has other hosts. */
fl_status fl_far_open_router(fl_controller *controller) FL_MUST_CHECK;

/* Once a worker is done, workers of other hosts have written their layers into the model's file:
 * note each that this host finds there as they do; its own workers note theirs themselves. FL_EIO,
 * and which host has written a layer elsewhere, or damaged. */
fl_status fl_far_note_layers(const fl_controller *controller) FL_MUST_CHECK;

#endif
