/* Plans for a machine whose GPUs, or processors, are not all linked alike. */
#ifndef FL_LAUNCHER_RUN_PLAN_ISLANDS_H
#define FL_LAUNCHER_RUN_PLAN_ISLANDS_H

#include "launcher/run/plan/preparation.h"

/* Worker i on device i of these islands: one host, a socket for each island. Links within islands
 * cost what the profile has for a link, those between islands what it has for far ones. false:
 * there is nothing to tell apart, or it was not measured; *out is unchanged. Pure. */
bool fl_run_islands_cluster(const fl_device_survey *devices, const fl_profile *profile,
                            int n_workers, fl_cluster *out);

/* The same in a cluster whose first n_here devices are of this machine, by its sockets. false: as
 * above; *cluster is unchanged. Pure. */
bool fl_run_islands_split(const fl_device_survey *devices, const fl_profile *profile, int n_here,
                          fl_cluster *cluster);

/* With the costs: let plans be made for the islands of this machine, if each worker has a GPU, or
 * processors, of its own, and the run cannot grow. On several hosts, only sockets count, and only
 * if this host's entry does not state them. */
fl_status fl_run_islands_use(fl_preparation *p) FL_MUST_CHECK;

#endif
