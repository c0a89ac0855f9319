/* One TLS connection. Would catch: bytes that are lost where a connection is closed after a flush
 * has said that all of them are in the socket. Where the kernel encrypts, it may hold records that
 * found no room in the socket, and drops them when it is closed. */
#include "autodp/tls/stream.h"

#include "autodp/tls/tls.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PIECE_BYTES = 100 * 1000, MOST_BYTES = 32 << 20, SOCKETS = 50, LEAST_SEND_BYTES = 20000 };

static unsigned char sent[MOST_BYTES];

typedef struct ends {
    fl__tls_identity identity[2];
    fl__tls_stream client, server;
} ends;

/* Two connected sockets that do not block. */
static void connect_pair(int fd[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int gate = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(gate, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(gate, 1), 0);
    assert_int_equal(getsockname(gate, (struct sockaddr *)&at, &size), 0);
    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd[0], (struct sockaddr *)&at, size), 0);
    fd[1] = accept4(gate, NULL, NULL, SOCK_NONBLOCK);
    assert_true(fd[1] >= 0);
    int flags = fcntl(fd[0], F_GETFL);
    assert_int_equal(fcntl(fd[0], F_SETFL, flags | O_NONBLOCK), 0);
    close(gate);
}

static void open_ends(ends *e)
{
    fl_net_transport transport;
    int fd[2], client = 0, server = 0;
    assert_int_equal(fl_tls_transport("what both ends know", &transport), FL_OK);
    for (int rank = 0; rank < 2; rank++) {
        const fl_net_options options = {
            .rank = rank, .size = 2, .name = "stream", .transport = &transport};
        assert_int_equal(fl__tls_identity_open(&e->identity[rank], &options), FL_OK);
    }
    connect_pair(fd);
    assert_int_equal(fl__tls_stream_open(&e->client, &e->identity[0], fd[0], true, 1), FL_OK);
    assert_int_equal(fl__tls_stream_open(&e->server, &e->identity[1], fd[1], false, -1), FL_OK);
    while (client == 0 || server == 0) {
        client = client == 0 ? fl__tls_stream_shake(&e->client) : client;
        server = server == 0 ? fl__tls_stream_shake(&e->server) : server;
    }
    assert_true(client == 1 && server == 1);
}

static void close_ends(ends *e)
{
    fl__tls_stream_close(&e->client);
    fl__tls_stream_close(&e->server);
    fl__tls_identity_close(&e->identity[0]);
    fl__tls_identity_close(&e->identity[1]);
}

/* Write until the socket takes no more. Returns the bytes that were written. What was not taken is
 * given again from where it lies: the kernel's TLS reads it there. */
static size_t fill(fl__tls_stream *s)
{
    size_t n_written = 0;
    while (n_written + PIECE_BYTES <= MOST_BYTES) {
        ptrdiff_t n = fl__tls_stream_write(s, sent + n_written, PIECE_BYTES);
        assert_true(n >= 0);
        if (n == 0) {
            return n_written;
        }
        n_written += (size_t)n;
    }
    fail_msg("a socket takes more than %d bytes", MOST_BYTES);
    return 0;
}

/* Read and check what has come. False: the connection has ended. */
static bool take(fl__tls_stream *s, size_t *n_read)
{
    static unsigned char piece[PIECE_BYTES];
    struct pollfd ready = {.fd = s->fd, .events = POLLIN};
    assert_true(poll(&ready, 1, 20000) == 1);
    ptrdiff_t n = fl__tls_stream_read(s, piece, sizeof piece);
    assert_true(n <= 0 || memcmp(piece, sent + *n_read, (size_t)n) == 0);
    *n_read += n > 0 ? (size_t)n : 0;
    return n >= 0;
}

/* Fill a connection, flush it and close it: all that was written arrives. */
static void fill_and_close(int send_bytes)
{
    static ends e;
    size_t n_read = 0;
    open_ends(&e);
    assert_int_equal(setsockopt(e.client.fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes),
                     0);
    size_t n_written = fill(&e.client);
    assert_false(fl__tls_stream_is_flushed(&e.client));
    while (fl__tls_stream_flush(&e.client) == 0) {
        assert_true(take(&e.server, &n_read));
    }
    assert_true(fl__tls_stream_is_flushed(&e.client));
    fl__tls_stream_close(&e.client);
    while (take(&e.server, &n_read)) {
    }
    if (n_read != n_written) {
        fail_msg("%zu of %zu bytes arrived; SO_SNDBUF %d", n_read, n_written, send_bytes);
    }
    close_ends(&e);
}

/* Which record finds no room depends on how large the socket's buffer is. */
static void test_tls_stream__what_was_flushed_arrives(void **state)
{
    (void)state;
    for (size_t i = 0; i < MOST_BYTES; i++) {
        sent[i] = (unsigned char)(i * 31 + i / 251);
    }
    for (int i = 0; i < SOCKETS; i++) {
        fill_and_close(LEAST_SEND_BYTES + i * 3001);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tls_stream__what_was_flushed_arrives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
