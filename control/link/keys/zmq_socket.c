#include "control/link/keys/zmq_socket.h"

#include <sys/stat.h>
#include <zmq.h>

bool fl_zmq_set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

bool fl_zmq_limit_messages(void *socket, int64_t largest_bytes)
{
    return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest_bytes, sizeof largest_bytes) == 0;
}

bool fl_zmq_bind_private(void *socket, const char *endpoint)
{
    mode_t before = umask(0177);
    bool bound = zmq_bind(socket, endpoint) == 0;
    umask(before);
    return bound;
}
