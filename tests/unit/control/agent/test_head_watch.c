/* Whether the head lives while the run goes back. Would catch: an agent that waits for a head which
 * is dead, one that gives a head up which takes connections and does not answer yet, and a port
 * that the next gate cannot have. */
#include "control/agent/relay/head_watch.h"
#include "control/link/held_port.h"

#include "device/system/clock.h"
#include "support/nap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum { WAIT_MS = 20000, TEXT = 64 };

static void test_head_watch__counts_from_the_end_of_the_connection(void **state)
{
    (void)state;
    fl_head_watch watch = {.closed_us = 0};
    fl_head_watch_begin(&watch, 50);
    fl_head_watch_note(&watch, ZMQ_EVENT_DISCONNECTED, 60);
    assert_int_equal(fl_head_watch_closed_us(&watch, 1000), 950); /* it was never there */
    fl_head_watch_note(&watch, ZMQ_EVENT_CONNECTED, 100);
    assert_int_equal(fl_head_watch_closed_us(&watch, 1000), 0);
    fl_head_watch_note(&watch, ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, 200);
    fl_head_watch_note(&watch, ZMQ_EVENT_DISCONNECTED, 300); /* the same end */
    assert_int_equal(fl_head_watch_closed_us(&watch, 1000), 800);
    fl_head_watch_note(&watch, ZMQ_EVENT_CONNECTED, 1100);
    assert_int_equal(fl_head_watch_closed_us(&watch, 9000), 0);
}

/* Would catch: an agent that was stopped, and gives its head up before it has tried to connect. */
static void test_head_watch__a_standstill_is_excused(void **state)
{
    (void)state;
    fl_head_watch watch = {.closed_us = 0};
    fl_head_watch_excuse(&watch, 50, 100);
    assert_int_equal(fl_head_watch_closed_us(&watch, 1000), 0);
    fl_head_watch_note(&watch, ZMQ_EVENT_DISCONNECTED, 100);
    fl_head_watch_excuse(&watch, 500, 700);
    assert_int_equal(fl_head_watch_closed_us(&watch, 1000), 400);
    fl_head_watch_excuse(&watch, 500, 1000); /* it began during the standstill */
    assert_int_equal(fl_head_watch_closed_us(&watch, 1000), 0);
}

/* A port that is free now. */
static void find_endpoint(char endpoint[TEXT])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(endpoint, TEXT, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    close(fd);
}

/* Read what happens to the connection until it is closed, or open. */
static void await(void *events, fl_head_watch *watch, bool closed)
{
    int64_t until_us = fl_deadline_us(WAIT_MS);
    while ((watch->closed_us != 0) != closed) {
        zmq_msg_t part;
        uint16_t event;
        assert_true(fl_left_ms(until_us) > 0);
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, events, ZMQ_DONTWAIT) < 0) {
            nap(1000);
        } else if (zmq_msg_more(&part)) {
            memcpy(&event, zmq_msg_data(&part), sizeof event);
            fl_head_watch_note(watch, event, fl_now_us());
        }
        zmq_msg_close(&part);
    }
}

static void test_head_watch__a_held_port_takes_connections(void **state)
{
    (void)state;
    char endpoint[TEXT];
    fl_head_watch watch = {.closed_us = 0};
    void *zmq = zmq_ctx_new(), *agent = zmq_socket(zmq, ZMQ_DEALER);
    void *events = zmq_socket(zmq, ZMQ_PAIR), *gate = zmq_socket(zmq, ZMQ_ROUTER);
    const int zero = 0;
    find_endpoint(endpoint);
    int held = fl_held_port_open(endpoint);
    fl_head_watch_begin(&watch, fl_now_us());
    assert_true(held >= 0);
    assert_int_equal(zmq_setsockopt(agent, ZMQ_LINGER, &zero, sizeof zero), 0);
    assert_int_equal(zmq_socket_monitor(agent, "inproc://watch", fl_head_watch_events), 0);
    assert_int_equal(zmq_connect(events, "inproc://watch"), 0);
    assert_int_equal(zmq_connect(agent, endpoint), 0);
    await(events, &watch, false);
    fl_held_port_close(&held);
    assert_int_equal(held, -1);
    await(events, &watch, true);
    assert_int_equal(zmq_bind(gate, endpoint), 0);
    await(events, &watch, false);
    assert_int_equal(fl_held_port_open(endpoint), -1);
    assert_int_equal(errno, EADDRINUSE);
    zmq_socket_monitor(agent, NULL, 0);
    zmq_close(agent);
    zmq_close(events);
    zmq_close(gate);
    zmq_ctx_term(zmq);
}

static void test_head_watch__holds_no_other_endpoint(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "tcp://", "ipc://x", "tcp://host-a:5570",
                                      "tcp://1.2.3.4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fl_held_port_open(bad[i]), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_watch__counts_from_the_end_of_the_connection),
        cmocka_unit_test(test_head_watch__a_standstill_is_excused),
        cmocka_unit_test(test_head_watch__a_held_port_takes_connections),
        cmocka_unit_test(test_head_watch__holds_no_other_endpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
