/* Bytes between the workers of one generation: a thin C face on Gloo's TCP transport.
 *
 * Only unbound buffers are used, because a waiter on one can be woken from another thread in the
 * middle of a message; Gloo's own collectives cannot be left before their time-out. The first
 * failure breaks the net for good: every wait, present and future, returns it at once, and the
 * next generation opens a new one. */
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
 * Memory in *data is fl_alloc'd; the caller frees it. */
typedef struct fl_kv {
    void *self;
    fl_status (*set)(void *self, const char *key, const void *data, size_t size_bytes);
    fl_status (*get)(void *self, const char *key, int64_t deadline_us, void **data,
                     size_t *size_bytes);
} fl_kv;

typedef struct fl_net fl_net;
typedef struct fl_net_buffer fl_net_buffer;

typedef struct fl_net_options {
    int rank, size;          /* within this net */
    const char *name;        /* prefix of the store's keys: unique a net and generation */
    const fl_kv *kv;         /* used only while opening */
    const char *host;        /* address to listen on; NULL: 127.0.0.1 */
    int64_t open_timeout_ms; /* for the whole mesh */
    int64_t wait_timeout_ms; /* the longest any wait may last, whatever its deadline */
    /* The net is in it from its opening to its closing, as part of `generation`: an abort ends the
     * opening too. NULL: nobody aborts it. */
    fl_abort_set *abort_set;
    uint32_t generation;
} fl_net_options;

/* Connect to all others: on FL_OK all of them are connected to this member. FL_EDEADLINE when a
 * member did not come, FL_EPEER when one died. Sets SIGPIPE to be ignored if nobody
 * handles it. Fork before the first net is opened. */
fl_status fl_net_open(const fl_net_options *options, fl_net **out) FL_MUST_CHECK;

/* Buffers must be gone. Tells the others, so that leaving is not taken for dying; a broken net is
 * left without a word. Never waits longer than a second. *net becomes NULL; NULL is fine. */
void fl_net_close(fl_net **net);

/* Wake every waiter, now and from now on, with `why` (a regroup code). Threads: any; the first
 * reason stays. */
void fl_net_abort(fl_net *net, fl_status why);

/* FL_OK, or why the net is broken. */
fl_status fl_net_state(fl_net *net);

/* Say that the net can do without this peer, or cannot any more. The death of a spare peer breaks
 * nothing: operations with it fail with FL_EPEER, and only they. Until now no peer is spare.
 * Returns FL_EPEER when a peer that is needed from now on was lost before. Threads: any. */
fl_status fl_net_set_expendable(fl_net *net, int peer, bool spare) FL_MUST_CHECK;

/* Whether a spare peer has died. Threads: any. */
bool fl_net_lost(fl_net *net, int peer);

/* For who waits for a peer without a message of this net.
 * expect: FL_OK while something may still come from the peer; FL_EPEER once it is known to have
 * left or died. late: the wait took so long that the net is broken for it; returns FL_EDEADLINE, or
 * what broke the net before. Threads: any. */
fl_status fl_net_expect(fl_net *net, int peer) FL_MUST_CHECK;
fl_status fl_net_late(fl_net *net, int peer, int64_t waited_ms) FL_MUST_CHECK;

/* Register memory (borrowed). Several operations a direction may be under way on a buffer if all go
 * to the same peer: they finish in the order in which they were started, one wait each. One thread
 * a direction. */
fl_status fl_net_buffer_create(fl_net *net, void *data, size_t size_bytes,
                               fl_net_buffer **out) FL_MUST_CHECK;

/* Once it returns, nobody touches the memory any more, also when an operation was under way and
 * the net is broken. *buffer becomes NULL; NULL is fine. */
void fl_net_buffer_destroy(fl_net_buffer **buffer);

/* Start; the pair (peer, tag) orders messages: what is sent first is received first. */
fl_status fl_net_send(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                      size_t size_bytes) FL_MUST_CHECK;
fl_status fl_net_recv(fl_net_buffer *b, int peer, uint64_t tag, size_t offset,
                      size_t size_bytes) FL_MUST_CHECK;

/* Finish the one that was started. FL_EDEADLINE, FL_EPEER, or the abort's reason. */
fl_status fl_net_wait_send(fl_net_buffer *b, int64_t deadline_us) FL_MUST_CHECK;
fl_status fl_net_wait_recv(fl_net_buffer *b, int64_t deadline_us) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
