/* The keys of a network between hosts: ZeroMQ's CURVE, which encrypts a connection and proves to
 * each end that the other one has its secret key. Keys are texts of 40 characters (Z85). */
#ifndef FL_AUTODP_NET_STORE_CURVE_H
#define FL_AUTODP_NET_STORE_CURVE_H

#include <stdbool.h>

enum { FL_CURVE_KEY = 41 }; /* bytes of a key in Z85, with its zero */

/* What a client needs: the public key of the server, and its own pair. */
typedef struct fl_curve_keys {
    char server[FL_CURVE_KEY];
    char public_key[FL_CURVE_KEY], secret[FL_CURVE_KEY];
} fl_curve_keys;

/* Have this ZeroMQ socket connect with these keys only. NULL: connections are not encrypted. False,
 * with zmq_errno, if the socket does not take them. */
bool fl_curve_client(const fl_curve_keys *keys, void *socket);

#endif
