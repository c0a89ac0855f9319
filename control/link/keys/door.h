/* Keeps a flood of connections from taking the descriptors that the run needs.
 *
 * ZeroMQ accepts every connection that comes, and ends the process where it finds no descriptor.
 * One thread watches the ports and counts the descriptors of the process. Where they reach a limit,
 * it has the kernel drop whatever arrives at the ports for new connections; those that exist go on.
 * A client whose first packet was dropped sends it again, after 1 s, 2 s, 4 s, and so comes in once
 * strangers have been closed (ZMQ_HANDSHAKE_IVL). */
#ifndef FL_CONTROL_LINK_KEYS_DOOR_H
#define FL_CONTROL_LINK_KEYS_DOOR_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { FL_DOOR_PORTS_MAX = 2 };

typedef struct fl_door fl_door;

/* Start the thread, for ports of this process. FL_EIO, FL_ENOMEM. */
fl_status fl_door_open(fl_door **out) FL_MUST_CHECK;
void fl_door_close(fl_door **door);

/* zmq_bind of a TCP endpoint, whose port the thread watches from then on. zmq: the socket's
 * context. False, with zmq_errno. */
bool fl_door_bind(fl_door *door, void *zmq, void *socket, const char *endpoint);

/* The number of descriptors at which ports are shut: whatever comes, a quarter of the limit, and 64
 * at least, stay the run's.
 * limit  RLIMIT_NOFILE
 * open   descriptors that the process had before its ports
 * Pure. */
int fl_door_most(uint64_t limit, int open);

/* The lowest RLIMIT_NOFILE at which ports are not shut below `most` descriptors. Pure. */
uint64_t fl_door_limit(uint64_t most);

/* How many connections may wait for accept at each port. Those still come in when ports are shut,
 * so at all ports together they have half of the descriptors that are left then.
 * most  of fl_door_most
 * Pure. */
int fl_door_backlog(uint64_t limit, int most);

#endif
