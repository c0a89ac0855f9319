/* The port at which agents join, while the head chooses where the run goes back to. The gate has
 * ended then, and nothing reads what comes. The kernel takes connections all the same, so that
 * agents see that the head lives; when it dies, they are refused
 * (control/agent/relay/head_watch.h). */
#ifndef FL_CONTROL_AGENT_JOIN_HELD_PORT_H
#define FL_CONTROL_AGENT_JOIN_HELD_PORT_H

/* Listen at "tcp://ADDRESS:PORT". A descriptor; -1, with errno: the port is not held. The caller
 * closes it before it forks a process that binds the port, which would inherit it. */
int fl_held_port_open(const char *endpoint);

/* *fd: -1 afterwards, and allowed. */
void fl_held_port_close(int *fd);

#endif
