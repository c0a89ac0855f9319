/* What lies between TLS and its socket: many records travel with one call of the system. TLS by
 * itself would call it for each record, of 16 KiB at most, and each call can wake the other end.
 *
 *     TLS -- records --> out -- flush --> socket          socket -- one read --> in --> TLS */
#ifndef FL_AUTODP_TLS_BATCH_H
#define FL_AUTODP_TLS_BATCH_H

#include <frostline/status.h>

#include <openssl/bio.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    FL__TLS_RECORD_BYTES = 16 * 1024,                     /* the most that a record carries */
    FL__TLS_SEALED_BYTES = FL__TLS_RECORD_BYTES + 256 + 5 /* and the most that it takes */
};

typedef struct fl__tls_batch fl__tls_batch;

/* The kind of BIO that a batch is to TLS; NULL: OpenSSL has no memory. */
BIO_METHOD *fl__tls_batch_method(void);

/* Over a socket that never blocks, borrowed. *bio is the caller's. */
fl_status fl__tls_batch_open(const BIO_METHOD *method, int fd, fl__tls_batch **out,
                             BIO **bio) FL_MUST_CHECK;
void fl__tls_batch_close(fl__tls_batch **batch); /* the BIO is not used any more; NULL is allowed */

/* TLS reads on: look once more whether the socket has something. Until then, nothing is read after
 * it had less than was asked for. */
void fl__tls_batch_look(fl__tls_batch *b);

/* So many bytes will come for sure: the socket need not report the first of them. */
void fl__tls_batch_expect(fl__tls_batch *b, size_t size_bytes);

/* Whether there is room for a record. */
bool fl__tls_batch_has_room(const fl__tls_batch *b);

bool fl__tls_batch_is_empty(const fl__tls_batch *b); /* nothing is left to flush */

/* 1: nothing is left. 0: the socket takes no more for now. -1: it failed; errno. */
int fl__tls_batch_flush(fl__tls_batch *b);

#endif
