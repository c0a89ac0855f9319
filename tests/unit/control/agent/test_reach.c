/* Whether a host reaches others. Would catch: a host that is busy and counts as cut off, one that
 * strangers keep out, one that is reached although nobody answers, or a firewall in its place, and
 * an order that never ends. */
#include "control/agent/measure/reach.h"

#include "device/system/clock.h"
#include "support/nap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const uint16_t any[2] = {0, 0};

enum { HERE = 0x7f000001, WAIT_MS = 20000, TRY_MS = 400 };

static fl_reach_answer carry_out(const fl_reach_order *order)
{
    fl_reach_round *round = NULL;
    fl_reach_answer answer = {.n = -1};
    assert_int_equal(fl_reach_round_begin(&round, order), FL_OK);
    assert_true(fl_reach_round_runs(round));
    for (int64_t until_us = fl_deadline_us(WAIT_MS); !fl_reach_round_turn(round, &answer);) {
        assert_true(fl_left_ms(until_us) > 0);
        nap(1000);
    }
    assert_false(fl_reach_round_runs(round));
    assert_false(fl_reach_round_turn(round, &answer));
    fl_reach_round_end(&round);
    assert_null(round);
    return answer;
}

static void knock(uint16_t port, int *fd, int n)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(HERE)};
    for (int i = 0; i < n; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(fd[i] >= 0);
        (void)connect(fd[i], (struct sockaddr *)&a, sizeof a);
    }
}

/* A socket that listens and takes no connection: its queue is full, and the kernel drops more. */
static int listen_without_room(uint16_t *port, int *fill, int n_fill)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(HERE)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, size) == 0 && listen(fd, 0) == 0 &&
                getsockname(fd, (struct sockaddr *)&a, &size) == 0);
    *port = ntohs(a.sin_port);
    knock(*port, fill, n_fill);
    return fd;
}

/* An agent listens at its port, so that nobody but a firewall refuses; the port of a worker that is
 * gone is refused by its host. */
static void test_reach__tells_who_does_not_answer(void **state)
{
    (void)state;
    enum { FILL = 8 };
    fl_reach_door door, closed;
    char refused[64];
    fl_reach_order order = {.number = 9, .timeout_ms = TRY_MS, .n = 4};
    int fill[FILL];
    uint16_t full;
    assert_true(fl_reach_door_open(&door, any) && fl_reach_door_open(&closed, any));
    uint16_t refusing = closed.port;
    fl_reach_door_close(&closed);
    assert_int_equal(closed.fd, -1);
    int fd = listen_without_room(&full, fill, FILL);
    order.target[0] = (fl_reach_target){0, door.port, true, HERE};
    order.target[1] = (fl_reach_target){4, full, true, HERE};
    order.target[2] = (fl_reach_target){7, refusing, false, HERE};
    order.target[3] = (fl_reach_target){8, refusing, true, HERE};
    fl_reach_answer answer = carry_out(&order);
    assert_int_equal(answer.number, 9);
    assert_int_equal(answer.n, 2);
    assert_int_equal(answer.host[0], 4);
    assert_int_equal(answer.host[1], 8);
    snprintf(refused, sizeof refused, "port %u: no answer in 0.4 s", full);
    assert_string_equal(answer.why, refused);
    fl_reach_door_turn(&door); /* one has come */
    fl_reach_door_turn(&door);
    for (int i = 0; i < FILL; i++) {
        close(fill[i]);
    }
    close(fd);
    fl_reach_door_close(&door);
}

/* Nobody listens at first. Would catch: a host that is left out because a firewall refused its
 * connections for a moment. */
static void test_reach__tries_again_after_a_refusal(void **state)
{
    (void)state;
    enum { REFUSED_MS = 1200 };
    fl_reach_door door;
    fl_reach_round *round = NULL;
    fl_reach_answer answer = {.n = -1};
    assert_true(fl_reach_door_open(&door, any));
    const uint16_t same[2] = {door.port, door.port};
    const fl_reach_order order = {
        .number = 5, .timeout_ms = WAIT_MS, .n = 1, .target[0] = {0, door.port, true, HERE}};
    fl_reach_door_close(&door);
    assert_int_equal(fl_reach_round_begin(&round, &order), FL_OK);
    int64_t until_us = fl_deadline_us(REFUSED_MS);
    while (!fl_reach_round_turn(round, &answer)) {
        if (door.fd < 0 && fl_left_ms(until_us) == 0) {
            assert_true(fl_reach_door_open(&door, same));
        }
        nap(1000);
    }
    assert_int_equal(answer.n, 0);
    assert_true(door.fd >= 0);
    fl_reach_round_end(&round);
    fl_reach_door_close(&door);
}

/* More hosts than are tried at once, and strangers who knock there, too. */
static void test_reach__reaches_many(void **state)
{
    (void)state;
    enum { MANY = 200, STRANGERS = 64 };
    fl_reach_door door;
    int stranger[STRANGERS];
    fl_reach_order order = {.number = 1, .timeout_ms = WAIT_MS, .n = MANY};
    assert_true(fl_reach_door_open(&door, any));
    knock(door.port, stranger, STRANGERS);
    for (int i = 0; i < MANY; i++) {
        order.target[i] = (fl_reach_target){(uint16_t)i, door.port, true, HERE};
    }
    fl_reach_answer answer = carry_out(&order);
    assert_int_equal(answer.n, 0);
    assert_string_equal(answer.why, "");
    for (int i = 0; i < STRANGERS; i++) {
        close(stranger[i]);
    }
    fl_reach_door_close(&door);
}

/* Would catch: an answer that comes after the head's time for it, because hosts that do not answer
 * are tried one after the other; and sockets that a process cannot have. */
static void test_reach__answers_in_time_however_many_are_cut_off(void **state)
{
    (void)state;
    enum { MANY = 200, FILL = 8, TIMEOUT_MS = 2000 };
    fl_reach_order order = {.number = 3, .timeout_ms = TIMEOUT_MS, .n = MANY};
    int fill[FILL];
    uint16_t full;
    char why[64];
    int fd = listen_without_room(&full, fill, FILL);
    for (int i = 0; i < MANY; i++) {
        order.target[i] = (fl_reach_target){(uint16_t)i, full, true, HERE};
    }
    int64_t begun_us = fl_now_us();
    fl_reach_answer answer = carry_out(&order);
    /* Tried 32 at a time, they took seven times as long. A loaded machine gets one more. */
    assert_true(fl_now_us() - begun_us < 2 * TIMEOUT_MS * INT64_C(1000));
    assert_int_equal(answer.n, FL_REACH_ANSWER_MAX);
    snprintf(why, sizeof why, "port %u: no answer in 2.0 s", full);
    assert_string_equal(answer.why, why);
    for (int i = 0; i < FILL; i++) {
        close(fill[i]);
    }
    close(fd);
}

static void test_reach__shares_time_and_descriptors(void **state)
{
    (void)state;
    for (int n = 1; n <= FL_MAX_WORKERS; n++) {
        fl_reach_shares s = fl_reach_share(n, 5000);
        assert_true(s.attempts >= 1 && s.attempts <= 4);
        int n_turns = (n + s.at_once - 1) / s.at_once;
        assert_true(s.attempts * s.at_once <= 256);
        assert_true(s.timeout_ms > 0 && n_turns * s.timeout_ms <= 5000);
    }
    assert_int_equal(fl_reach_share(64, 1000).attempts, 4);
    assert_int_equal(fl_reach_share(65, 1000).attempts, 3);
    assert_int_equal(fl_reach_share(256, 1000).timeout_ms, 1000);
    assert_int_equal(fl_reach_share(257, 1000).timeout_ms, 500);
    assert_true(fl_reach_share(0, 1000).timeout_ms > 0);
}

/* Two take different ports of a range, and a third finds none. */
static void test_reach__listens_in_a_range(void **state)
{
    (void)state;
    fl_reach_door door[3];
    uint16_t range[2];
    bool both = false;
    for (int i = 0; i < 100 && !both; i++) { /* other processes take ports, too */
        assert_true(fl_reach_door_open(&door[0], any));
        range[0] = (uint16_t)(door[0].port & ~1);
        range[1] = (uint16_t)(range[0] + 1);
        fl_reach_door_close(&door[0]);
        both = fl_reach_door_open(&door[0], range);
        both = fl_reach_door_open(&door[1], range) && both;
        for (int k = 0; k < 2 && !both; k++) {
            fl_reach_door_close(&door[k]);
        }
    }
    assert_true(both && door[0].port >= range[0] && door[0].port <= range[1]);
    assert_int_equal(door[0].port ^ 1, door[1].port);
    assert_false(fl_reach_door_open(&door[2], range));
    assert_int_equal(errno, EADDRINUSE);
    for (int i = 0; i < 3; i++) {
        fl_reach_door_close(&door[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach__tells_who_does_not_answer),
        cmocka_unit_test(test_reach__tries_again_after_a_refusal),
        cmocka_unit_test(test_reach__reaches_many),
        cmocka_unit_test(test_reach__answers_in_time_however_many_are_cut_off),
        cmocka_unit_test(test_reach__shares_time_and_descriptors),
        cmocka_unit_test(test_reach__listens_in_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
