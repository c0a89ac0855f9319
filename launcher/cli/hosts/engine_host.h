/* This host as a task of an engine: what it says to the others, and its part if it is not the head.
 */
#ifndef FL_LAUNCHER_CLI_HOSTS_ENGINE_HOST_H
#define FL_LAUNCHER_CLI_HOSTS_ENGINE_HOST_H

#include "launcher/cli/hosts/run_hosts.h"

/* Enter the meeting with this host's name, address and number of devices. FL_EINVAL, FL_EIO. */
fl_status fl_engine_host_enter(const fl_args *args, const fl_job *job,
                               fl_run_hosts *h) FL_MUST_CHECK;

#endif
