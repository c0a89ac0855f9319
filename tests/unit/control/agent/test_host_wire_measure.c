/* Messages between hosts about what they measure and reach. Would catch: a field that is lost on
 * the way, a profile whose pieces do not fit, and a pair of hosts that is measured twice or never.
 */
#include "control/agent/wire/host_wire.h"

#include "support/hosts/host_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

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
    assert_int_equal(host_message_get(bytes, n, &read), FL_OK);
    assert_memory_equal(&read.order, &m.order, sizeof read.order);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(host_message_get(bytes, cut, &read), FL_EFORMAT);
    }
    enum { FIRST_FLAG = 8 + 2 * sizeof(uint32_t) };
    bytes[FIRST_FLAG] = 2; /* neither false nor true */
    assert_int_equal(host_message_get(bytes, n, &read), FL_EFORMAT);
    m.order.index = 3;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = probe_order();
    m.order.all_ms = FL_HOST_PROBE_MS_MAX + 1;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = probe_order();
    m.order.silence_ms = 0;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = probe_result();
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(host_message_get(bytes, n, &read), FL_OK);
    assert_int_equal(read.probed.a, 1);
    assert_int_equal(read.probed.b, 2);
    assert_true(read.probed.order == UINT64_C(1) << 40);
    assert_true(read.probed.reached);
    assert_memory_equal(&read.probed.link, &m.probed.link, sizeof read.probed.link);
    assert_string_equal(read.probed.why, "x");
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(host_message_get(bytes, cut, &read), FL_EFORMAT);
    }
    m.probed.link.bytes_per_us[1] = -1.0;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m.probed.reached = false; /* then nothing was measured */
    m.probed.stage = FL_HOST_LINK_UNMET;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.probed.stage, FL_HOST_LINK_UNMET);
    m.probed.stage = FL_HOST_LINK_NO_PORT;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.probed.stage, FL_HOST_LINK_NO_PORT);
    m.probed.stage = (fl_host_link_stage)(FL_HOST_LINK_NO_PORT + 1);
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m.probed.stage = FL_HOST_LINK_OTHER;
    m.probed.b = 1;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
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
    assert_int_equal(host_message_get(bytes, n, &read), FL_OK);
    assert_true(read.reach.number == 7 && read.reach.timeout_ms == 500);
    assert_int_equal(read.reach.n, FL_MAX_WORKERS);
    for (int i = 0; i < FL_MAX_WORKERS; i++) {
        const fl_reach_target *t = &read.reach.target[i];
        assert_true(t->host == i && t->port == 65535 && t->address == 0x0a000001);
        assert_int_equal(t->is_door, i % 2 == 0);
    }
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(host_message_get(bytes, cut, &read), FL_EFORMAT);
    }
    m.reach.target[0].port = 0;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_REACHED,
                          .reached = {.number = 7, .n = 1, .host = {3}, .why = "no answer"}};
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(host_message_get(bytes, n, &read), FL_OK);
    assert_int_equal(read.reached.number, 7);
    assert_int_equal(read.reached.n, 1);
    assert_int_equal(read.reached.host[0], 3);
    assert_string_equal(read.reached.why, "no answer");
    m.reached.why[0] = '\0'; /* not reached, for no reason */
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_DOOR, .door = 20017};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.door, 20017);
    m.door = 0;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_APART, .text = "it and host b"};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
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
    assert_int_equal(host_message_get(bytes, n, &read), FL_OK);
    assert_memory_equal(&read.measure, &m.measure, sizeof read.measure);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(host_message_get(bytes, cut, &read), FL_EFORMAT);
    }
    for (int i = 0; i < 6; i++) {
        m = measure_order();
        m.measure.host.first = i == 0 ? 0 : 2; /* the head has worker 0 */
        m.measure.host.n = i == 1 ? FL_MAX_WORKERS : 3;
        m.measure.run_dir[0] = i == 2 ? 'r' : '/';
        m.measure.job_bytes = i == 3 ? FL_HOST_JOB_MAX + 1 : 1;
        m.measure.all_ms = i == 4 ? 0 : 1;
        m.measure.silence_ms = i == 5 ? 0 : 1;
        assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    }
    m = (fl_host_message){.type = FL_HOST_UNMEASURED,
                          .unmeasured = {.number = 7, .text = "no memory"}};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
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
        assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_wire__keeps_an_order_to_measure_and_its_results),
        cmocka_unit_test(test_host_wire__keeps_what_hosts_are_to_reach),
        cmocka_unit_test(test_host_wire__keeps_an_order_to_measure_costs),
        cmocka_unit_test(test_host_wire__carries_a_profile_in_pieces),
        cmocka_unit_test(test_host_wire__refuses_pieces_that_do_not_fit),
        cmocka_unit_test(test_host_wire__each_pair_of_hosts_meets_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
