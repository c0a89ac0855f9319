/* The gate of a run with several hosts: a process on the head, between the controller and the
 * agents. To the controller it looks as one agent of all workers. */
#ifndef FL_CONTROL_AGENT_GATE_GATE_H
#define FL_CONTROL_AGENT_GATE_GATE_H

#include "control/agent/process/agent.h"

/* Exit codes of the gate: 0, 1 if it failed or the agent of this host ended by itself, 2 if another
 * process has the port where agents join, and 128 plus the number of the signal that killed the
 * agent of this host. */
enum { FL_GATE_PORT_TAKEN = 2, FL_GATE_AGENT_KILLED = 128 };

/* The body of the gate: forks the agent of this host, waits for those of the others, and returns
 * only by _exit. The caller has forked this process and set what it does when its parent dies.
 * options   hosts is not NULL; dir_fd: a directory that all hosts share
 * socket    connected to the controller, SOCK_SEQPACKET
 * children  [n_workers], cleared */
_Noreturn void fl__gate_run(const fl_agent_options *options, int socket, fl_agent_child *children);

#endif
