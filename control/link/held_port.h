/* The two ports of a head, while it makes a plan: before and after hosts measure, and when the run
 * goes back. No gate and no router is there then, and nothing reads what comes. The kernel takes
 * connections all the same, so that agents see that the head lives; when it dies, they are refused
 * (control/agent/relay/head_watch.h). No other process gets the ports meanwhile, not even for a
 * connection to somewhere else, for which the kernel chooses a port. */
#ifndef FL_CONTROL_LINK_HELD_PORT_H
#define FL_CONTROL_LINK_HELD_PORT_H

/* Descriptors that hold the ports; -1: the port is not held. */
typedef struct fl_held_ports {
    int agents; /* where they join: fl_hosts.agents. The gate binds it */
    int links;  /* of the control links of workers: fl_hosts.links. The controller's router does */
} fl_held_ports;

/* Listen at "tcp://ADDRESS:PORT". A descriptor; -1, with errno: the port is not held. The caller
 * closes it before it forks a process that binds the port; a process that inherits one drops its
 * copy. */
int fl_held_port_open(const char *endpoint);

/* The same for *fd, unless a port is held there; one that cannot be held is logged. */
void fl_held_port_hold(const char *endpoint, int *fd);

/* The same for both. */
void fl_held_ports_hold(const char *agents, const char *links, fl_held_ports *ports);

/* Give the port up. It can be bound at once, even if other processes have copies of *fd: nothing
 * listens at these any more. *fd: -1 afterwards, and allowed; fd may be NULL. */
void fl_held_port_close(int *fd);

/* The same for both. */
void fl_held_ports_close(fl_held_ports *ports);

/* In a process that has inherited them: the ports stay held by the one that opened them. Both are
 * -1 afterwards; ports may be NULL. */
void fl_held_ports_drop_copies(fl_held_ports *ports);

#endif
