/* Whether a host reaches others. Would catch: a host that refuses connections and counts as cut
 * off, one that strangers keep out, one that is reached although nobody answers, and an order that
 * never ends. */
#include "control/agent/measure/reach.h"

#include "device/clock.h"
#include "support/nap.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

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

static void test_reach__tells_who_does_not_answer(void **state)
{
    (void)state;
    enum { FILL = 8 };
    fl_reach_door door, closed;
    fl_reach_order order = {.number = 9, .timeout_ms = TRY_MS, .n = 3};
    int fill[FILL];
    uint16_t full;
    assert_true(fl_reach_door_open(&door) && fl_reach_door_open(&closed));
    uint16_t refusing = closed.port;
    fl_reach_door_close(&closed);
    assert_int_equal(closed.fd, -1);
    int fd = listen_without_room(&full, fill, FILL);
    order.target[0] = (fl_reach_target){.host = 0, .port = door.port, .address = HERE};
    order.target[1] = (fl_reach_target){.host = 4, .port = full, .address = HERE};
    order.target[2] = (fl_reach_target){.host = 7, .port = refusing, .address = HERE};
    fl_reach_answer answer = carry_out(&order);
    assert_int_equal(answer.number, 9);
    assert_int_equal(answer.n, 1);
    assert_int_equal(answer.host[0], 4);
    assert_string_equal(answer.why, "no answer in 0.4 s");
    for (int i = 0; i < FILL; i++) {
        close(fill[i]);
    }
    close(fd);
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
    assert_true(fl_reach_door_open(&door));
    knock(door.port, stranger, STRANGERS);
    for (int i = 0; i < MANY; i++) {
        order.target[i] =
            (fl_reach_target){.host = (uint16_t)i, .port = door.port, .address = HERE};
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
    int fd = listen_without_room(&full, fill, FILL);
    for (int i = 0; i < MANY; i++) {
        order.target[i] = (fl_reach_target){.host = (uint16_t)i, .port = full, .address = HERE};
    }
    int64_t begun_us = fl_now_us();
    fl_reach_answer answer = carry_out(&order);
    /* Tried 32 at a time, they took seven times as long. A loaded machine gets one more. */
    assert_true(fl_now_us() - begun_us < 2 * TIMEOUT_MS * INT64_C(1000));
    assert_int_equal(answer.n, FL_REACH_ANSWER_MAX);
    assert_string_equal(answer.why, "no answer in 2.0 s");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach__tells_who_does_not_answer),
        cmocka_unit_test(test_reach__reaches_many),
        cmocka_unit_test(test_reach__answers_in_time_however_many_are_cut_off),
        cmocka_unit_test(test_reach__shares_time_and_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
