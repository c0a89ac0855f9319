/* When a host joined or left, by the clock of the run and since 1970. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_HOST_TIMES_H
#define FL_CONTROL_CONTROLLER_PARTS_HOST_TIMES_H

typedef struct fl_controller fl_controller;

/* Note in the record of host i what has happened and is not noted yet. A host that was in the run
 * when it went back, and joins again with it, has joined when it first did. */
void fl_host_times_note(const fl_controller *controller, int i);

#endif
