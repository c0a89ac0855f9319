/* What a run that goes back still knows of its hosts: those that were lost or drained, and those
 * that joined by hand, whom the job and the file of hosts do not name. */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_HOST_AGAIN_H
#define FL_CONTROL_CONTROLLER_MEMBERS_HOST_AGAIN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_controller fl_controller;

/* Records of the hosts that are absent at the start, and hosts that have joined by hand: they are
 * absent, too, and join again by their names, with the ranks that they had. An event about a host
 * that events.jsonl still has, behind which it was not cut, is not written again. */
void fl_host_again_take(fl_controller *controller);

/* Whether events.jsonl, cut behind the state that the run goes back to, still has the event of an
 * earlier start that ended there. 0: there was none. */
bool fl_host_again_has_event(const fl_controller *controller, int64_t end_bytes);

/* The finished steps of the run when the host came into its state. A host that was lost before the
 * run went back was lost at the step from which it went back. */
int64_t fl_host_again_step(const fl_controller *controller, int i);

#endif
