/* The hosts that frostline run trains on, where it has several: from an engine that has started
 * this process on each of them, from --hosts, or from the job. */
#ifndef FL_LAUNCHER_CLI_HOSTS_RUN_HOSTS_H
#define FL_LAUNCHER_CLI_HOSTS_RUN_HOSTS_H

#include "control/state/hosts/hosts.h"
#include "launcher/cli/cli.h"
#include "launcher/engine/meeting.h"
#include "launcher/job/cluster_file.h"

typedef struct fl_run_hosts {
    fl_engine_task task;
    fl_meeting meeting;    /* of the tasks of an engine */
    fl_cluster_file *file; /* from fl_alloc; NULL: the run has this host alone */
    fl_hosts *hosts;       /* the same */
    int stopped_by;        /* a signal, while the head waited for the other tasks; 0: none */
} fl_run_hosts;

/* Look for an engine, and refuse options that exclude each other. FL_EINVAL. fl_run_hosts_fini also
 * after a failure. */
fl_status fl_run_hosts_init(const fl_args *args, fl_run_hosts *out) FL_MUST_CHECK;
void fl_run_hosts_fini(fl_run_hosts *hosts);

/* Whether an engine, --hosts or the job gives hosts, or an option asks for them. */
bool fl_run_hosts_are_given(const fl_args *args, const fl_job *job, const fl_run_hosts *hosts);

/* Find them, and make the job one of these hosts. Waits for the other tasks of an engine. */
fl_status fl_run_hosts_take(const fl_args *args, fl_job *job, fl_run_hosts *hosts) FL_MUST_CHECK;

/* As a task of an engine: open the meeting. Also returns what loading the job returns. */
fl_status fl_run_hosts_meet(const fl_args *args, fl_run_hosts *hosts) FL_MUST_CHECK;

/* As another task than the head: serve the run until it is over. Returns the exit code: 0, too, for
 * a host that has left the run, which the head's own code tells. */
int fl_run_hosts_serve(const fl_args *args, fl_run_hosts *hosts);

/* As the head: tell the tasks that still wait that it has ended. */
void fl_run_hosts_end(const fl_run_hosts *hosts, int exit_code);

#endif
