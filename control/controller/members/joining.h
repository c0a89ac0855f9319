/* Starts processes again of workers that were lost, or that left and are wanted back, and has them
 * join the run as standby workers.
 *
 *     lost ── DELAYED ──(1, 2, 4 ... 60 s)──> STARTING ──(ready, no other change)──> ASKED
 *                ^                             │      ^                                │
 *                └──────(it has ended)─────────┘      └──(the transition is over, and──┤
 *                                                         it is no member yet)         │
 *     a worker as any other <──────────────────────────────(it has committed)──────────┘
 *
 * The members may not know yet that the process before is no member any more: then a first
 * transition tells them, and a second one brings the new process in. A worker that joins is no
 * member of the run until the transition commits: its end disturbs nobody. fault.restarts limits
 * how often a lost worker is started again without a request. Then the plan is decided anew
 * (replan.h). */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_JOINING_H
#define FL_CONTROL_CONTROLLER_MEMBERS_JOINING_H

#include "control/controller/parts/joining_state.h"

#include <frostline/status.h>

typedef struct fl_controller fl_controller;

/* Seconds before the n-th restart (from 1) of a rank. Pure. */
int64_t fl_joining_delay_s(int n);

/* The run goes on without this worker: start its process again, if fault.restarts allows that. */
void fl_joining_lost(fl_controller *controller, int rank, int64_t now_us);

/* Whether the running generation is the first one of this worker, and the transition to it is not
 * over: the worker may not know the run's state yet. */
bool fl_joining_is_half_in(const fl_controller *controller, int rank);

/* A request wants `n` more workers: start processes of ranks that were lost or have left, unless
 * they are on their way already; one whose restart is delayed is started at once. Returns false,
 * with fl_errmsg, if fewer than `n` can be started, or if one that was started for a request has
 * ended before it joined. */
bool fl_joining_want(fl_controller *controller, int n, int64_t now_us);

/* Its host has joined: start its process now, whatever fault.restarts allows. */
void fl_joining_host_is_back(fl_controller *controller, int rank, int64_t now_us);

/* Its host leaves: no process is started, and one that has not joined yet ends. */
void fl_joining_forbid(fl_controller *controller, int rank);

/* Drive it, in every turn of the loop. */
void fl_joining_watch(fl_controller *controller, int64_t now_us);

/* The run ends: end what has not joined. */
void fl_joining_end(fl_controller *controller);

#endif
