#include "autodp/tls/batch.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
    IN_BYTES = 128 * 1024,
    OUT_BYTES = 128 * 1024 + FL__TLS_SEALED_BYTES,
    /* Each report of the socket wakes a thread; with more at a time, what is decrypted has left the
     * processor's cache before it is used. */
    MOST_EXPECTED = 256 * 1024,
};

struct fl__tls_batch {
    int fd;
    int low_water; /* SO_RCVLOWAT: the socket is readable from this many bytes on */
    bool drained;  /* the socket has no more to read */
    bool ended;    /* the other end has closed it */
    size_t in_at, in_end, out_at, out_end;
    unsigned char in[IN_BYTES], out[OUT_BYTES];
};

static bool is_pause(int error_number)
{
    return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

/* ---- as TLS sees it ---- */

/* As BIO_read. */
static int refill(fl__tls_batch *b)
{
    ssize_t n = recv(b->fd, b->in, IN_BYTES, 0);
    b->in_at = 0;
    b->in_end = n > 0 ? (size_t)n : 0;
    b->drained = n != IN_BYTES;
    b->ended = n == 0;
    return (int)n;
}

static int read_records(BIO *bio, char *to, int size)
{
    fl__tls_batch *b = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (b->in_at == b->in_end) {
        int n = -1;
        if (b->drained) {
            errno = EAGAIN;
        } else {
            n = refill(b);
        }
        if (n <= 0) {
            if (n < 0 && is_pause(errno)) {
                BIO_set_retry_read(bio);
            }
            return n;
        }
    }
    size_t n = b->in_end - b->in_at;
    n = n < (size_t)size ? n : (size_t)size;
    memcpy(to, b->in + b->in_at, n);
    b->in_at += n;
    return (int)n;
}

static int write_records(BIO *bio, const char *from, int size)
{
    fl__tls_batch *b = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if ((size_t)size > OUT_BYTES - b->out_end) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(b->out + b->out_end, from, (size_t)size);
    b->out_end += (size_t)size;
    return size;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    const fl__tls_batch *b = BIO_get_data(bio);
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && b->ended);
}

BIO_METHOD *fl__tls_batch_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "records");
    if (method != NULL && (BIO_meth_set_read(method, read_records) != 1 ||
                           BIO_meth_set_write(method, write_records) != 1 ||
                           BIO_meth_set_ctrl(method, control) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- as its stream sees it ---- */

/* Pages that no message has needed yet take no memory. */
fl_status fl__tls_batch_open(const BIO_METHOD *method, int fd, fl__tls_batch **out, BIO **bio)
{
    fl__tls_batch *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *bio = b == MAP_FAILED ? NULL : BIO_new(method);
    if (*bio == NULL) {
        b = b == MAP_FAILED ? NULL : b;
        fl__tls_batch_close(&b);
        return fl_fail(FL_ENOMEM, "a TLS connection");
    }
    b->fd = fd;
    b->low_water = 1;
    BIO_set_data(*bio, b);
    BIO_set_init(*bio, 1);
    *out = b;
    return FL_OK;
}

void fl__tls_batch_close(fl__tls_batch **batch)
{
    if (*batch != NULL) {
        munmap(*batch, sizeof **batch);
        *batch = NULL;
    }
}

void fl__tls_batch_look(fl__tls_batch *b)
{
    b->drained = false;
}

void fl__tls_batch_expect(fl__tls_batch *b, size_t size_bytes)
{
    /* TLS already has a part of them, if a record has come in part. */
    size_t sure = size_bytes > FL__TLS_SEALED_BYTES ? size_bytes - FL__TLS_SEALED_BYTES : 1;
    int low_water = sure < MOST_EXPECTED ? (int)sure : MOST_EXPECTED;
    if (low_water != b->low_water) {
        b->low_water = low_water;
        setsockopt(b->fd, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
    }
}

bool fl__tls_batch_has_room(const fl__tls_batch *b)
{
    return OUT_BYTES - b->out_end >= FL__TLS_SEALED_BYTES;
}

bool fl__tls_batch_is_empty(const fl__tls_batch *b)
{
    return b->out_at == b->out_end;
}

int fl__tls_batch_flush(fl__tls_batch *b)
{
    while (b->out_at < b->out_end) {
        ssize_t n = send(b->fd, b->out + b->out_at, b->out_end - b->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return is_pause(errno) ? 0 : -1;
        }
        b->out_at += n > 0 ? (size_t)n : 0;
    }
    b->out_at = b->out_end = 0;
    return 1;
}
