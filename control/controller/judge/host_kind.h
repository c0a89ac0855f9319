/* The kind of a host that joins: plans price its devices by the profile of the kind that it has
 * now, which may be another one than before, as after a change of the machine behind a name. */
#ifndef FL_CONTROL_CONTROLLER_JUDGE_HOST_KIND_H
#define FL_CONTROL_CONTROLLER_JUDGE_HOST_KIND_H

#include "control/state/hosts/costs_origin.h"
#include "device/machine/machine_kind.h"

#include <frostline/job.h>

/* What kind_of has for the devices of a host of this kind: 0 for the kind of the head, and for one
 * of which the run has no profile (*known false). own  of the head. Pure. */
int fl_host_kind_find(const fl_costs_origin *costs, fl_device_kind devices,
                      const fl_machine_kind *own, const fl_machine_kind *kind, bool *known);

/* Give the devices of a host, which has joined as this kind, its profile in plans from now on. What
 * the file of hosts states, its profile or its speed, stays. */
void fl_host_kind_take(const fl_costs_origin *costs, fl_device_kind devices, const fl_host *host,
                       const fl_machine_kind *kind, fl_cluster *cluster);

#endif
