/* What is kept of hosts that join or must leave: see host_watch.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_HOST_WATCH_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_HOST_WATCH_STATE_H

#include "control/controller/judge/attempts.h"
#include "control/state/hosts/host_record.h"
#include "control/state/hosts/hosts.h"
#include "control/state/lasting.h"
#include "pipe/cost/cluster.h"
#include "pipe/plan/planner.h"

#include <stdbool.h>
#include <stdint.h>

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
    fl_attempts attempts; /* to have the run go on without it */
    int k, r;             /* that the run was to have before the drain; 0: none in particular */
    fl_host_told told;    /* events.jsonl has this state, */
    int64_t joined_us;    /* and that it joined then */
    double joined_s;      /* it was in the run when that went back: as in its record then; or 0 */
    int64_t started_us;   /* of that joining, its workers are started */
    bool starts;          /* they have not all joined the run yet, */
    bool any_started;     /* and some process was started for that */
} fl_host_drain;

typedef struct fl_host_watch {
    fl_hosts *table;         /* of the run, with those that join; NULL: the run has one host */
    int n_first;             /* of them: with which the run began */
    fl_host_record *records; /* [n_workers] by host */
    fl_host_drain *drains;   /* [n_workers] by host */
    fl_plan_input *input;    /* of later plans, */
    fl_cluster *cluster;     /* with the devices of hosts that join */
} fl_host_watch;

#endif
