/* Keeps connections from taking the descriptors that the run needs.
 *
 * ZeroMQ accepts every connection that comes, and ends the process where it finds no descriptor.
 * One thread watches the sockets that listen and counts the descriptors of the process. Where they
 * reach a limit, the sockets are shut; connections that exist go on.
 *
 *     ports              anybody may come: the limit leaves a quarter of all descriptors, and 64 at
 *                        least. The kernel drops whatever arrives for new connections. A client
 *                        whose first packet was dropped sends it again, after 1 s, 2 s, 4 s, and so
 *                        comes in once strangers have been closed (ZMQ_HANDSHAKE_IVL).
 *     sockets of a       clients of this user: the limit leaves a quarter of that. New clients
 *     folder             wait (waiting_room.h). */
#ifndef FL_CONTROL_LINK_KEYS_DOOR_H
#define FL_CONTROL_LINK_KEYS_DOOR_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { FL_DOOR_SOCKETS_MAX = 2 };

typedef enum fl_door_kind { FL_DOOR_PORTS, FL_DOOR_FOLDER } fl_door_kind;

typedef struct fl_door fl_door;

/* Start the thread, for sockets of this process. FL_EIO, FL_ENOMEM. */
fl_status fl_door_open(fl_door_kind kind, fl_door **out) FL_MUST_CHECK;

/* Sockets of a folder that are shut stay so, and lose their names. NULL is allowed. */
void fl_door_close(fl_door **door);

/* zmq_bind of a TCP endpoint, whose port the thread watches from then on. zmq: the socket's
 * context. False, with zmq_errno. */
bool fl_door_bind(fl_door *door, void *zmq, void *socket, const char *endpoint);

/* The same for the file `name` of a folder, which only this user can open (fl_zmq_bind_private).
 * dir_fd: stays open for as long as the door. */
bool fl_door_bind_file(fl_door *door, void *zmq, void *socket, int dir_fd, const char *name);

/* The number of descriptors at which ports are shut.
 * limit  RLIMIT_NOFILE
 * open   descriptors that the process had before its ports
 * Pure. */
int fl_door_most(uint64_t limit, int open);

/* The same for the sockets of a folder. Pure. */
int fl_door_most_near(uint64_t limit);

/* The lowest RLIMIT_NOFILE at which ports are not shut below `most` descriptors. Pure. */
uint64_t fl_door_limit(uint64_t most);

/* How many connections may wait for accept at each socket. Those still come in when sockets are
 * shut, so at all of them together they have half of the descriptors that are left then.
 * most       of fl_door_most or fl_door_most_near
 * n_sockets  of a run
 * Pure. */
int fl_door_backlog(uint64_t limit, int most, int n_sockets);

#endif
