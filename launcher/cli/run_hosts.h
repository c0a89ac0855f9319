/* The hosts that frostline run trains on, where it has several. */
#ifndef FL_LAUNCHER_CLI_RUN_HOSTS_H
#define FL_LAUNCHER_CLI_RUN_HOSTS_H

#include "control/state/hosts.h"
#include "launcher/cli/cli.h"
#include "launcher/job/cluster_file.h"

/* Large, so they are in memory from fl_alloc. NULL: the run has this host alone. */
typedef struct fl_run_hosts {
    fl_cluster_file *file;
    fl_hosts *hosts;
} fl_run_hosts;

/* Options that exclude each other. FL_EINVAL. */
fl_status fl_run_hosts_check_options(const fl_args *args) FL_MUST_CHECK;

/* Whether --hosts or the job gives hosts, or an option asks for them. */
bool fl_run_hosts_are_given(const fl_args *args, const fl_job *job);

/* Find them, and make the job one of these hosts. *out is empty before; fl_run_hosts_free also
 * after a failure. */
fl_status fl_run_hosts_take(const fl_args *args, fl_job *job, fl_run_hosts *out) FL_MUST_CHECK;
void fl_run_hosts_free(fl_run_hosts *hosts);

#endif
