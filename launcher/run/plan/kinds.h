/* The kinds of devices of a run on several hosts: hosts whose layers cost other than on the head
 * have a profile of their own, and the planner prices each device by that of its kind. */
#ifndef FL_LAUNCHER_RUN_PLAN_KINDS_H
#define FL_LAUNCHER_RUN_PLAN_KINDS_H

#include "launcher/run/plan/preparation.h"

/* The cluster with its kinds, and what they cost. About 500 KiB. */
typedef struct fl_run_kinds {
    fl_cluster cluster;
    fl_profile profile[FL_KINDS_MAX]; /* [cluster.n_kinds] */
    fl_profile_about about[FL_KINDS_MAX];
    fl_kind_origin origin[FL_KINDS_MAX]; /* borrows from here, from p->found and from the file of
                                            hosts */
} fl_run_kinds;

/* Read the profiles that the file of hosts names, and take those of p->found: from here on, plans
 * are for devices of these kinds. Once more when p->profile or p->found has changed. Returns
 * FL_EINVAL with the host and the file. */
fl_status fl_run_kinds_use(fl_preparation *p) FL_MUST_CHECK;

/* Plans are for devices of the head's kind. */
void fl_run_kinds_drop(fl_preparation *p);

#endif
