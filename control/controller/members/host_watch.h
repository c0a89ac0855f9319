/* Takes in hosts and drains them. A drain has the run go on without the workers of a host, and lets
 * its agent end then.
 *
 *     NONE ──(notice of its agent, or a request)──> WANTED ──(no other change)──> ASKED
 *                                                     ^                            │
 *                                                     ├──(not committed: 1, 2, 4 s)┤
 *     DRAINED, RELEASE to its agent <──(all have exited)── LEAVING <──(committed)──┘
 *
 * A host that joins while the run trains, for the first time or again, has its workers started, as
 * standby (joining.h); once they are members, the plan is chosen anew (replan.h).
 *
 * A transition moves all that the workers of the host own, so nothing is lost and no step is
 * repeated. If no plan can do without the host, its agent learns that and ends: that is a loss, as
 * if the notice had not come. */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_HOST_WATCH_H
#define FL_CONTROL_CONTROLLER_MEMBERS_HOST_WATCH_H

#include "control/controller/parts/host_watch_state.h"

#include <frostline/status.h>

typedef struct fl_controller fl_controller;

/* For the hosts of controller->options, if it has several: the options then have copies of them,
 * and of the input of plans, which change when a host joins. */
fl_status fl_host_watch_open(fl_controller *controller) FL_MUST_CHECK;
void fl_host_watch_close(fl_controller *controller);

/* Drive it, in every turn of the loop. */
void fl_host_watch_turn(fl_controller *controller, int64_t now_us);

/* A request wants this host to be drained. FL_EINVAL, and nothing has changed: it is not in the
 * run, or no plan can do without it. Later its record shows the end: DRAINED, LOST, or JOINED with
 * the reason why the drain was given up. */
fl_status fl_host_watch_ask(fl_controller *controller, int i, int64_t now_us) FL_MUST_CHECK;

/* Whether the host of this rank is not in the run, or is to leave: no process is started there. */
bool fl_host_watch_forbids(const fl_controller *controller, int rank);

#endif
