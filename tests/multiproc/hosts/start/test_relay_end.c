/* The end of an agent that has not joined: its head takes its connection and says nothing. Would
 * catch: an agent that waits its whole minute for a head which has ended, and one that leaves at a
 * signal for all before the head has noticed it. */
#include "control/agent/relay/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum { WAIT_MS = 60000 };

/* What others than the connection know of the head. */
typedef struct known_head {
    int n_looks, ends_at; /* the look that finds its end; 0: none does */
    int code;
} known_head;

static fl_status check_head(void *context, int *exit_code)
{
    known_head *head = context;
    head->n_looks++;
    if (head->n_looks != head->ends_at) {
        return FL_OK;
    }
    *exit_code = head->code;
    return fl_fail(FL_EFAILED, "the head has ended with exit code %d", head->code);
}

/* A port that takes connections, and answers none. */
static int open_port(char endpoint[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(endpoint, 64, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static fl_status join(int64_t hold_ms, known_head *head, fl_relay_end *end)
{
    char endpoint[64], secret[41];
    fl_curve_keys keys = {0};
    int fd = open_port(endpoint);
    assert_int_equal(zmq_curve_keypair(keys.server, secret), 0);
    assert_int_equal(zmq_curve_keypair(keys.public_key, keys.secret), 0);
    const fl_relay_options relay = {.endpoint = endpoint,
                                    .keys = &keys,
                                    .name = "b",
                                    .address = "",
                                    .n_devices = 1,
                                    .join_ms = WAIT_MS,
                                    .grace_ms = WAIT_MS,
                                    .hold_ms = hold_ms,
                                    .check_head = check_head,
                                    .head_context = head};
    *end = (fl_relay_end){.exit_code = 0};
    fl_status status = fl_relay_run(&relay, end);
    close(fd);
    return status;
}

/* From now on it is pending for the relay. */
static void send_signal(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(number);
}

static void test_relay__ends_with_a_head_that_has_ended(void **state)
{
    (void)state;
    known_head head = {.ends_at = 2, .code = 5};
    fl_relay_end end;
    assert_int_equal(join(0, &head, &end), FL_EFAILED);
    assert_int_equal(end.exit_code, 5);
    assert_false(end.joined);
}

static void test_relay__a_signal_ends_it_at_once(void **state)
{
    (void)state;
    known_head head = {.ends_at = 0};
    fl_relay_end end;
    send_signal(SIGINT);
    assert_int_equal(join(0, &head, &end), FL_ESTOPPED);
    assert_int_equal(end.signal_number, SIGINT);
    assert_string_equal(fl_errmsg(), "the agent of host 'b' was stopped by signal 2 before this "
                                     "host had joined the run");
}

/* As a task of an engine, whose head has the same signal. */
static void test_relay__a_signal_lets_the_head_end_first(void **state)
{
    (void)state;
    known_head head = {.ends_at = 2, .code = 130};
    fl_relay_end end;
    send_signal(SIGINT);
    assert_int_equal(join(WAIT_MS, &head, &end), FL_EFAILED);
    assert_int_equal(end.exit_code, 130);
}

static void test_relay__a_signal_ends_it_if_the_head_goes_on(void **state)
{
    (void)state;
    known_head head = {.ends_at = 0};
    fl_relay_end end;
    send_signal(SIGTERM);
    assert_int_equal(join(1, &head, &end), FL_ESTOPPED);
    assert_int_equal(end.signal_number, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relay__ends_with_a_head_that_has_ended),
        cmocka_unit_test(test_relay__a_signal_ends_it_at_once),
        cmocka_unit_test(test_relay__a_signal_lets_the_head_end_first),
        cmocka_unit_test(test_relay__a_signal_ends_it_if_the_head_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
