/* Gives work to a worker that has joined by itself: the plan is decided anew.
 *
 *     a lost worker was started again and has joined ①
 *       ──(no other change in progress)──> the plan for all workers (fl_decide_joined) ②
 *       ──> a transition as any other ③ ──(cancelled: a few times again)──> ②
 *
 * A worker that joins on request gets its work from that request. */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_REPLAN_H
#define FL_CONTROL_CONTROLLER_MEMBERS_REPLAN_H

#include "control/controller/parts/replan_state.h"

typedef struct fl_controller fl_controller;

/* The run begins. One that has gone back to a snapshot or a checkpoint, or was resumed, is to have
 * the K and R that it was to have before; its plan may be an older one, or one that was made after
 * a loss, and workers without a stage are all new. */
void fl_replan_begin(fl_controller *controller, int64_t now_us);

/* The run ends, or goes back: what the next controller's fl_replan_begin needs. */
void fl_replan_end(const fl_controller *controller);

/* ① */
void fl_replan_joined(fl_controller *controller, int rank, int64_t now_us);

/* The same for a host that has joined. */
void fl_replan_host_joined(fl_controller *controller, int rank, int64_t now_us);

/* ② and ③, in every turn of the loop. */
void fl_replan_watch(fl_controller *controller, int64_t now_us);

#endif
