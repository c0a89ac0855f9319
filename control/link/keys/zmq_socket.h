/* Settings of ZeroMQ sockets. Each function returns false on failure; zmq_errno() then says why. */
#ifndef FL_CONTROL_LINK_KEYS_ZMQ_SOCKET_H
#define FL_CONTROL_LINK_KEYS_ZMQ_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

/* Set an option whose value is an int. */
bool fl_zmq_set(void *socket, int option, int value);

/* Disconnect a peer that sends a larger message. */
bool fl_zmq_limit_messages(void *socket, int64_t largest_bytes);

/* Bind to the file of an ipc endpoint, which only this user can open (mode 0600). Sets the umask of
 * the process meanwhile: no other thread may create files. */
bool fl_zmq_bind_private(void *socket, const char *endpoint);

#endif
