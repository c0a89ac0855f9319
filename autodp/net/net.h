/* Messages between the workers of one generation: through Gloo, or, if they are many and all of
 * them are on one host, through shared memory; between hosts by TLS, unless the job has Gloo there,
 * too.
 *
 * Another thread can wake a waiter in the middle of a message. The first failure breaks the net for
 * good: every wait, present and future, then returns it at once, and the next generation opens a
 * new net. */
#ifndef FL_AUTODP_NET_NET_H
#define FL_AUTODP_NET_NET_H

#include "autodp/net/abort_set.h"

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A key-value store for rendezvous. Keys are set once. `get` waits until the key exists.
 * Memory in *data is fl_alloc'd; the caller frees it. FL_EDEADLINE: the store has not answered yet.
 * The same call goes on waiting: it costs the store nothing. */
typedef struct fl_kv {
    void *self;
    fl_status (*set)(void *self, const char *key, int64_t deadline_us, const void *data,
                     size_t size_bytes);
    fl_status (*get)(void *self, const char *key, int64_t deadline_us, void **data,
                     size_t *size_bytes);
} fl_kv;

typedef struct fl_net fl_net;
typedef struct fl_net_buffer fl_net_buffer;

/* How the members of a net reach each other where they are not all on one host. */
typedef struct fl_net_ops fl_net_ops;
enum { FL_NET_SECRET_BYTES = 32 };
typedef struct fl_net_transport {
    const fl_net_ops *ops;
    unsigned char secret[FL_NET_SECRET_BYTES]; /* of the run: it proves who is a member */
    uint16_t ports[2];                         /* TLS: as in listen.h; 0: any */
} fl_net_transport;

typedef struct fl_net_options {
    int rank, size;          /* within this net */
    const char *name;        /* prefix of the store's keys: unique for each net and generation */
    const fl_kv *kv;         /* used only while opening */
    const char *host;        /* address to listen on; NULL: all members are on this host */
    bool sockets_only;       /* do not use shared memory, even if all members are on one host */
    int64_t open_timeout_ms; /* time to connect all members */
    int64_t wait_timeout_ms; /* upper limit of every wait, whatever its deadline */
    /* The net is in this set from its opening to its closing, under `generation`, so an abort also
     * ends the opening. NULL: no thread aborts it. */
    fl_abort_set *abort_set;
    uint32_t generation;
    const fl_net_transport *transport; /* borrowed while opening, the same on all members; NULL: it
                                          is chosen by where they are, and sockets are Gloo's */
} fl_net_options;

/* Close the net; its buffers must be destroyed before. Members say bye, so that leaving is not
 * mistaken for dying, except when the net is broken. Never waits longer than a second. *net becomes
 * NULL; NULL is allowed. */
void fl_net_close(fl_net **net);

/* Wake every waiter, now and later, with `why` (a regroup code). The first reason stays. Threads:
 * any. */
void fl_net_abort(fl_net *net, fl_status why);

/* FL_OK, or why the net is broken. */
fl_status fl_net_state(fl_net *net);

/* Whether a pair of members has a connection only once it talks, at a price: then few pairs should.
 */
bool fl_net_connects_late(const fl_net *net);

/* Set whether this peer is expendable; at first no peer is. The death of an expendable peer does
 * not break the net: only operations with that peer fail, with FL_EPEER.
 * Returns FL_EPEER when a peer that is no longer expendable was lost before. Threads: any. */
fl_status fl_net_set_expendable(fl_net *net, int peer, bool spare) FL_MUST_CHECK;

/* Whether an expendable peer has died. Threads: any. */
bool fl_net_lost(fl_net *net, int peer);

/* For a caller that waits for a peer without a message of this net. expect: FL_OK while the peer
 * may still act; FL_EPEER once it is known to have left or died. late: break the net because the
 * wait took too long; returns FL_EDEADLINE, or the earlier reason.
 * Threads: any. */
fl_status fl_net_expect(fl_net *net, int peer) FL_MUST_CHECK;
fl_status fl_net_late(fl_net *net, int peer, int64_t waited_ms) FL_MUST_CHECK;

/* "receiving from member 1 took longer than 200 ms", for a wait whose deadline has passed.
 * waited_ms 0: it had passed before the wait began, as for a process that stood still. Threads:
 * pure; any. */
void fl_net_late_text(char *text, size_t size_bytes, const char *what, int peer, int64_t waited_ms);

/* Register memory (borrowed). Several operations in one direction may be in flight on a buffer if
 * all go to the same peer: they finish in the order of their start, with one wait each. Threads:
 * one for each direction. */
fl_status fl_net_buffer_create(fl_net *net, void *data, size_t size_bytes,
                               fl_net_buffer **out) FL_MUST_CHECK;

/* Once it returns, no thread uses the memory any more, even if an operation was in flight and the
 * net is broken. *buffer becomes NULL; NULL is allowed. */
void fl_net_buffer_destroy(fl_net_buffer **buffer);

/* Start an operation. It moves on at the latest when a thread of this member waits for one, or asks
 * for the net's state, as every wait for something else has to do now and then. Messages of one
 * pair and tag arrive in the order in which they were sent. */
fl_status fl_net_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                      size_t size_bytes) FL_MUST_CHECK;
fl_status fl_net_recv(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                      size_t size_bytes) FL_MUST_CHECK;

/* When a wait that may last until `deadline_us` must end: then, or never (INT64_MAX) if the net's
 * abort set limits its waits. Threads: any. */
int64_t fl_net_wait_limit(const fl_net *net, int64_t deadline_us);

/* Finish an operation. FL_EDEADLINE, FL_EPEER, or the abort's reason. */
fl_status fl_net_wait_send(fl_net_buffer *b, int64_t deadline_us) FL_MUST_CHECK;
fl_status fl_net_wait_recv(fl_net_buffer *b, int64_t deadline_us) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
