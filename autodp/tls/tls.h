/* A transport of nets for workers on several hosts: TLS 1.3 between each pair that talks.
 *
 * The secret of the run proves the members: for each direction of each pair of each net, both ends
 * derive a key of their own from it, with which TLS authenticates both of them before any byte is
 * read (an external pre-shared key, with an ephemeral X25519 exchange: whoever learns the secret
 * later cannot read what was recorded). A connection without that key cannot change the net. */
#ifndef FL_AUTODP_TLS_TLS_H
#define FL_AUTODP_TLS_TLS_H

#include "autodp/net/transport.h"

extern const fl_net_ops fl_tls_net_ops;

/* The transport of a run whose members all know `key`, a secret text. FL_EINTERNAL: OpenSSL has no
 * HMAC-SHA256. Threads: any. */
fl_status fl_tls_transport(const char *key, fl_net_transport *out) FL_MUST_CHECK;

#endif
