/* The transport between hosts, and strangers. Would catch: a stranger who can join a net, end a
 * member, keep members from each other or take their memory and descriptors. */
#include "autodp/tls/tls.h"

#include "autodp/tls/state.h"
#include "device/system/alloc.h"
#include "support/ranks/tls_net.h"

#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { HELD = 300, HELLO_BYTES = 60, RECORDED_MAX = 8192, FEW_FILES = 100, FEW_SPARE = 16 };

/* FL_TEST_STRANGERS: how many connections. */
static int n_strangers(void)
{
    const char *text = getenv("FL_TEST_STRANGERS");
    return text == NULL ? 1500 : atoi(text);
}

/* Where member `rank` of the net listens, as it has published it. */
static struct sockaddr_in address_of(const rank_env *env, const char *net, int rank)
{
    char name[64];
    struct {
        uint16_t family, port;
        unsigned char address[16];
    } card;
    struct sockaddr_in address = {.sin_family = AF_INET};
    snprintf(name, sizeof name, "%s/%d", net, rank);
    await(env, name, &card, sizeof card);
    RANK_CHECK(card.family == AF_INET);
    address.sin_port = card.port;
    memcpy(&address.sin_addr, card.address, sizeof address.sin_addr);
    return address;
}

static int knock(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RANK_CHECK(fd >= 0);
    RANK_CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    return fd;
}

static void offer(int fd, const void *bytes, size_t n)
{
    (void)!send(fd, bytes, n, MSG_NOSIGNAL); /* it may have been dropped already */
}

/* An identity of member 1 of 2, which knows `secret`. */
static void open_identity(fl__tls_identity *identity, const char *net, const char *secret, int rank)
{
    fl_net_transport transport;
    RANK_OK(fl_tls_transport(secret, &transport));
    const fl_net_options options = {.rank = rank, .size = 2, .name = net, .transport = &transport};
    RANK_OK(fl__tls_identity_open(identity, &options));
}

/* Shake hands with member 0 until it comes to an end: 1 or -1. The socket blocks. */
static int shake_to_the_end(fl__tls_stream *s)
{
    char byte;
    int rc = fl__tls_stream_shake(s);
    /* The client is done before the server has looked at its proof. */
    return rc > 0 ? (int)fl__tls_stream_read(s, &byte, 1) : rc;
}

static void shake_with(const fl__tls_identity *identity, const struct sockaddr_in *at)
{
    fl__tls_stream s;
    RANK_OK(fl__tls_stream_open(&s, identity, knock(at), true, 0));
    RANK_CHECK(shake_to_the_end(&s) == -1);
    fl__tls_stream_close(&s);
}

/* What a member sends when it connects: its handshake, and frames. Recorded between two ends in
 * this process, which know the right key. */
typedef struct recording {
    unsigned char bytes[RECORDED_MAX];
    size_t n;
} recording;

static void pass_on(int from, int to, recording *r)
{
    unsigned char bytes[RECORDED_MAX];
    ptrdiff_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0) {
        RANK_CHECK(write(to, bytes, (size_t)n) == n);
        if (r != NULL) {
            RANK_CHECK(r->n + (size_t)n <= sizeof r->bytes);
            memcpy(r->bytes + r->n, bytes, (size_t)n);
            r->n += (size_t)n;
        }
    }
}

static void record(const char *net, recording *r)
{
    const fl_net_frame hello = {.kind = FL__TLS_HELLO, .tag = FL__TLS_VERSION},
                       bye = {.kind = FL__TLS_BYE};
    unsigned char frames[2 * FL__TLS_HEAD_BYTES];
    fl__tls_identity one, zero;
    fl__tls_stream client, server;
    int a[2], b[2], done = 0;
    RANK_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a) == 0);
    RANK_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b) == 0);
    open_identity(&one, net, tls_key, 1);
    open_identity(&zero, net, tls_key, 0);
    RANK_OK(fl__tls_stream_open(&client, &one, a[0], true, 0));
    RANK_OK(fl__tls_stream_open(&server, &zero, b[0], false, -1));
    r->n = 0;
    while (done != 3) {
        done |= fl__tls_stream_shake(&client) > 0 ? 1 : 0;
        pass_on(a[1], b[1], r);
        done |= fl__tls_stream_shake(&server) > 0 ? 2 : 0;
        pass_on(b[1], a[1], NULL);
    }
    RANK_CHECK(server.peer == 1);
    fl__tls_frame_put(&hello, frames);
    fl__tls_frame_put(&bye, frames + FL__TLS_HEAD_BYTES);
    RANK_CHECK(fl__tls_stream_write(&client, frames, sizeof frames) == sizeof frames);
    pass_on(a[1], b[1], r);
    fl__tls_stream_close(&client);
    fl__tls_stream_close(&server);
    close(a[1]);
    close(b[1]);
    fl__tls_identity_close(&one);
    fl__tls_identity_close(&zero);
}

static void send_slowly(int fd, const recording *r)
{
    for (size_t i = 0; i < HELLO_BYTES; i++) {
        offer(fd, r->bytes + i, 1);
    }
}

/* Whatever comes from outside, over and over; the newest HELD connections stay open. */
static void attack(const rank_env *env, const char *net)
{
    static recording real;
    static unsigned char junk[4096];
    int held[HELD];
    const struct sockaddr_in at = address_of(env, net, 0);
    fl__tls_identity wrong_key, wrong_net;
    open_identity(&wrong_key, net, "what a stranger guesses", 1);
    open_identity(&wrong_net, "strangers/2", tls_key, 1); /* a member, in another generation */
    record(net, &real);
    memset(held, -1, sizeof held);
    for (size_t i = 0; i < sizeof junk; i++) {
        junk[i] = byte_of(1, 1, i * i);
    }
    say(env, "the attack has begun");
    for (int i = 0; i < n_strangers(); i++) {
        int fd = knock(&at);
        switch (i % 7) {
        case 0: /* nothing at all */
            break;
        case 1:
            offer(fd, junk, sizeof junk);
            break;
        case 2: /* half a handshake */
            offer(fd, real.bytes, HELLO_BYTES);
            break;
        case 3: /* a whole one, and what followed, once more */
            offer(fd, real.bytes, real.n);
            break;
        case 4:
            send_slowly(fd, &real);
            break;
        case 5:
            shake_with(&wrong_key, &at);
            break;
        default:
            shake_with(&wrong_net, &at);
            break;
        }
        if (held[i % HELD] >= 0) {
            close(held[i % HELD]);
        }
        held[i % HELD] = fd;
    }
    say(env, "the attack is over");
    char there;
    await(env, "the members have looked", &there, 1);
    for (int i = 0; i < HELD; i++) {
        if (held[i] >= 0) {
            close(held[i]);
        }
    }
    fl__tls_identity_close(&wrong_key);
    fl__tls_identity_close(&wrong_net);
}

static bool has_been_said(const rank_env *env, const char *what)
{
    void *data = NULL;
    size_t size_bytes = 0;
    fl_status status = env->kv->get(env->kv->self, what, fl_now_us(), &data, &size_bytes);
    fl_free(data);
    RANK_CHECK(status == FL_OK || status == FL_EDEADLINE);
    return status == FL_OK;
}

static int64_t heap_bytes(void)
{
    struct mallinfo2 now = mallinfo2();
    return (int64_t)(now.uordblks + now.hblkhd);
}

/* Member 0 tells member 1 with the size of a message that it is the last one. */
static void talk_through_it(const rank_env *env, fl_net *net)
{
    enum { ORDINARY = 3000, LAST = 1, SLOTS = 64 + 2, STRANGER_BYTES = 256 * 1024 };
    int descriptors = count_descriptors();
    int64_t heap = heap_bytes();
    mailbox m = open_mailbox(net, ORDINARY);
    bool last = false;
    for (int round = 0; !last; round++) {
        last = env->rank == 0 && has_been_said(env, "the attack is over");
        m.out[0] = last;
        for (size_t i = 1; i < ORDINARY; i++) {
            m.out[i] = byte_of(env->rank, round, i);
        }
        RANK_OK(fl_net_recv(m.receiving, 1 - env->rank, TAG, 0, ORDINARY));
        RANK_OK(fl_net_send(m.sending, 1 - env->rank, TAG, 0, ORDINARY));
        RANK_OK(fl_net_wait_recv(m.receiving, soon()));
        RANK_OK(fl_net_wait_send(m.sending, soon()));
        for (size_t i = 1; i < ORDINARY; i++) {
            RANK_CHECK(m.in[i] == byte_of(1 - env->rank, round, i));
        }
        last = last || (env->rank == 1 && m.in[0]);
        RANK_CHECK(count_descriptors() <= descriptors + SLOTS + 4);
        RANK_CHECK(heap_bytes() <= heap + SLOTS * (int64_t)STRANGER_BYTES);
    }
    close_mailbox(&m);
}

static void withstand(const rank_env *env)
{
    const char name[] = "strangers/1";
    if (env->rank == 2) {
        attack(env, name);
        return;
    }
    fl_net *net = open_net(env, name, 2);
    talk_through_it(env, net);
    RANK_OK(fl_net_state(net));
    if (env->rank == 0) {
        say(env, "the members have looked");
    }
    fl_net_close(&net);
}

static void test_tls__withstands_strangers(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(3, withstand, NULL, 2 * PATIENCE_MS), 0);
}

/* A process that may open few files keeps some for what it has to open. Would catch: a worker that
 * cannot open a file of the run's record, because strangers have all descriptors. */
static void withstand_with_few(const rank_env *env)
{
    const char name[] = "strangers/few";
    if (env->rank == 2) {
        attack(env, name);
        return;
    }
    const struct rlimit few = {FEW_FILES, FEW_FILES};
    RANK_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    fl_net *net = open_net(env, name, 2);
    if (env->rank == 0) {
        int most = 0;
        while (!has_been_said(env, "the attack is over")) {
            int n = count_descriptors();
            most = n > most ? n : most;
        }
        print_message("%d descriptors of %d\n", most, FEW_FILES);
        RANK_CHECK(most > FEW_FILES / 4 && most <= FEW_FILES - FEW_SPARE);
        say(env, "the members have looked");
    } else {
        char there;
        await(env, "the members have looked", &there, 1);
    }
    RANK_OK(fl_net_state(net));
    fl_net_close(&net);
}

static void test_tls__leaves_descriptors_to_the_process(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(3, withstand_with_few, NULL, 2 * PATIENCE_MS), 0);
}

static void test_tls__strangers_get_what_the_limit_leaves(void **state)
{
    (void)state;
    assert_int_equal(fl__tls_gate_strangers(1024, 30, 2), 64);
    assert_int_equal(fl__tls_gate_strangers(UINT64_MAX, 30, 128), 64);
    assert_int_equal(fl__tls_gate_strangers(160, 30, 2), 45);
    assert_int_equal(fl__tls_gate_strangers(160, 30, 8), 33);
    assert_int_equal(fl__tls_gate_strangers(64, 30, 2), 4); /* some, else no member comes in */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls__strangers_get_what_the_limit_leaves),
        cmocka_unit_test(test_tls__leaves_descriptors_to_the_process),
        cmocka_unit_test(test_tls__withstands_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
