/* The hosts that a job would run on, for commands that start nothing there and may be used on
 * another machine than the first host. */
#ifndef FL_LAUNCHER_CLI_HOSTS_PLANNED_HOSTS_H
#define FL_LAUNCHER_CLI_HOSTS_PLANNED_HOSTS_H

#include "control/state/hosts/hosts.h"
#include "launcher/job/cluster_file.h"

#include <frostline/job.h>

/* About 400 KiB. */
typedef struct fl_planned_hosts {
    fl_cluster_file file;
    fl_hosts hosts; /* without addresses, keys and ports */
} fl_planned_hosts;

/* Those of the file at `path`, or, with NULL, of the job, which becomes one of these hosts, as that
 * of a run does. *out: the caller's, by fl_free; NULL if the job has none, and after a failure.
 * Returns FL_EINVAL for hosts, or a job, that a run would refuse. */
fl_status fl_planned_hosts_make(const char *path, fl_job *job,
                                fl_planned_hosts **out) FL_MUST_CHECK;

#endif
