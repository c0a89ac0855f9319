/* Messages between hosts. Would catch: a field that is lost on the way, and bytes from a network
 * that crash the reader or are taken for a message. */
#include "control/agent/wire/host_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static fl_host_message welcome(void)
{
    fl_host_message m = {.type = FL_HOST_WELCOME};
    m.welcome = (fl_host_welcome){.host = {.name = "b", .address = "10.0.0.2", .first = 2, .n = 3},
                                  .run_dir = "/runs/one",
                                  .cwd = "/home/me",
                                  .links = "tcp://10.0.0.1:5571",
                                  .silence_ms = 10000,
                                  .continues = true,
                                  .facts = {.version = "1.2.3",
                                            .model = 7,
                                            .data = UINT64_MAX,
                                            .n_train = 60000,
                                            .n_test = 10000,
                                            .weights = 9,
                                            .plugin = 10},
                                  .from_snapshot = true,
                                  .job_bytes = 4000,
                                  .n_hosts = 3,
                                  .first = {0, 2, 5},
                                  .n_first_ranks = 6,
                                  .n_stores = 1,
                                  .state_step = 500};
    return m;
}

/* n bytes in memory of that size, so that a sanitizer sees a read beyond them. */
static fl_status get(const unsigned char *bytes, size_t n, fl_host_message *out)
{
    unsigned char *exact = malloc(n == 0 ? 1 : n);
    memcpy(exact, bytes, n);
    fl_status status = fl_host_wire_get(exact, n, out);
    free(exact);
    return status;
}

static void test_host_wire__keeps_every_field(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = welcome(), read;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_WELCOME);
    assert_string_equal(read.welcome.host.name, "b");
    assert_string_equal(read.welcome.host.address, "10.0.0.2");
    assert_int_equal(read.welcome.host.first, 2);
    assert_int_equal(read.welcome.host.n, 3);
    assert_string_equal(read.welcome.run_dir, "/runs/one");
    assert_string_equal(read.welcome.cwd, "/home/me");
    assert_string_equal(read.welcome.links, "tcp://10.0.0.1:5571");
    assert_int_equal(read.welcome.silence_ms, 10000);
    assert_memory_equal(&read.welcome.facts, &m.welcome.facts, sizeof read.welcome.facts);
    assert_true(read.welcome.continues && read.welcome.from_snapshot);
    assert_int_equal(read.welcome.state_step, 500);
    assert_int_equal(read.welcome.n_stores, 1);
    assert_int_equal(read.welcome.n_hosts, 3);
    assert_int_equal(read.welcome.first[2], 5);
    assert_int_equal(read.welcome.n_first_ranks, 6);
    m = (fl_host_message){.type = FL_HOST_JOIN,
                          .join = {.name = "host-b",
                                   .address = "10.0.0.2",
                                   .version = "1.2",
                                   .n_devices = 3,
                                   .chosen = true,
                                   .n_own = 2,
                                   .own = {0x7f000001, 0x0a000002},
                                   .kind = {.processor = "P, avx2", .gpus = "G"},
                                   .door = 40001}};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_JOIN);
    assert_string_equal(read.join.name, "host-b");
    assert_string_equal(read.join.address, "10.0.0.2");
    assert_string_equal(read.join.version, "1.2");
    assert_int_equal(read.join.n_devices, 3);
    assert_true(read.join.chosen);
    assert_int_equal(read.join.n_own, 2);
    assert_int_equal(read.join.own[1], 0x0a000002);
    assert_string_equal(read.join.kind.processor, "P, avx2");
    assert_string_equal(read.join.kind.gpus, "G");
    assert_int_equal(read.join.door, 40001);
    m = (fl_host_message){.type = FL_HOST_ALIVE};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_ALIVE);
    static const fl_host_type plain[] = {FL_HOST_AGAIN, FL_HOST_STOP, FL_HOST_FAILED, FL_HOST_NEXT};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        m = (fl_host_message){.type = plain[i]};
        assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
        assert_int_equal(read.type, plain[i]);
    }
    m = (fl_host_message){.type = FL_HOST_LOST, .text = "it has not answered"};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_string_equal(read.text, "it has not answered");
    m = (fl_host_message){.type = FL_HOST_DRAIN, .grace_ms = 25000};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_DRAIN);
    assert_int_equal(read.grace_ms, 25000);
    m = (fl_host_message){.type = FL_HOST_PING, .clock = {.sent_ns = 7}};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_PING);
    assert_int_equal(read.clock.sent_ns, 7);
    m = (fl_host_message){.type = FL_HOST_PONG,
                          .clock = {.sent_ns = 7, .there_ns = 8, .wall_ns = 9}};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.clock.sent_ns, 7);
    assert_int_equal(read.clock.there_ns, 8);
    assert_int_equal(read.clock.wall_ns, 9);
    m.clock.wall_ns = -2000000000; /* before 1970 */
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.clock.wall_ns, -2000000000);
    m.clock.there_ns = -1;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_RELEASE, .text = "no plan"};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_RELEASE);
    assert_string_equal(read.text, "no plan");
    m = (fl_host_message){.type = FL_HOST_FRAME,
                          .frame = {.bytes = (const unsigned char *)"frame", .n = 5}};
    size_t n = fl_host_wire_put(&m, bytes);
    assert_int_equal(fl_host_wire_get(bytes, n, &read), FL_OK);
    assert_int_equal(read.frame.n, 5);
    assert_memory_equal(read.frame.bytes, "frame", 5);
}

static fl_host_message probe_order(void)
{
    return (fl_host_message){.type = FL_HOST_PROBE,
                             .order = {.n = 3,
                                       .index = 1,
                                       .absent = {[2] = true},
                                       .address = "10.0.0.2",
                                       .links = "tcp://10.0.0.1:5571",
                                       .plain = true,
                                       .number = UINT64_MAX,
                                       .pair_ms = 400,
                                       .all_ms = 9000,
                                       .silence_ms = 10000}};
}

static fl_host_message probe_result(void)
{
    return (fl_host_message){.type = FL_HOST_PROBED,
                             .probed = {.a = 1,
                                        .order = UINT64_C(1) << 40,
                                        .b = 2,
                                        .reached = true,
                                        .link = {.latency_us = 25.5,
                                                 .bytes_per_us = {900.0, 800.0},
                                                 .reduce_bytes_per_us = 300.0},
                                        .why = "x"}};
}

static void test_host_wire__keeps_an_order_to_measure_and_its_results(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = probe_order(), read;
    size_t n = fl_host_wire_put(&m, bytes);
    assert_int_equal(get(bytes, n, &read), FL_OK);
    assert_memory_equal(&read.order, &m.order, sizeof read.order);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(get(bytes, cut, &read), FL_EFORMAT);
    }
    enum { FIRST_FLAG = 8 + 2 * sizeof(uint32_t) };
    bytes[FIRST_FLAG] = 2; /* neither false nor true */
    assert_int_equal(get(bytes, n, &read), FL_EFORMAT);
    m.order.index = 3;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = probe_order();
    m.order.all_ms = FL_HOST_PROBE_MS_MAX + 1;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = probe_order();
    m.order.silence_ms = 0;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = probe_result();
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(get(bytes, n, &read), FL_OK);
    assert_int_equal(read.probed.a, 1);
    assert_int_equal(read.probed.b, 2);
    assert_true(read.probed.order == UINT64_C(1) << 40);
    assert_true(read.probed.reached);
    assert_memory_equal(&read.probed.link, &m.probed.link, sizeof read.probed.link);
    assert_string_equal(read.probed.why, "x");
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(get(bytes, cut, &read), FL_EFORMAT);
    }
    m.probed.link.bytes_per_us[1] = -1.0;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m.probed.reached = false; /* then nothing was measured */
    m.probed.stage = FL_HOST_LINK_UNMET;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.probed.stage, FL_HOST_LINK_UNMET);
    m.probed.stage = FL_HOST_LINK_NO_PORT;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.probed.stage, FL_HOST_LINK_NO_PORT);
    m.probed.stage = (fl_host_link_stage)(FL_HOST_LINK_NO_PORT + 1);
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m.probed.stage = FL_HOST_LINK_OTHER;
    m.probed.b = 1;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
}

static void test_host_wire__keeps_what_hosts_are_to_reach(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = {.type = FL_HOST_REACH, .reach = {.number = 7, .timeout_ms = 500}}, read;
    m.reach.n = FL_MAX_WORKERS;
    for (int i = 0; i < FL_MAX_WORKERS; i++) {
        m.reach.target[i] = (fl_reach_target){(uint16_t)i, 65535, i % 2 == 0, 0x0a000001};
    }
    size_t n = fl_host_wire_put(&m, bytes);
    assert_in_range(n, 1, FL_HOST_MESSAGE_MAX);
    assert_int_equal(get(bytes, n, &read), FL_OK);
    assert_true(read.reach.number == 7 && read.reach.timeout_ms == 500);
    assert_int_equal(read.reach.n, FL_MAX_WORKERS);
    for (int i = 0; i < FL_MAX_WORKERS; i++) {
        const fl_reach_target *t = &read.reach.target[i];
        assert_true(t->host == i && t->port == 65535 && t->address == 0x0a000001);
        assert_int_equal(t->is_door, i % 2 == 0);
    }
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(get(bytes, cut, &read), FL_EFORMAT);
    }
    m.reach.target[0].port = 0;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_REACHED,
                          .reached = {.number = 7, .n = 1, .host = {3}, .why = "no answer"}};
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(get(bytes, n, &read), FL_OK);
    assert_int_equal(read.reached.number, 7);
    assert_int_equal(read.reached.n, 1);
    assert_int_equal(read.reached.host[0], 3);
    assert_string_equal(read.reached.why, "no answer");
    m.reached.why[0] = '\0'; /* not reached, for no reason */
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_DOOR, .door = 20017};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.door, 20017);
    m.door = 0;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_APART, .text = "it and host b"};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_APART);
    assert_string_equal(read.text, "it and host b");
}

static fl_host_message measure_order(void)
{
    return (fl_host_message){
        .type = FL_HOST_MEASURE,
        .measure = {.number = UINT64_MAX,
                    .host = {.name = "b", .address = "10.0.0.2", .first = 2, .n = 3},
                    .run_dir = "/runs/one",
                    .cwd = "/home/me",
                    .job_bytes = 4000,
                    .all_ms = 60000,
                    .silence_ms = 10000}};
}

static void test_host_wire__keeps_an_order_to_measure_costs(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = measure_order(), read;
    size_t n = fl_host_wire_put(&m, bytes);
    assert_int_equal(get(bytes, n, &read), FL_OK);
    assert_memory_equal(&read.measure, &m.measure, sizeof read.measure);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(get(bytes, cut, &read), FL_EFORMAT);
    }
    for (int i = 0; i < 6; i++) {
        m = measure_order();
        m.measure.host.first = i == 0 ? 0 : 2; /* the head has worker 0 */
        m.measure.host.n = i == 1 ? FL_MAX_WORKERS : 3;
        m.measure.run_dir[0] = i == 2 ? 'r' : '/';
        m.measure.job_bytes = i == 3 ? FL_HOST_JOB_MAX + 1 : 1;
        m.measure.all_ms = i == 4 ? 0 : 1;
        m.measure.silence_ms = i == 5 ? 0 : 1;
        assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    }
    m = (fl_host_message){.type = FL_HOST_UNMEASURED,
                          .unmeasured = {.number = 7, .text = "no memory"}};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.unmeasured.number, 7);
    assert_string_equal(read.unmeasured.text, "no memory");
}

/* Would catch: a profile whose last piece is lost, and pieces from a network that go beyond it. */
static void test_host_wire__carries_a_profile_in_pieces(void **state)
{
    (void)state;
    enum { SIZE = 3 * FL_HOST_PROFILE_PIECE + 5 };
    static char text[SIZE];
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_profile whole = {.text = NULL};
    fl_host_message m = {.type = FL_HOST_PROFILE}, read;
    for (int i = 0; i < SIZE; i++) {
        text[i] = (char)(i % 251);
    }
    for (size_t at = 0; at < SIZE; at += FL_HOST_PROFILE_PIECE) {
        assert_false(fl_host_profile_is_whole(&whole));
        m.profile = fl_host_profile_cut(text, SIZE, at);
        m.profile.number = 9;
        size_t n = fl_host_wire_put(&m, bytes);
        assert_int_equal(fl_host_wire_get(bytes, n, &read), FL_OK);
        assert_int_equal(read.profile.number, 9);
        assert_int_equal(fl_host_profile_add(&whole, &read.profile), FL_OK);
        assert_int_equal(fl_host_profile_add(&whole, &read.profile), FL_EFORMAT); /* once more */
    }
    assert_true(fl_host_profile_is_whole(&whole));
    assert_memory_equal(whole.text, text, SIZE);
    m.profile = fl_host_profile_cut(text, SIZE, 0);
    m.profile.size_bytes = SIZE + 1; /* of another whole */
    m.profile.at = SIZE;
    m.profile.n = 1;
    assert_int_equal(fl_host_profile_add(&whole, &m.profile), FL_EFORMAT);
    fl_host_profile_fini(&whole);
    assert_null(whole.text);
}

static void test_host_wire__refuses_pieces_that_do_not_fit(void **state)
{
    (void)state;
    static const char text[FL_HOST_PROFILE_PIECE + 1];
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message read;
    const struct {
        int32_t size_bytes, at;
        size_t n;
    } bad[] = {{0, 0, 1},
               {10, -1, 1},
               {10, 10, 1},
               {10, 4, 7},
               {FL_HOST_PROFILE_BYTES + 1, 0, 8},
               {10, 0, 0},
               {-5, 0, 1},
               {INT32_MAX, 0, 8},
               {2 * FL_HOST_PROFILE_PIECE, 0, FL_HOST_PROFILE_PIECE + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fl_host_message m = {.type = FL_HOST_PROFILE,
                             .profile = {.size_bytes = bad[i].size_bytes,
                                         .at = bad[i].at,
                                         .bytes = (const unsigned char *)text,
                                         .n = bad[i].n}};
        assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    }
}

/* Would catch: a pair that is measured twice or never, and a host that waits for one that does not
 * come to it in that round. */
static void test_host_wire__each_pair_of_hosts_meets_once(void **state)
{
    (void)state;
    for (int n = 2; n <= 33; n++) {
        bool met[33][33] = {{false}};
        int n_met = 0;
        for (int round = 0; round < fl_host_probe_rounds(n); round++) {
            for (int i = 0; i < n; i++) {
                int peer = fl_host_probe_peer(n, i, round);
                assert_true(peer >= -1 && peer < n && peer != i);
                if (peer > i) {
                    assert_int_equal(fl_host_probe_peer(n, peer, round), i);
                    assert_false(met[i][peer]);
                    met[i][peer] = true;
                    n_met++;
                }
            }
        }
        assert_int_equal(n_met, n * (n - 1) / 2);
    }
}

static void test_host_wire__a_welcome_of_the_longest_texts_fits(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = welcome(), read;
    memset(m.welcome.run_dir, '/', sizeof m.welcome.run_dir - 1);
    memset(m.welcome.cwd, '/', sizeof m.welcome.cwd - 1);
    size_t n = fl_host_wire_put(&m, bytes);
    assert_true(n <= sizeof bytes);
    assert_int_equal(get(bytes, n, &read), FL_OK);
    assert_int_equal(strlen(read.welcome.cwd), PATH_MAX - 1);
}

static void test_host_wire__refuses_what_is_cut_or_longer(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX + 1] = {0};
    fl_host_message m = welcome(), read;
    size_t n = fl_host_wire_put(&m, bytes);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(get(bytes, cut, &read), FL_EFORMAT);
    }
    assert_int_equal(get(bytes, n + 1, &read), FL_EFORMAT);
    m.type = (fl_host_type)99;
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(get(bytes, n, &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_FRAME, .frame = {.bytes = bytes, .n = 0}};
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(get(bytes, n, &read), FL_EFORMAT);
    static const unsigned char job[FL_HOST_JOB_PIECE + 1];
    m = (fl_host_message){.type = FL_HOST_JOB, .frame = {.bytes = job, .n = FL_HOST_JOB_PIECE}};
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.frame.n, FL_HOST_JOB_PIECE);
    m.frame.n = FL_HOST_JOB_PIECE + 1;
    assert_int_equal(get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
}

static void test_host_wire__refuses_values_that_make_no_sense(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m[16], read;
    for (int i = 0; i < 16; i++) {
        m[i] = welcome();
    }
    m[6] = (fl_host_message){.type = FL_HOST_DRAIN, .grace_ms = 0};
    m[7] = (fl_host_message){.type = FL_HOST_DRAIN, .grace_ms = FL_HOST_GRACE_MAX_MS + 1};
    m[0].welcome.host.first = -1;
    m[1].welcome.host.n = 0;
    m[2].welcome.host.n = FL_MAX_WORKERS;
    m[3].welcome.run_dir[0] = 'r';
    m[4].welcome.cwd[0] = '\0';
    m[5].welcome.silence_ms = 0;
    m[8].welcome.state_step = -2;
    m[9].welcome.continues = false;
    m[10].welcome.n_stores = -1;
    m[11].welcome.n_hosts = 1;
    m[12].welcome.first[1] = 5;
    m[13].welcome.first[0] = 1;
    m[14].welcome.n_first_ranks = 5;
    m[15].welcome.host.first = 3; /* neither the first worker of a host nor a later rank */
    for (int i = 0; i < 16; i++) {
        size_t n = fl_host_wire_put(&m[i], bytes);
        assert_int_equal(get(bytes, n, &read), FL_EFORMAT);
    }
}

/* Would catch: a name from the network that leads out of the folder of the logs, or breaks a line
 * of them. */
static void test_host_wire__refuses_names_that_no_file_of_hosts_has(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "../../../esc", "..",  ".",    "-x",      "a/b",
                                      "a\nb", "x\"y<b>",      "a b", "\xff", "a\x1b[2J"};
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m[] = {welcome(), {.type = FL_HOST_JOIN, .join = {.n_devices = 1}}}, read;
    char *name[] = {m[0].welcome.host.name, m[1].join.name};
    for (size_t i = 0; i < 2; i++) {
        strcpy(name[i], "n-1_a.b");
        assert_int_equal(get(bytes, fl_host_wire_put(&m[i], bytes), &read), FL_OK);
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            strcpy(name[i], bad[k]);
            assert_int_equal(get(bytes, fl_host_wire_put(&m[i], bytes), &read), FL_EFORMAT);
        }
    }
}

/* Every single bit of a message is turned; the reader may take it or not, but it ends. */
static void test_host_wire__survives_noise(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = welcome(), read;
    size_t n = fl_host_wire_put(&m, bytes);
    int n_refused = 0;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        n_refused += get(bytes, n, &read) != FL_OK;
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(n_refused >= 64); /* the header, at least */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_wire__keeps_every_field),
        cmocka_unit_test(test_host_wire__keeps_an_order_to_measure_and_its_results),
        cmocka_unit_test(test_host_wire__keeps_what_hosts_are_to_reach),
        cmocka_unit_test(test_host_wire__keeps_an_order_to_measure_costs),
        cmocka_unit_test(test_host_wire__carries_a_profile_in_pieces),
        cmocka_unit_test(test_host_wire__refuses_pieces_that_do_not_fit),
        cmocka_unit_test(test_host_wire__each_pair_of_hosts_meets_once),
        cmocka_unit_test(test_host_wire__a_welcome_of_the_longest_texts_fits),
        cmocka_unit_test(test_host_wire__refuses_what_is_cut_or_longer),
        cmocka_unit_test(test_host_wire__refuses_values_that_make_no_sense),
        cmocka_unit_test(test_host_wire__refuses_names_that_no_file_of_hosts_has),
        cmocka_unit_test(test_host_wire__survives_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
