/* Where new clients of a socket in a folder wait while the run has no descriptor for them.
 *
 *     opened   NAME: the run's socket
 *     shut     NAME: a socket of which nobody takes connections; NAME.open: the run's socket
 *
 * A connection that nobody takes costs the run no descriptor. Once there is room again, the run's
 * socket gets its name back and connections that wait are closed, so that ZeroMQ at their other end
 * connects again. Connections that the run has taken are not touched. */
#ifndef FL_CONTROL_LINK_KEYS_WAITING_ROOM_H
#define FL_CONTROL_LINK_KEYS_WAITING_ROOM_H

#include <stdbool.h>

/* Let new clients of the socket `name` wait, for this user alone (mode 0600). Returns the
 * descriptor for fl_waiting_room_open; -1: an error (errno), and nothing has changed. */
int fl_waiting_room_shut(int dir_fd, const char *name);

/* Let them in: *room becomes -1. False: an error (errno), and they wait; with ENOENT, somebody has
 * removed the run's socket: *room is -1, and `name` is removed, too, so that no client waits for an
 * answer that never comes. */
bool fl_waiting_room_open(int dir_fd, const char *name, int *room);

/* The run ends: remove what the name of its own socket is meanwhile. */
void fl_waiting_room_remove(int dir_fd, const char *name, int *room);

/* Remove what a process has left that was killed while clients waited. */
void fl_waiting_room_forget(int dir_fd, const char *name);

/* Whether new clients wait; for a client. */
bool fl_waiting_room_is_shut(int dir_fd, const char *name);

#endif
