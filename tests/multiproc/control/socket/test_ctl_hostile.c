/* Sends a hundred thousand malformed messages to the control socket of a run that trains: random,
 * mutated, cut, oversized, deep, not UTF-8, replayed. Would catch: a controller that crashes,
 * stalls, grows, or accepts one of them as a request. */
#include "control/socket/ctl_request.h"
#include "device/random/random.h"
#include "support/draw.h"
#include "support/runs/live_run.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum {
    MESSAGES = 100000,
    WARM_UP = 20000, /* buffers and caches are as large as they get */
    LARGEST = 80 * 1024,
    OVERSIZED_EVERY = 997, /* the sender is disconnected each time */
    GROWTH_KIB = 2048,
    REPLAY_EVERY = 2000,
};

static uint64_t seed;
static uint64_t n_drawn;
static char text[LARGEST];
static int n_refused, n_answered, n_skipped;

static uint64_t drawn(uint64_t n)
{
    return fl_mix64(seed, n_drawn++) % n;
}

static const char *const bases[] = {
    "{\"v\": 1, \"id\": \"h1\", \"cmd\": \"status\"}",
    "{\"v\": 1, \"id\": \"h2\", \"cmd\": \"plan\", \"args\": {\"devices\": 2, \"frozen\": 1}}",
    "{\"v\": 1, \"id\": \"h3\", \"cmd\": \"pause\"}",
    "{\"v\": 1, \"id\": \"h4\", \"cmd\": \"stop\", \"args\": {\"when\": \"now\"}}",
    "{\"v\": 1, \"id\": \"h5\", \"cmd\": \"set\", \"args\": {\"field\":\"train.lr\",\"value\":9}}",
    "{\"v\": 1, \"id\": \"h6\", \"cmd\": \"drain\", \"args\": {\"worker\": 1}}",
    "{\"v\": 1, \"id\": \"h7\", \"cmd\": \"freeze\", \"args\": {\"blocks\": 2}}",
};
enum { N_BASES = sizeof bases / sizeof *bases };

static size_t random_bytes(void)
{
    size_t n = drawn(300);
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)drawn(256);
    }
    return n;
}

static size_t mutated(void)
{
    const char *base = bases[drawn(N_BASES)];
    size_t n = strlen(base);
    memcpy(text, base, n);
    for (uint64_t i = 1 + drawn(6); i > 0; i--) {
        text[drawn(n)] = drawn(2) == 0 ? (char)drawn(256) : "{}[]\",:0-e\\"[drawn(11)];
    }
    return n;
}

static size_t cut(void)
{
    const char *base = bases[drawn(N_BASES)];
    memcpy(text, base, strlen(base));
    return drawn(strlen(base));
}

static size_t deep(void)
{
    size_t n = 1 + drawn(FL_CTL_REQUEST_MAX + 100);
    const char *brackets[] = {"[", "{\"a\":", "[{\"b\":["};
    const char *bracket = brackets[drawn(3)];
    for (size_t i = 0; i < n; i++) {
        text[i] = bracket[i % strlen(bracket)];
    }
    return n;
}

static size_t not_utf8(void)
{
    static const char *const wrong[] = {"\xff",     "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                        "\xe2\x82", "\\u0000",  "\\ud800"};
    return (size_t)snprintf(text, sizeof text, "{\"v\": 1, \"id\": \"%s\", \"cmd\": \"status\"}",
                            wrong[drawn(7)]);
}

static size_t oversized(void)
{
    memset(text, 'x', sizeof text);
    return sizeof text;
}

/* Valid requests that would change the run are not sent: a client may send those. */
static bool is_harmless(size_t n)
{
    fl_ctl_request request;
    char message[FL_CTL_MESSAGE_MAX];
    fl_ctl_error error = fl_ctl_request_read(text, n, &request, message);
    n_refused += error != FL_CTL_OK;
    return error != FL_CTL_OK || !request.command->changes;
}

static void drop_replies(void *socket)
{
    char reply[64];
    while (zmq_recv(socket, reply, sizeof reply, ZMQ_DONTWAIT) >= 0) {
        n_answered++;
    }
}

static void send_one(void *socket, int i)
{
    static size_t (*const makers[])(void) = {random_bytes, mutated, cut, deep, not_utf8};
    size_t n = i % OVERSIZED_EVERY == 0 ? oversized() : makers[drawn(5)]();
    if (!is_harmless(n)) {
        n_skipped++;
        return;
    }
    /* In one, two or many parts, with or without an empty one: ROUTER clients may do all that. */
    uint64_t form = drawn(20);
    if (form == 0) {
        zmq_send(socket, "", 0, ZMQ_SNDMORE);
    } else if (form == 1) {
        for (int part = 0; part < 9; part++) {
            zmq_send(socket, "part", 4, ZMQ_SNDMORE);
        }
    }
    assert_true(zmq_send(socket, text, n, 0) >= 0);
    drop_replies(socket);
}

static long rss_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "VmRSS: %ld", &kib) != 1) {
    }
    fclose(file);
    assert_true(kib > 0);
    return kib;
}

/* All that was sent has been read when the answer to this one is there. */
static void await_quiet(live_run *run)
{
    (void)live_status(run, "step");
}

static void test_hostile__changes_nothing(void **state)
{
    (void)state;
    seed = drawn_seed();
    live_run run = live_start((const char *const[]){
        "train.batch", "10", "train.evaluate", "false", "train.epochs", "90000", "devices.count",
        "2", "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", NULL});
    live_await_step(&run, 10);
    const char *pause = "{\"v\": 1, \"id\": \"replayed\", \"cmd\": \"pause\"}";
    json_decref(live_send(&run, pause));
    json_decref(live_ask(&run, "resume", "{}"));

    char endpoint[64];
    int dir_fd = open(run.dir, O_PATH | O_DIRECTORY), linger_ms = 0;
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_DEALER);
    snprintf(endpoint, sizeof endpoint, "ipc:///proc/self/fd/%d/control.sock", dir_fd);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    long before = 0;
    int64_t step = 0;
    for (int i = 1; i <= MESSAGES; i++) {
        send_one(socket, i);
        if (i % REPLAY_EVERY == 0) {
            json_decref(live_send(&run, pause));
            await_quiet(&run);
        }
        if (i == WARM_UP) {
            before = rss_kib(run.controller);
            step = live_status(&run, "step");
        }
    }
    await_quiet(&run);
    drop_replies(socket);
    long grown = rss_kib(run.controller) - before;
    print_message(
        "%d messages, %d no requests, %d answered, %d not sent; the controller grew by %ld KiB\n",
        MESSAGES, n_refused, n_answered, n_skipped, grown);
    assert_true(n_refused > MESSAGES / 2 && n_answered > MESSAGES / 2);
    assert_true(grown < GROWTH_KIB);
    live_await_step(&run, step + 10); /* it trains on */
    json_t *status = live_ask(&run, "status", "{}"), *plan = json_object_get(status, "plan");
    assert_string_equal(json_string_value(json_object_get(status, "state")), "running");
    assert_int_equal(json_integer_value(json_object_get(plan, "generation")), 1);
    assert_true(json_number_value(json_object_get(status, "lr")) < 1.0);
    json_decref(status);
    zmq_close(socket);
    zmq_ctx_term(zmq);
    close(dir_fd);
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile__changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
