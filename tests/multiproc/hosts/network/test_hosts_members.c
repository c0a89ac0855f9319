/* A member of a run, with the right keys, that misbehaves: each message of the agents' protocol out
 * of turn, cut, too long, repeated, or of another version. Would catch: a head that crashes, or
 * that takes part of what it reads; a host that another one drives out; a wait of ten minutes for
 * an agent that the head has refused. The hosts are loopback addresses. */
#include "control/agent/wire/host_wire.h"
#include "device/system/clock.h"
#include "launcher/run/hosts/key_read.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <zmq.h>

#include <cmocka.h>

enum { ROUNDS = 20, SEND_MS = 5000, TOO_LONG = 4 * FL_HOST_MESSAGE_MAX };

#define PLAN NET_JOB "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "
#define ENDLESS "--set train.max_steps=1000000"
#define DUPLICATE                                                                                  \
    "refused an agent for host b from 127.0.0.1: a host of this name has joined already"

typedef struct member {
    void *zmq, *socket;
} member;

static int make_loopback(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make_loopback(h, 2);
    *state = h;
    return 0;
}

static void measure_links(const net_hosts *h)
{
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
}

/* ---- the member ---- */

static member open_member_at(net_hosts *h, const char *endpoint)
{
    char path[FOLDER_SIZE + 32];
    fl_curve_keys keys;
    const int send_ms = SEND_MS, linger_ms = 0;
    member m = {.zmq = zmq_ctx_new()};
    net_hosts_await_key(h);
    snprintf(path, sizeof path, "%s/run/hosts.key", h->dir);
    assert_int_equal(fl_hosts_read_key(path, &keys), FL_OK);
    m.socket = zmq_socket(m.zmq, ZMQ_DEALER);
    assert_true(m.socket != NULL && fl_curve_client(&keys, m.socket));
    assert_int_equal(zmq_setsockopt(m.socket, ZMQ_SNDTIMEO, &send_ms, sizeof send_ms), 0);
    assert_int_equal(zmq_setsockopt(m.socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms), 0);
    assert_int_equal(zmq_connect(m.socket, endpoint), 0);
    return m;
}

static member open_member(net_hosts *h)
{
    return open_member_at(h, "tcp://127.0.0.1:5570");
}

static void close_member(member *m)
{
    zmq_close(m->socket);
    zmq_ctx_term(m->zmq);
}

/* The head may have closed the connection, or have ended. */
static void send_bytes(const member *m, const void *bytes, size_t n)
{
    (void)zmq_send(m->socket, bytes, n, 0);
}

static size_t send_message(const member *m, const fl_host_message *message, int version_plus)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(message, bytes);
    bytes[4] = (unsigned char)(bytes[4] + version_plus);
    send_bytes(m, bytes, n);
    return n;
}

static void ask_to_join(const member *m, const char *name, int version_plus)
{
    fl_host_message join = {.type = FL_HOST_JOIN, .join = {.n_devices = 1, .version = FL_VERSION}};
    snprintf(join.join.name, sizeof join.join.name, "%s", name);
    (void)send_message(m, &join, version_plus);
}

/* Ask until a message of this type has come. */
static void join_until(const member *m, const char *name, fl_host_type type)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message got = {.type = FL_HOST_ALIVE};
    int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
    while (got.type != type) {
        zmq_pollitem_t item = {m->socket, 0, ZMQ_POLLIN, 0};
        assert_true(fl_left_ms(until_us) > 0);
        ask_to_join(m, name, 0);
        zmq_poll(&item, 1, 300);
        int n = zmq_recv(m->socket, bytes, sizeof bytes, ZMQ_DONTWAIT);
        if (n > 0 && fl_host_wire_get(bytes, (size_t)n, &got) != FL_OK) {
            got.type = FL_HOST_ALIVE;
        }
    }
}

/* ---- what it sends ---- */

static void send_frame(const member *m, const fl_agent_frame *frame)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(frame, bytes);
    const fl_host_message message = {.type = FL_HOST_FRAME, .frame = {.bytes = bytes, .n = n}};
    (void)send_message(m, &message, 0);
}

/* Of each kind that has no large body; of ranks of the head, of the host, and of nobody. */
static void send_frames(const member *m)
{
    for (int type = 0; type <= FL_AGENT_SHARES + 1; type++) {
        for (int rank = 0; rank <= 3; rank++) {
            for (uint32_t incarnation = 0; incarnation <= 2; incarnation++) {
                const fl_agent_frame frame = {
                    .type = (fl_agent_type)type, .rank = rank, .incarnation = incarnation};
                send_frame(m, &frame);
            }
        }
    }
}

static const fl_host_message messages[] = {
    {.type = FL_HOST_ALIVE},
    {.type = FL_HOST_AGAIN},
    {.type = FL_HOST_STOP},
    {.type = FL_HOST_QUIT},
    {.type = FL_HOST_FAILED},
    {.type = FL_HOST_NEXT},
    {.type = FL_HOST_DRAIN, .grace_ms = 1},
    {.type = FL_HOST_PING, .clock = {.sent_ns = 1}},
    {.type = FL_HOST_PONG, .clock = {.sent_ns = INT64_MAX, .there_ns = 1, .wall_ns = INT64_MIN}},
    {.type = FL_HOST_PROBED, .probed = {.a = 0, .b = 1, .why = "no"}},
    {.type = FL_HOST_PROBED, .probed = {.a = 1, .b = FL_MAX_WORKERS - 1, .why = "no"}},
    {.type = FL_HOST_PROFILE,
     .profile = {.size_bytes = 9, .at = 3, .bytes = (const unsigned char *)"x", .n = 1}},
    {.type = FL_HOST_UNMEASURED, .unmeasured = {.number = 0, .text = "no"}},
    {.type = FL_HOST_REACHED, .reached = {.number = 1, .n = 1, .host = {1000}, .why = "no"}},
    {.type = FL_HOST_DOOR, .door = 1},
    {.type = FL_HOST_WELCOME, .welcome = {.links = "tcp://127.0.0.1:1"}},
    {.type = FL_HOST_REFUSE, .text = "no"},
    {.type = FL_HOST_JOB, .frame = {(const unsigned char *)"-", 1}},
    {.type = FL_HOST_LOST, .text = "no"},
    {.type = FL_HOST_PROBE, .order = {.n = 2, .address = "127.0.0.1"}},
    {.type = FL_HOST_MEASURE, .measure = {.number = 1}},
    {.type = FL_HOST_REACH, .reach = {.number = 1, .timeout_ms = 1, .n = 0}},
    {.type = FL_HOST_APART, .text = "no"},
    {.type = FL_HOST_RELEASE, .text = ""},
    {.type = (fl_host_type)999},
};

/* Each message whole and with its end cut off, noise, a message of two parts, and one that is too
 * long, for which the connection is closed. */
static void misbehave(const member *m)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    static unsigned char noise[TOO_LONG];
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        size_t n = fl_host_wire_put(&messages[i], bytes);
        send_bytes(m, bytes, n);
        for (size_t cut = 0; cut < n && cut < 64; cut++) {
            send_bytes(m, bytes, cut);
        }
    }
    send_frames(m);
    for (size_t n = 1; n < FL_HOST_MESSAGE_MAX; n += 997) {
        memset(noise, (int)n, n);
        send_bytes(m, noise, n);
    }
    (void)zmq_send(m->socket, "one", 3, ZMQ_SNDMORE);
    send_bytes(m, "two", 3);
    send_bytes(m, noise, sizeof noise);
}

static void misbehave_often(net_hosts *h)
{
    for (int i = 0; i < ROUNDS; i++) {
        member m = open_member(h);
        misbehave(&m);
        close_member(&m);
    }
}

/* One after the other, so that each of them is answered. */
static void ask_in_vain(net_hosts *h)
{
    static const char *const names[] = {"b", "a", "nobody"};
    for (int i = 0; i < 3; i++) {
        member m = open_member(h);
        join_until(&m, names[i], FL_HOST_REFUSE);
        close_member(&m);
    }
}

/* ---- tests ---- */

/* The agent of host b comes after the member, which asks for its place again while the run trains.
 */
static void change_nothing(net_hosts *h, const char *waits)
{
    net_hosts_start_head(h, PLAN ENDLESS);
    NET_AWAIT(net_hosts_log_has(h, "head.log", waits));
    misbehave_often(h);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "host b (127.0.0.2) has joined"));
    misbehave_often(h);
    ask_in_vain(h);
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_true(net_hosts_shell("'%s/frostline' ctl %s/run stop", FL_BINARY_DIR, h->dir));
    net_hosts_expect_codes(h, 130, 0);
    if (!net_hosts_log_has(h, "head.log", DUPLICATE)) {
        net_hosts_show_logs(h);
        fail_msg("never: %s", DUPLICATE);
    }
}

static void test_hosts_members__change_nothing_before_they_join(void **state)
{
    change_nothing(*state, "waits for 1 other host");
}

static void test_hosts_members__change_nothing_while_links_are_measured(void **state)
{
    measure_links(*state);
    change_nothing(*state, "measures the links between hosts");
}

/* It has joined as host b, and has no workers. That run fails, and ends by itself. */
static void expect_failure(net_hosts *h, fl_host_type type)
{
    net_hosts_start_head(h, PLAN "--set fault.on_loss=stop");
    member m = open_member(h);
    join_until(&m, "b", type);
    misbehave(&m);
    close_member(&m);
    assert_int_equal(net_hosts_await_exit(&h->head), 3);
    assert_true(net_hosts_log_has(h, "head.log", "host b (127.0.0.2)"));
}

static void test_hosts_members__a_host_ends_no_head(void **state)
{
    expect_failure(*state, FL_HOST_WELCOME);
}

static void test_hosts_members__a_host_that_measures_ends_no_head(void **state)
{
    measure_links(*state);
    expect_failure(*state, FL_HOST_PROBE);
}

/* Once the agent of another version has asked for host b, from its address. */
static void expect_other_version(net_hosts *h)
{
    net_hosts_start_head(h, PLAN);
    member m = open_member_at(h, "tcp://127.0.0.2:0;127.0.0.1:5570");
    int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
    for (siginfo_t how = {.si_pid = 0}; how.si_pid == 0; nap(100000)) {
        assert_true(fl_left_ms(until_us) > 0);
        ask_to_join(&m, "b", 1); /* as an agent does, until it is answered */
        assert_int_equal(waitid(P_PID, (id_t)h->head, &how, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    assert_int_equal(net_hosts_await_exit(&h->head), 2);
    close_member(&m);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "refused an agent for host b from 127.0.0.2: it has another "
                                  "version of frostline"));
}

static void test_hosts_members__another_version_ends_the_start(void **state)
{
    expect_other_version(*state);
}

static void test_hosts_members__another_version_ends_the_survey(void **state)
{
    measure_links(*state);
    expect_other_version(*state);
}

#define ON_LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_LOOPBACK(test_hosts_members__change_nothing_before_they_join),
        ON_LOOPBACK(test_hosts_members__change_nothing_while_links_are_measured),
        ON_LOOPBACK(test_hosts_members__a_host_ends_no_head),
        ON_LOOPBACK(test_hosts_members__a_host_that_measures_ends_no_head),
        ON_LOOPBACK(test_hosts_members__another_version_ends_the_start),
        ON_LOOPBACK(test_hosts_members__another_version_ends_the_survey),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
