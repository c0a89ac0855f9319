/* A host that has joined a run: it prepares what its workers inherit, as the head does, and becomes
 * their agent. */
#ifndef FL_LAUNCHER_RUN_JOINED_JOINED_H
#define FL_LAUNCHER_RUN_JOINED_JOINED_H

#include "control/agent/relay/relay.h"

/* For fl_relay_options.serve. context: fl_curve_keys, those of the run. Leaves by _exit: with the
 * agent's exit code, or after a line on standard error with 2. */
void fl_joined_serve(void *context, const fl_host_welcome *welcome, int job_fd, int socket);

#endif
