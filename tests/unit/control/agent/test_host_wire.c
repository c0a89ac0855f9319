/* Messages between hosts. Would catch: a field that is lost on the way, and bytes from a network
 * that crash the reader or are taken for a message. */
#include "control/agent/wire/host_wire.h"

#include "support/hosts/host_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static fl_host_message welcome(void)
{
    fl_host_message m = {.type = FL_HOST_WELCOME};
    m.welcome = (fl_host_welcome){.host = {.name = "b", .address = "10.0.0.2", .first = 2, .n = 3},
                                  .run_dir = "/runs/one",
                                  .proof = "joining-0a",
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

static void test_host_wire__keeps_every_field(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message m = welcome(), read;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_WELCOME);
    assert_string_equal(read.welcome.host.name, "b");
    assert_string_equal(read.welcome.host.address, "10.0.0.2");
    assert_int_equal(read.welcome.host.first, 2);
    assert_int_equal(read.welcome.host.n, 3);
    assert_string_equal(read.welcome.run_dir, "/runs/one");
    assert_string_equal(read.welcome.proof, "joining-0a");
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
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
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
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_ALIVE);
    static const fl_host_type plain[] = {FL_HOST_AGAIN, FL_HOST_STOP, FL_HOST_QUIT, FL_HOST_FAILED,
                                         FL_HOST_NEXT};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        m = (fl_host_message){.type = plain[i]};
        assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
        assert_int_equal(read.type, plain[i]);
    }
    m = (fl_host_message){.type = FL_HOST_BUSY, .text = "Too many open files"};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_string_equal(read.text, "Too many open files");
    m = (fl_host_message){.type = FL_HOST_LOST, .text = "it has not answered"};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_string_equal(read.text, "it has not answered");
    m = (fl_host_message){.type = FL_HOST_DRAIN, .grace_ms = 25000};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_DRAIN);
    assert_int_equal(read.grace_ms, 25000);
    m = (fl_host_message){.type = FL_HOST_PING, .clock = {.sent_ns = 7}};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_PING);
    assert_int_equal(read.clock.sent_ns, 7);
    m = (fl_host_message){.type = FL_HOST_PONG,
                          .clock = {.sent_ns = 7, .there_ns = 8, .wall_ns = 9}};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.clock.sent_ns, 7);
    assert_int_equal(read.clock.there_ns, 8);
    assert_int_equal(read.clock.wall_ns, 9);
    m.clock.wall_ns = -2000000000; /* before 1970 */
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.clock.wall_ns, -2000000000);
    m.clock.there_ns = INT64_MAX; /* the difference of two clocks overflows */
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m.clock.there_ns = -1;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_RELEASE, .text = "no plan"};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.type, FL_HOST_RELEASE);
    assert_string_equal(read.text, "no plan");
    m = (fl_host_message){.type = FL_HOST_FRAME,
                          .frame = {.bytes = (const unsigned char *)"frame", .n = 5}};
    size_t n = fl_host_wire_put(&m, bytes);
    assert_int_equal(fl_host_wire_get(bytes, n, &read), FL_OK);
    assert_int_equal(read.frame.n, 5);
    assert_memory_equal(read.frame.bytes, "frame", 5);
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
    assert_int_equal(host_message_get(bytes, n, &read), FL_OK);
    assert_int_equal(strlen(read.welcome.cwd), PATH_MAX - 1);
}

static void test_host_wire__refuses_what_is_cut_or_longer(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX + 1] = {0};
    fl_host_message m = welcome(), read;
    size_t n = fl_host_wire_put(&m, bytes);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(host_message_get(bytes, cut, &read), FL_EFORMAT);
    }
    assert_int_equal(host_message_get(bytes, n + 1, &read), FL_EFORMAT);
    m.type = (fl_host_type)99;
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(host_message_get(bytes, n, &read), FL_EFORMAT);
    m = (fl_host_message){.type = FL_HOST_FRAME, .frame = {.bytes = bytes, .n = 0}};
    n = fl_host_wire_put(&m, bytes);
    assert_int_equal(host_message_get(bytes, n, &read), FL_EFORMAT);
    static const unsigned char job[FL_HOST_JOB_PIECE + 1];
    m = (fl_host_message){.type = FL_HOST_JOB, .frame = {.bytes = job, .n = FL_HOST_JOB_PIECE}};
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_OK);
    assert_int_equal(read.frame.n, FL_HOST_JOB_PIECE);
    m.frame.n = FL_HOST_JOB_PIECE + 1;
    assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m, bytes), &read), FL_EFORMAT);
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
        assert_int_equal(host_message_get(bytes, n, &read), FL_EFORMAT);
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
        assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m[i], bytes), &read), FL_OK);
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            strcpy(name[i], bad[k]);
            assert_int_equal(host_message_get(bytes, fl_host_wire_put(&m[i], bytes), &read),
                             FL_EFORMAT);
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
        n_refused += host_message_get(bytes, n, &read) != FL_OK;
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(n_refused >= 64); /* the header, at least */
}

/* Also of a version that comes later. */
static void test_host_wire__any_version_says_which_host_asks(void **state)
{
    (void)state;
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    char name[FL_HOST_TEXT] = "";
    fl_host_message m = {.type = FL_HOST_JOIN, .join = {.name = "b", .n_devices = 1}}, read;
    size_t n = fl_host_wire_put(&m, bytes);
    bytes[4]++;
    assert_int_equal(host_message_get(bytes, n, &read), FL_ENOTSUP);
    assert_true(fl_host_wire_asked(bytes, n, name));
    assert_string_equal(name, "b");
    for (size_t cut = 0; cut < FL_HOST_HEADER_BYTES + 5; cut++) { /* the name ends there */
        assert_false(fl_host_wire_asked(bytes, cut, name));
    }
    m = (fl_host_message){.type = FL_HOST_LEAVE, .text = "b"};
    assert_false(fl_host_wire_asked(bytes, fl_host_wire_put(&m, bytes), name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_wire__keeps_every_field),
        cmocka_unit_test(test_host_wire__a_welcome_of_the_longest_texts_fits),
        cmocka_unit_test(test_host_wire__refuses_what_is_cut_or_longer),
        cmocka_unit_test(test_host_wire__refuses_values_that_make_no_sense),
        cmocka_unit_test(test_host_wire__refuses_names_that_no_file_of_hosts_has),
        cmocka_unit_test(test_host_wire__survives_noise),
        cmocka_unit_test(test_host_wire__any_version_says_which_host_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
