/* The port at which agents join, while the head makes a plan: after hosts have measured, and when
 * the run goes back. No gate is there then, and nothing reads what comes. The kernel takes
 * connections all the same, so that agents see that the head lives; when it dies, they are refused
 * (control/agent/relay/head_watch.h). */
#ifndef FL_CONTROL_AGENT_JOIN_HELD_PORT_H
#define FL_CONTROL_AGENT_JOIN_HELD_PORT_H

/* Listen at "tcp://ADDRESS:PORT". A descriptor; -1, with errno: the port is not held. The caller
 * closes it before it forks a process that binds the port, which would inherit it. */
int fl_held_port_open(const char *endpoint);

/* The same for *fd, unless a port is held there; one that cannot be held is logged. */
void fl_held_port_hold(const char *endpoint, int *fd);

/* *fd: -1 afterwards, and allowed; fd may be NULL. */
void fl_held_port_close(int *fd);

#endif
