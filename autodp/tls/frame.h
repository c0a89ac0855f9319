/* What a connection carries: frames of a head and, for data, a payload. A connection has one
 * direction; only a bye may come back on it.
 *
 *     kind u32 | 0 u32 | tag u64 | size_bytes u64 | payload [size_bytes]      little-endian
 *
 *     hello     the first frame; its tag is the version
 *     data      a message: it goes to the oldest receive that was posted for its tag
 *     credit    a receive of at most size_bytes was posted for the tag: one message may come
 *     renew     the last frame: the sender goes on over a new connection, with new keys
 *     bye       the last frame: the sender leaves the net */
#ifndef FL_AUTODP_TLS_FRAME_H
#define FL_AUTODP_TLS_FRAME_H

#include "autodp/net/op_queue.h"

#include <stddef.h>
#include <stdint.h>

typedef enum fl__tls_kind {
    FL__TLS_HELLO = 1,
    FL__TLS_DATA,
    FL__TLS_CREDIT,
    FL__TLS_RENEW,
    FL__TLS_BYE,
} fl__tls_kind;

enum { FL__TLS_HEAD_BYTES = 24, FL__TLS_VERSION = 1 };

/* The most that a message may have: far more than any, and safe to compute with. */
static const uint64_t fl__tls_message_max = (uint64_t)1 << 40;

/* The head of a frame. Threads: pure; any. */
void fl__tls_frame_put(const fl_net_frame *frame, unsigned char head[FL__TLS_HEAD_BYTES]);

/* FL_EFORMAT, with what was found, for anything that fl__tls_frame_put does not write. Threads:
 * pure; any. */
fl_status fl__tls_frame_get(const unsigned char head[FL__TLS_HEAD_BYTES],
                            fl_net_frame *out) FL_MUST_CHECK;

#endif
