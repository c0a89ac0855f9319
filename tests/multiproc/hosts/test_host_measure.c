/* What layers cost on hosts of another kind, measured there before the plan of a run is chosen.
 * Would catch: a kind that nobody measures, a cached profile that is used for a host whose speed is
 * stated, a profile that is lost on the way or counts for the
 * wrong host, one that is measured again at each start, and a host whose answer is bad, or does not
 * come, and that ends the head or makes it wait. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include "control/agent/wire/host_wire.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/hosts/key_read.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zmq.h>

enum { N_STEPS = 30, COMPARED = 8, N_LAYERS = 10, ANSWER_MS = 60000, PROFILE_MAX = 65536 };

#define SIZE "--set model.blocks=4 --set model.dim=64 --set devices.memory=64MiB "
#define MODEL NET_JOB SIZE "--set train.max_steps=30 --set pipe.k=2 --set autodp.r=1 "

/* A cache of profiles that only this test has. */
static void use_own_cache(const net_hosts *h)
{
    char path[FOLDER_SIZE + 16];
    snprintf(path, sizeof path, "%s/cache", h->dir);
    assert_int_equal(setenv("XDG_CACHE_HOME", path, 1), 0);
}

/* ---- with agents ---- */

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* Host b uses the plainest kernels. */
static void run_two(net_hosts *h, const char *profile)
{
    char text[64];
    snprintf(text, sizeof text, "\"profile\": \"%s\"", profile);
    net_hosts_start_head(h, MODEL);
    net_hosts_start_agent_env(h, 1, "FROSTLINE_KERNELS=baseline");
    net_hosts_expect(h, 0);
    assert_int_equal(net_hosts_n_events(h, "run.started", text), 1);
    assert_int_equal(net_hosts_n_events(h, "run.started", "\"profile\": \"the head's\""), 1);
    assert_in_range(net_hosts_layers_of_second(h, N_LAYERS), 1, N_LAYERS / 2 - 1);
    net_hosts_check(h, N_STEPS, COMPARED);
}

static void test_host_measure__a_kind_is_measured_once(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    if (!net_hosts_have_kernels("avx2")) {
        skip();
    }
    net_hosts_run_alone(h, SIZE "--set train.max_steps=30");
    use_own_cache(h);
    run_two(h, "measured");
    assert_true(net_hosts_shell("rm -r %s/run", h->dir));
    run_two(h, "cached");
    /* What is stated wins over what the cache has. */
    assert_true(net_hosts_shell("cd %s && rm -r run && cp hosts.yaml unstated.yaml && "
                                "sed -i '/name: b/s/}/, speed: 0.5}/' hosts.yaml",
                                h->dir));
    run_two(h, "stated");
    assert_int_equal(net_hosts_n_events(h, "run.started", "\"speed\": 0.5, "), 1);
    assert_int_equal(net_hosts_n_events(h, "\"costs\"", "\"kinds\""), 0);
    assert_true(net_hosts_shell("cd %s && mv unstated.yaml hosts.yaml", h->dir));
    assert_true(
        net_hosts_shell("test $(cat %s/head.log | grep -c 'host b .* measures') = 1", h->dir));
    /* One that cannot be true is not kept for another run. */
    assert_true(
        net_hosts_shell("cd %s && rm -r run && file=$(grep -l baseline cache/frostline/*) && "
                        "echo $file > odd && sed -i 's/\\(wd\\|loss\\|token\\)_us: "
                        "[0-9.e+-]*/\\1_us: 1e-9/g' $file",
                        h->dir));
    net_hosts_start_head(h, MODEL);
    net_hosts_start_agent_env(h, 1, "FROSTLINE_KERNELS=baseline");
    net_hosts_expect(h, 0);
    assert_true(net_hosts_log_has(h, "head.log", "times as fast as the head"));
    assert_true(net_hosts_shell("cd %s && ! test -e $(cat odd)", h->dir));
}

/* ---- with a program in the place of agents ---- */

typedef struct stand_in {
    void *zmq, *socket;
    uint64_t number; /* of the head's order */
} stand_in;

static int make_four(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make_loopback(h, 4);
    *state = h;
    return 0;
}

static void send_message(const stand_in *s, const fl_host_message *m)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(m, bytes);
    assert_int_equal(zmq_send(s->socket, bytes, n, 0), (int)n);
}

static void join_again(const net_hosts *h, int i, const stand_in *s)
{
    fl_host_message m = {.type = FL_HOST_JOIN, .join = {.n_devices = 1, .version = FL_VERSION}};
    snprintf(m.join.name, sizeof m.join.name, "%s", h->host[i].name);
    snprintf(m.join.address, sizeof m.join.address, "%s", h->host[i].address);
    snprintf(m.join.kind.processor, sizeof m.join.kind.processor, "a processor of host %s",
             h->host[i].name);
    send_message(s, &m);
}

/* Host i joins, as one of a kind of its own. */
static void join_as(const net_hosts *h, int i, stand_in *s)
{
    char path[FOLDER_SIZE + 32], endpoint[64];
    fl_curve_keys keys;
    int timeout = ANSWER_MS, zero = 0;
    snprintf(path, sizeof path, "%s/run/hosts.key", h->dir);
    assert_int_equal(fl_hosts_read_key(path, &keys), FL_OK);
    s->zmq = zmq_ctx_new();
    s->socket = zmq_socket(s->zmq, ZMQ_DEALER);
    assert_true(fl_curve_client(&keys, s->socket));
    zmq_setsockopt(s->socket, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
    zmq_setsockopt(s->socket, ZMQ_LINGER, &zero, sizeof zero);
    snprintf(endpoint, sizeof endpoint, "tcp://%s:5570", h->host[0].address);
    assert_int_equal(zmq_connect(s->socket, endpoint), 0);
    join_again(h, i, s);
}

/* Until the head orders this host to measure. */
static void await_order(stand_in *s)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = {.type = FL_HOST_ALIVE};
    int64_t n_job = 0;
    while (m.type != FL_HOST_MEASURE) {
        int n = zmq_recv(s->socket, bytes, sizeof bytes, 0);
        assert_true(n > 0);
        assert_int_equal(fl_host_wire_get(bytes, (size_t)n, &m), FL_OK);
        n_job += m.type == FL_HOST_JOB ? (int64_t)m.frame.n : 0;
    }
    assert_int_equal(m.measure.job_bytes, n_job);
    s->number = m.measure.number;
}

static void join_all(net_hosts *h, stand_in s[])
{
    net_hosts_await_key(h);
    for (int i = 1; i < h->n; i++) {
        join_as(h, i, &s[i]);
    }
    for (int i = 1; i < h->n; i++) {
        await_order(&s[i]);
    }
}

static void leave_all(const net_hosts *h, stand_in s[])
{
    for (int i = 1; i < h->n; i++) {
        zmq_close(s[i].socket);
        zmq_ctx_term(s[i].zmq);
    }
}

/* Would catch: a head that crashes, waits or takes costs from what is no profile. */
static void test_host_measure__bad_answers_are_named(void **state)
{
    net_hosts *h = *state;
    stand_in s[NET_HOSTS_MAX];
    static const unsigned char text[] = "# A profile of frostline: what layers cost. It may be "
                                        "deleted.\nformat: [8, {\n";
    fl_host_message piece = {
        .type = FL_HOST_PROFILE,
        .profile = {.size_bytes = (int32_t)sizeof text - 1, .bytes = text, .n = sizeof text - 1}};
    fl_host_message why = {.type = FL_HOST_UNMEASURED, .unmeasured = {.text = "it is tired"}};
    use_own_cache(h);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    piece.profile.number = s[1].number;
    send_message(&s[1], &piece);
    piece.profile.number = s[2].number; /* it does not begin at the beginning */
    piece.profile.at = 8;
    piece.profile.n -= 8;
    send_message(&s[2], &piece);
    why.unmeasured.number = s[3].number + 1; /* an answer to another order counts for nothing */
    send_message(&s[3], &why);
    why.unmeasured.number = s[3].number;
    snprintf(why.unmeasured.text, sizeof why.unmeasured.text, "it has no memory");
    send_message(&s[3], &why);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "gate: waits for 3 other hosts"));
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host b: what layers cost there is not known: the profile of "
                                  "host b:"));
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host c: what layers cost there is not known: its profile has a "
                                  "piece of"));
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host d: what layers cost there is not known: it has no memory; "
                                  "plans use the head"));
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
    leave_all(h, s);
}

static void await_answer(const stand_in *s, fl_host_message *m)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    int n = zmq_recv(s->socket, bytes, sizeof bytes, 0);
    assert_true(n > 0);
    assert_int_equal(fl_host_wire_get(bytes, (size_t)n, m), FL_OK);
}

static void leave_one(const stand_in *s)
{
    zmq_close(s->socket);
    zmq_ctx_term(s->zmq);
}

/* Would catch: a second process with the key and the name of a host that takes its place, and one
 * that may not come after the first one has gone. */
static void test_host_measure__a_second_process_of_a_name_is_refused(void **state)
{
    net_hosts *h = *state;
    stand_in s[NET_HOSTS_MAX], other;
    fl_host_message m,
        why = {.type = FL_HOST_UNMEASURED, .unmeasured = {.text = "it is the first"}};
    use_own_cache(h);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    join_as(h, 1, &other);
    await_answer(&other, &m);
    assert_int_equal(m.type, FL_HOST_ALIVE); /* it waits: the first one may be dead */
    join_again(h, 1, &s[1]);
    while (m.type == FL_HOST_ALIVE) { /* until the head has heard the first one */
        join_again(h, 1, &other);
        await_answer(&other, &m);
    }
    assert_int_equal(m.type, FL_HOST_REFUSE);
    assert_string_equal(m.text, "a host of this name has joined already");
    why.unmeasured.number = s[1].number;
    send_message(&s[1], &why);
    leave_one(&other);
    leave_one(&s[2]); /* its connection is closed, and another one comes */
    join_as(h, 2, &s[2]);
    why.unmeasured.number = s[3].number;
    send_message(&s[3], &why);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "gate: waits for 3 other hosts"));
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host b: what layers cost there is not known: it is the first"));
    assert_true(net_hosts_log_has(
        h, "head.log", "host c: what layers cost there is not known: its agent was started again"));
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
    leave_all(h, s);
}

/* Would catch: an agent that waits for a head that has given it up, and has ended. */
static void test_host_measure__an_agent_that_is_cut_off_ends(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    if (!net_hosts_have_kernels("avx2")) {
        skip();
    }
    use_own_cache(h);
    net_hosts_start_head(h, MODEL "--set fault.detect=2s");
    net_hosts_await_key(h);
    net_hosts_start_agent_env(h, 1, "FROSTLINE_KERNELS=baseline");
    NET_AWAIT(net_hosts_log_has(h, "b.log", "measures what the layers of the job cost"));
    assert_true(net_hosts_shell("ip -n %s link set fl0 down", h->host[1].space));
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log", "it has been silent for 2.0 s"));
    assert_true(net_hosts_log_has(h, "b.log", "the head at tcp://10.213.8.1:5570 has been silent"));
}

/* The text of the head's own profile, which the plan of this job has left in its cache. */
static size_t read_profile(const net_hosts *h, char text[PROFILE_MAX])
{
    char path[FOLDER_SIZE + 32];
    assert_true(net_hosts_shell("cd %s && '%s/frostline' plan " MODEL
                                "--set devices.count=1 --set pipe.k=1 > plan.txt && "
                                "cat cache/frostline/* > profile.yaml",
                                h->dir, FL_BINARY_DIR));
    snprintf(path, sizeof path, "%s/profile.yaml", h->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, PROFILE_MAX - 1, file);
    fclose(file);
    text[n] = '\0';
    assert_true(n > FL_HOST_PROFILE_PIECE / 4 && n < PROFILE_MAX - 1);
    return n;
}

/* The same text with another number in place of the first one of this field. */
static size_t change_number(const char *text, const char *field, const char *number, char *out)
{
    const char *at = strstr(text, field);
    assert_non_null(at);
    at += strlen(field);
    return (size_t)snprintf(out, PROFILE_MAX, "%.*s%s%s", (int)(at - text), text, number,
                            at + strcspn(at, ",}\n"));
}

static void send_piece(const stand_in *s, const char *text, size_t size_bytes, size_t at, size_t n)
{
    fl_host_message m = {.type = FL_HOST_PROFILE,
                         .profile = {.number = s->number,
                                     .size_bytes = (int32_t)size_bytes,
                                     .at = (int32_t)at,
                                     .bytes = (const unsigned char *)text + at,
                                     .n = n}};
    send_message(s, &m);
}

static void send_pieces(const stand_in *s, const char *text, size_t n, size_t piece)
{
    for (size_t at = 0; at < n; at += piece) {
        send_piece(s, text, n, at, n - at < piece ? n - at : piece);
    }
}

/* b, c and d have answered: what the head says of each. */
static void expect_said(net_hosts *h, stand_in s[], const char *const says[])
{
    NET_AWAIT(net_hosts_log_has(h, "head.log", "gate: waits for 3 other hosts"));
    for (int i = 1; i < h->n; i++) {
        if (!net_hosts_log_has(h, "head.log", says[i])) {
            net_hosts_show_logs(h);
            fail_msg("never: %s", says[i]);
        }
    }
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
    leave_all(h, s);
    assert_true(net_hosts_shell("rm -rf %s/run %s/head.log", h->dir, h->dir));
}

/* Finite numbers that nothing was measured to. Would catch: a plan that gives a host all layers, or
 * none, because its profile says so. */
static void test_host_measure__absurd_numbers_are_named(void **state)
{
    net_hosts *h = *state;
    stand_in s[NET_HOSTS_MAX];
    static char text[PROFILE_MAX], changed[PROFILE_MAX];
    use_own_cache(h);
    (void)read_profile(h, text);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    static const char *const field[] = {NULL, " fwd_us: ", " bwd_us: ", "link_bytes_per_us: "};
    static const char *const number[] = {NULL, "1e30", "1e-30", "0"};
    static const char *const says[] = {NULL, " fwd_us: found", " bwd_us: found",
                                       "link_bytes_per_us: found"};
    for (int i = 1; i < h->n; i++) {
        size_t n = change_number(text, field[i], number[i], changed);
        send_pieces(&s[i], changed, n, FL_HOST_PROFILE_PIECE);
    }
    expect_said(h, s, says);
}

/* Would catch: a head that crashes, waits or takes costs from pieces of different wholes. */
static void test_host_measure__wrong_pieces_are_named(void **state)
{
    net_hosts *h = *state;
    stand_in s[NET_HOSTS_MAX];
    enum { PIECE = 700 };
    static char text[PROFILE_MAX];
    use_own_cache(h);
    size_t n = read_profile(h, text);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    send_piece(&s[1], text, n, 0, PIECE); /* the same piece twice */
    send_piece(&s[1], text, n, 0, PIECE);
    send_piece(&s[2], text, n, 0, PIECE); /* of another whole */
    send_piece(&s[2], text, n - 1, PIECE, PIECE);
    send_piece(&s[3], text, n, 0, PIECE); /* one is left out */
    send_piece(&s[3], text, n, 2 * PIECE, PIECE);
    static const char *const says[] = {
        NULL,
        "host b: what layers cost there is not known: its profile has a piece of 700 bytes at 0",
        "host c: what layers cost there is not known: its profile has a piece of 700 bytes at 700",
        "host d: what layers cost there is not known: its profile has a piece of 700 bytes at "
        "1400"};
    expect_said(h, s, says);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    send_pieces(&s[1], text, n - 40, PIECE); /* whole, and yet cut: the last line is missing */
    text[n / 2] = '\x01';                    /* a byte that was changed on its way */
    send_pieces(&s[2], text, n, PIECE);
    send_pieces(&s[3], text, 1, 1);
    static const char *const says_of_text[] = {
        NULL, "host b: what layers cost there is not known: the profile of host b:",
        "host c: what layers cost there is not known: the profile of host c:",
        "host d: what layers cost there is not known: the profile of host d: this is no profile"};
    expect_said(h, s, says_of_text);
}

/* Would catch: a start that waits for a host that has ended. */
static void test_host_measure__a_host_lost_meanwhile_ends_the_start(void **state)
{
    net_hosts *h = *state;
    stand_in s[NET_HOSTS_MAX];
    fl_host_message leave = {.type = FL_HOST_LEAVE, .text = "its power was cut"};
    use_own_cache(h);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    send_message(&s[2], &leave);
    assert_int_equal(net_hosts_await_exit(&h->head), 3);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "was lost while it measured what layers cost: its power was "
                                  "cut"));
    leave_all(h, s);
}

/* Would catch: a stop that waits for hosts or for the head's own measurement. */
static void test_host_measure__a_stop_meanwhile_ends_at_once(void **state)
{
    net_hosts *h = *state;
    stand_in s[NET_HOSTS_MAX];
    use_own_cache(h);
    net_hosts_start_head(h, MODEL);
    join_all(h, s);
    kill(h->head, SIGINT);
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
    assert_false(net_hosts_shell("test -e %s/run/hosts.key", h->dir));
    leave_all(h, s);
}

/* Would catch: hosts that measure what no plan depends on. */
static void test_host_measure__a_given_plan_needs_no_costs(void **state)
{
    net_hosts *h = *state;
    use_own_cache(h);
    net_hosts_start_head(h, NET_JOB "--set pipe.k=1 --set pipe.m=1 --set autodp.r=4 ");
    NET_AWAIT(net_hosts_log_has(h, "head.log", "gate: waits for 3 other hosts"));
    assert_false(net_hosts_log_has(h, "head.log", "compares the kinds of hosts"));
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_host_measure__a_kind_is_measured_once, make_two,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__bad_answers_are_named, make_four,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__absurd_numbers_are_named, make_four,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__wrong_pieces_are_named, make_four,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__a_second_process_of_a_name_is_refused,
                                        make_four, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__an_agent_that_is_cut_off_ends, make_two,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__a_host_lost_meanwhile_ends_the_start,
                                        make_four, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__a_stop_meanwhile_ends_at_once, make_four,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_measure__a_given_plan_needs_no_costs, make_four,
                                        net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
