/* One TLS connection over a socket that never blocks.
 *
 * The client proves that it is member `from` of a net, the server that it is member `to`. Each uses
 * a key that only this net, direction and pair have: a recorded handshake opens no other
 * connection, and it does not even open the same one again, because both ends add fresh randomness.
 *
 * Kernel TLS is used where the kernel has it: records are then made in the kernel. Elsewhere they
 * are moved in batches. */
#ifndef FL_AUTODP_TLS_STREAM_H
#define FL_AUTODP_TLS_STREAM_H

#include "autodp/net/net.h"
#include "autodp/tls/batch.h"

#include <openssl/ssl.h>

/* What a net lets its connections prove. It must not move while it has any. */
typedef struct fl__tls_identity {
    SSL_CTX *context;
    BIO_METHOD *batches;
    unsigned char secret[FL_NET_SECRET_BYTES];
    char net[96]; /* its name */
    int rank, size;
} fl__tls_identity;

fl_status fl__tls_identity_open(fl__tls_identity *identity,
                                const fl_net_options *options) FL_MUST_CHECK;
void fl__tls_identity_close(fl__tls_identity *identity); /* also one that is all zeros */

enum { FL__TLS_ID_MAX = 128 };

typedef struct fl__tls_stream {
    const fl__tls_identity *identity;
    int fd; /* -1: closed */
    SSL *ssl;
    fl__tls_batch *batch;    /* NULL: the kernel makes the records, or shakes hands still */
    bool dry;                /* the last read has found no more than it brought */
    bool ended;              /* and what follows is the end */
    bool unsent;             /* the kernel may hold records that have found no room in the socket */
    int peer;                /* a server knows it once the handshake is done; -1 before */
    bool hung_up;            /* it ended because the other end closed it */
    bool wants_write;        /* the last call has to wait until the socket takes bytes */
    char id[FL__TLS_ID_MAX]; /* of the key, while a client shakes hands */
    char why[96];            /* the connection ended */
} fl__tls_stream;

/* Take over the socket; it is closed if this fails. A client connects to member `peer`. */
fl_status fl__tls_stream_open(fl__tls_stream *s, const fl__tls_identity *identity, int fd,
                              bool is_client, int peer) FL_MUST_CHECK;
void fl__tls_stream_close(fl__tls_stream *s); /* also a closed one */

/* *from moves to *to, which is closed. */
void fl__tls_stream_move(fl__tls_stream *to, fl__tls_stream *from);

/* 1: both ends have proved who they are. 0: call it again once the socket is ready. -1: the other
 * end could not prove it, or the connection ended; `why`. */
int fl__tls_stream_shake(fl__tls_stream *s);

/* Bytes read or written, > 0. 0: none now. -1: the connection ended; `why`. A read brings fewer
 * than were asked for only if there are no more now. What was written may still lie here, until a
 * flush has returned 1. What a write did not take must be given again from the same memory: where
 * the kernel makes the records, OpenSSL keeps its address. */
ptrdiff_t fl__tls_stream_read(fl__tls_stream *s, void *to, size_t size_bytes);
ptrdiff_t fl__tls_stream_write(fl__tls_stream *s, const void *from, size_t size_bytes);

/* 1: all that was written is in the socket. 0: later. -1: the connection ended; `why`. */
int fl__tls_stream_flush(fl__tls_stream *s);
bool fl__tls_stream_is_flushed(const fl__tls_stream *s);

/* Call it after a read that found no more. size_bytes: how many bytes are sure to follow. The
 * socket is then reported as ready once a good part of them has come, not for each packet. */
void fl__tls_stream_expect(fl__tls_stream *s, size_t size_bytes);

/* Whether the kernel encrypts what is written, and decrypts what is read. */
bool fl__tls_stream_in_kernel(const fl__tls_stream *s, bool writing);

#endif
