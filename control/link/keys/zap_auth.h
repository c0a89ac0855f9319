/* Access to a run's sockets over TCP: only clients whose public CURVE key the job names. ZeroMQ
 * asks this module for each connection (ZAP, rfc.zeromq.org/spec/27); otherwise ZeroMQ would admit
 * every client that knows the run's public key. */
#ifndef FL_CONTROL_LINK_KEYS_ZAP_AUTH_H
#define FL_CONTROL_LINK_KEYS_ZAP_AUTH_H

#include "autodp/net/store/curve.h"

#include <frostline/job.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    FL_KEY_MAX = FL_CURVE_KEY, /* bytes of a key in Z85, with its zero */
    FL_OWN_PORT_MS = 5000,     /* for which a head tries to get a port of its own */
};

typedef struct fl_zap_auth fl_zap_auth;

/* Read the files that control.key and control.allow name. *out is NULL when control.listen is none.
 * Returns FL_EINVAL with the field, the file and what is wrong with it: it does not exist, others
 * may read a secret, a line is not a key, no client is allowed. */
fl_status fl_zap_auth_create(const fl_job *job, fl_zap_auth **out) FL_MUST_CHECK;

/* The same with keys that the caller has: the server's secret one, and the public one of the only
 * client. FL_ENOMEM. */
fl_status fl_zap_auth_create_for(const char *secret, const char *client,
                                 fl_zap_auth **out) FL_MUST_CHECK;
void fl_zap_auth_destroy(fl_zap_auth **guard);

/* Start to answer ZeroMQ's requests in this context. Call it before any of its sockets is bound. */
fl_status fl_zap_auth_open(fl_zap_auth *guard, void *zmq) FL_MUST_CHECK;
void fl_zap_auth_close(fl_zap_auth *guard);

/* Make this socket a CURVE server that asks this module. */
bool fl_zap_auth_protect(const fl_zap_auth *guard, void *socket);

/* Bind it to a TCP endpoint of this context, which takes no more connections than the process has
 * room for (door.h). FL_EIO, FL_ENOMEM; zmq_errno is set. */
fl_status fl_zap_auth_bind(fl_zap_auth *guard, void *zmq, void *socket,
                           const char *endpoint) FL_MUST_CHECK;

/* The same for a port of the head of a run, which was free when the command began: another process
 * may have it for a moment, as one that has inherited a socket of ZeroMQ, or one with a connection
 * for which the kernel has chosen this port. Tries for wait_ms, which count only while this process
 * runs, since the other one may have stood still together with it. Then FL_EBUSY.
 * use   what the port is for, in messages: "where agents join (PORT of --listen)" */
fl_status fl_zap_auth_bind_own(fl_zap_auth *guard, void *zmq, void *socket, const char *endpoint,
                               const char *use, int64_t wait_ms) FL_MUST_CHECK;

/* The item to poll; and the function that answers the requests that have arrived. */
void *fl_zap_auth_socket(const fl_zap_auth *guard);
void fl_zap_auth_watch(fl_zap_auth *guard);

/* The first line of the file as a key. secret: refuse a file that others may read.
 * Returns FL_EINVAL, "PATH: what is wrong". */
fl_status fl_zap_auth_read_key(const char *path, bool secret, char key[FL_KEY_MAX]) FL_MUST_CHECK;

/* "tcp://127.0.0.1:5550" unchanged (plus 0), or with the next port (plus 1), where events are
 * published. False if it is not such an endpoint. */
bool fl_zap_auth_endpoint(const char *listen, int plus, char *text, size_t size_bytes);

#endif
