#include "control/agent/join/host_socket.h"

#include "control/link/keys/zmq_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { LINGER_MS = 200 };

bool fl_host_peer_is(const fl_host_peer *a, const fl_host_peer *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static bool set_options(const fl_host_socket *s)
{
    return fl_zap_auth_protect(s->guard, s->socket) &&
           fl_zmq_set(s->socket, ZMQ_LINGER, LINGER_MS) &&
           fl_zmq_set(s->socket, ZMQ_ROUTER_MANDATORY, 1) &&
           fl_zmq_limit_messages(s->socket, FL_HOST_MESSAGE_MAX);
}

fl_status fl_host_socket_open(const fl_hosts *hosts, int64_t wait_ms, fl_host_socket *out)
{
    *out = (fl_host_socket){.zmq = zmq_ctx_new()};
    out->socket = out->zmq == NULL ? NULL : zmq_socket(out->zmq, ZMQ_ROUTER);
    if (out->socket == NULL) {
        return fl_fail(FL_EIO, "cannot wait for hosts: %s", zmq_strerror(zmq_errno()));
    }
    FL_TRY(fl_zap_auth_create_for(hosts->secret, hosts->keys.public_key, &out->guard));
    FL_TRY(fl_zap_auth_open(out->guard, out->zmq));
    return set_options(out)
               ? fl_zap_auth_bind_own(out->guard, out->zmq, out->socket, hosts->agents,
                                      "where agents join (PORT of --listen)", wait_ms)
               : fl_fail(FL_EIO, "cannot wait for hosts: %s", zmq_strerror(zmq_errno()));
}

void fl_host_socket_close(fl_host_socket *s)
{
    if (s->socket != NULL) {
        zmq_close(s->socket);
    }
    if (s->guard != NULL) {
        fl_zap_auth_close(s->guard);
        fl_zap_auth_destroy(&s->guard);
    }
    if (s->zmq != NULL) {
        zmq_ctx_term(s->zmq);
    }
    *s = (fl_host_socket){.zmq = NULL};
}

bool fl_host_socket_send(const fl_host_socket *s, const fl_host_peer *to,
                         const fl_host_message *message)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(message, bytes);
    return zmq_send(s->socket, to->bytes, to->n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(s->socket, bytes, n, ZMQ_DONTWAIT) >= 0;
}

bool fl_host_socket_found_closed(void)
{
    return zmq_errno() == EHOSTUNREACH; /* ZMQ_ROUTER_MANDATORY */
}

static void take_part(zmq_msg_t *part, int size, unsigned char bytes[FL_HOST_MESSAGE_MAX],
                      fl_host_peer *from)
{
    const char *address = size < 0 ? NULL : zmq_msg_gets(part, "Peer-Address");
    if (address != NULL) {
        snprintf(from->address, sizeof from->address, "%s", address);
    }
    if (size > 0 && size <= FL_HOST_MESSAGE_MAX) {
        memcpy(bytes, zmq_msg_data(part), (size_t)size);
    }
}

bool fl_host_socket_read(const fl_host_socket *s, fl_host_peer *from,
                         unsigned char bytes[FL_HOST_MESSAGE_MAX], size_t *n)
{
    int more = 0, n_parts = 1, size = 0;
    size_t more_bytes = sizeof more;
    zmq_msg_t part;
    int n_id = zmq_recv(s->socket, from->bytes, sizeof from->bytes, ZMQ_DONTWAIT);
    if (n_id < 0) {
        return false;
    }
    from->address[0] = '\0';
    zmq_msg_init(&part);
    while (zmq_getsockopt(s->socket, ZMQ_RCVMORE, &more, &more_bytes) == 0 && more) {
        size = zmq_msg_recv(&part, s->socket, ZMQ_DONTWAIT);
        take_part(&part, size, bytes, from);
        n_parts++;
    }
    zmq_msg_close(&part);
    from->n = (size_t)n_id;
    *n = n_parts == 2 && size >= 0 && size <= FL_HOST_MESSAGE_MAX ? (size_t)size : 0;
    return true;
}
