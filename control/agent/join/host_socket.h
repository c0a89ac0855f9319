/* The head's socket for the agents of other hosts: a ROUTER with CURVE, which admits the key of the
 * run's agents alone. */
#ifndef FL_CONTROL_AGENT_JOIN_HOST_SOCKET_H
#define FL_CONTROL_AGENT_JOIN_HOST_SOCKET_H

#include "control/agent/wire/host_wire.h"
#include "control/link/keys/zap_auth.h"

enum { FL_HOST_ID_MAX = 255 /* ZeroMQ's own limit */ };

typedef struct fl_host_socket {
    void *zmq, *socket;
    fl_zap_auth *guard;
} fl_host_socket;

/* A connection. One that breaks and comes back is another connection. */
typedef struct fl_host_peer {
    unsigned char bytes[FL_HOST_ID_MAX];
    size_t n;
    char address[FL_HOST_TEXT]; /* from which it comes; "": not known */
} fl_host_peer;

bool fl_host_peer_is(const fl_host_peer *a, const fl_host_peer *b);

/* Bind hosts->agents; another process may have the port for wait_ms. FL_EBUSY: it has it still.
 * Close the socket also after a failure. */
fl_status fl_host_socket_open(const fl_hosts *hosts, int64_t wait_ms,
                              fl_host_socket *out) FL_MUST_CHECK;

/* Waits until the last messages are sent, a fifth of a second at most. */
void fl_host_socket_close(fl_host_socket *socket);

/* Never waits; false if the connection takes no message now, or is gone. */
bool fl_host_socket_send(const fl_host_socket *socket, const fl_host_peer *to,
                         const fl_host_message *message);

/* Whether the send that has failed just now found its connection closed. */
bool fl_host_socket_found_closed(void);

/* One message: *n bytes, 0 if it had too many parts or bytes. Never waits; false when none is
 * there.
 */
bool fl_host_socket_read(const fl_host_socket *socket, fl_host_peer *from,
                         unsigned char bytes[FL_HOST_MESSAGE_MAX], size_t *n);

#endif
