#include "control/agent/join/host_socket.h"

#include "control/link/keys/zmq_socket.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

enum { LINGER_MS = 200 };

bool fl_host_peer_is(const fl_host_peer *a, const fl_host_peer *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

bool fl_host_socket_open(const fl_hosts *hosts, fl_host_socket *out)
{
    *out = (fl_host_socket){.zmq = zmq_ctx_new()};
    out->socket = out->zmq == NULL ? NULL : zmq_socket(out->zmq, ZMQ_ROUTER);
    return out->socket != NULL &&
           fl_zap_auth_create_for(hosts->secret, hosts->keys.public_key, &out->guard) == FL_OK &&
           fl_zap_auth_open(out->guard, out->zmq) == FL_OK &&
           fl_zap_auth_protect(out->guard, out->socket) &&
           fl_zmq_set(out->socket, ZMQ_LINGER, LINGER_MS) &&
           fl_zmq_set(out->socket, ZMQ_ROUTER_MANDATORY, 1) &&
           fl_zmq_limit_messages(out->socket, FL_HOST_MESSAGE_MAX) &&
           fl_zap_auth_bind(out->guard, out->zmq, out->socket, hosts->agents) == FL_OK;
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

bool fl_host_socket_read(const fl_host_socket *s, fl_host_peer *from,
                         unsigned char bytes[FL_HOST_MESSAGE_MAX], size_t *n)
{
    int more = 0, n_parts = 1, size = 0;
    size_t more_bytes = sizeof more;
    int n_id = zmq_recv(s->socket, from->bytes, sizeof from->bytes, ZMQ_DONTWAIT);
    if (n_id < 0) {
        return false;
    }
    while (zmq_getsockopt(s->socket, ZMQ_RCVMORE, &more, &more_bytes) == 0 && more) {
        size = zmq_recv(s->socket, bytes, FL_HOST_MESSAGE_MAX, ZMQ_DONTWAIT);
        n_parts++;
    }
    from->n = (size_t)n_id;
    *n = n_parts == 2 && size >= 0 && size <= FL_HOST_MESSAGE_MAX ? (size_t)size : 0;
    return true;
}
