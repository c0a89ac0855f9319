/* The rendezvous store: the controller keeps it, workers use it over ZeroMQ. The store is a passive
 * table: control/ passes it the requests and sends its answers. */
#ifndef FL_AUTODP_NET_STORE_STORE_H
#define FL_AUTODP_NET_STORE_STORE_H

#include "autodp/net/net.h"
#include "autodp/net/store/curve.h"

typedef struct fl_store fl_store;

fl_status fl_store_create(fl_store **out) FL_MUST_CHECK;
void fl_store_destroy(fl_store **store);

/* How the store answers; `to` [to_bytes] is the requester (an opaque ZeroMQ identity). */
typedef void fl_store_reply(void *context, const void *to, size_t to_bytes, const void *message,
                            size_t size_bytes);

/* Handle one request. A malformed request is answered with an error and changes nothing. A get for
 * a key that is not set yet is parked, and answered once the key is set. Limits: keys of 256 bytes,
 * values of 1 MiB, 65,536 keys, 4,096 parked. */
void fl_store_handle(fl_store *store, const void *from, size_t from_bytes, const void *request,
                     size_t size_bytes, fl_store_reply *reply, void *context);

/* Forget all keys that start with `prefix` (those of an old generation). */
void fl_store_forget(fl_store *store, const char *prefix);

/* A client: its own ZeroMQ socket to `endpoint` ("ipc://..." or "tcp://..."). The socket talks to a
 * ROUTER whose messages to and from the store start with a frame "store".
 * keys: of a server on a network; NULL: it asks for none.
 * Threads: one at a time. */
typedef struct fl_store_client fl_store_client;
fl_status fl_store_connect(void *zmq_context, const char *endpoint, const fl_curve_keys *keys,
                           fl_store_client **out) FL_MUST_CHECK;
void fl_store_disconnect(fl_store_client **client);
fl_kv fl_store_kv(fl_store_client *client); /* borrows the client */

#endif
