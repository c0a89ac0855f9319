#include "autodp/net/store/curve.h"

#include <stddef.h>
#include <zmq.h>

bool fl_curve_client(const fl_curve_keys *keys, void *socket)
{
    return keys == NULL ||
           (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, keys->server, FL_CURVE_KEY) == 0 &&
            zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys->public_key, FL_CURVE_KEY) == 0 &&
            zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->secret, FL_CURVE_KEY) == 0);
}
