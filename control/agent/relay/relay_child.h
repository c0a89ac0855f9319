/* The process of the relay that becomes the agent of its host. Until the host has joined, it does
 * what the head orders: it has links measured (host_probe.h), and what layers cost
 * (host_measure.h). */
#ifndef FL_CONTROL_AGENT_RELAY_RELAY_CHILD_H
#define FL_CONTROL_AGENT_RELAY_RELAY_CHILD_H

#include "control/agent/relay/relay.h"

#include <signal.h>
#include <sys/types.h>

/* The body of the process. It reads messages of the head from the socket, as host_wire.h has them:
 * PROBE and MEASURE, and the welcome last. Messages to the head go into it in the same form.
 * before: the signals that it has blocked. */
_Noreturn void fl__relay_child(const fl_relay_options *o, int job_fd, int socket, pid_t parent,
                               const sigset_t *before);

#endif
