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
#ifndef FL_CONTROL_CONTROLLER_HOST_WATCH_H
#define FL_CONTROL_CONTROLLER_HOST_WATCH_H

#include "control/controller/attempts.h"
#include "control/state/host_record.h"
#include "control/state/hosts.h"
#include "pipe/cost/cluster.h"
#include "pipe/plan/planner.h"

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_controller fl_controller;

typedef enum fl_host_drain_step {
    FL_HOST_DRAIN_NONE,
    FL_HOST_DRAIN_WANTED,
    FL_HOST_DRAIN_ASKED,
    FL_HOST_DRAIN_LEAVING,
} fl_host_drain_step;

/* One host. */
typedef struct fl_host_drain {
    fl_host_drain_step step;
    uint32_t generation; /* ASKED: the one that was requested */
    int64_t since_us, due_us;
    fl_attempts attempts;   /* to have the run go on without it */
    int k, r;               /* that the run was to have before the drain; 0: none in particular */
    fl_host_state reported; /* events.jsonl has this state */
    int64_t joined_us;      /* and that it joined then */
    int64_t started_us;     /* of that joining, its workers are started */
    bool starts;            /* they have not all joined the run yet, */
    bool any_started;       /* and some process was started for that */
} fl_host_drain;

typedef struct fl_host_watch {
    fl_hosts *table;         /* of the run, with those that join; NULL: the run has one host */
    fl_host_record *records; /* [n_workers] by host */
    fl_host_drain *drains;   /* [n_workers] by host */
    fl_plan_input *input;    /* of later plans, */
    fl_cluster *cluster;     /* with the devices of hosts that join */
} fl_host_watch;

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
