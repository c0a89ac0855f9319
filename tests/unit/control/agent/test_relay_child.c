/* The process of a relay while its host has not joined. Would catch: a host that answers no order,
 * and never joins, because the process that measures its links does not end. */
#include "control/agent/relay/relay_child.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum { ALL_MS = 100, WAIT_MS = 60000, NUMBER = 7 };

/* It takes fl_host_probe longer than ALL_MS to find that the other host never comes. */
static const fl_host_message order = {.type = FL_HOST_PROBE,
                                      .order = {.n = 2,
                                                .index = 1,
                                                .address = "127.0.0.1",
                                                .links = "tcp://127.0.0.1:1",
                                                .plain = true,
                                                .number = NUMBER,
                                                .pair_ms = ALL_MS,
                                                .all_ms = ALL_MS,
                                                .silence_ms = WAIT_MS}};

static const fl_host_message next = {.type = FL_HOST_MEASURE,
                                     .measure = {.number = NUMBER + 1,
                                                 .host = {.name = "b", .first = 1, .n = 1},
                                                 .run_dir = "/",
                                                 .cwd = "/",
                                                 .job_bytes = 1,
                                                 .all_ms = ALL_MS,
                                                 .silence_ms = WAIT_MS}};

static pid_t start_child(const fl_relay_options *o, int *head)
{
    int ends[2];
    sigset_t none;
    pid_t self = getpid();
    sigemptyset(&none);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        fl__relay_child(o, -1, ends[1], self, &none);
    }
    close(ends[1]);
    *head = ends[0];
    return pid;
}

static void read_message(int head, fl_host_message *out)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    struct pollfd item = {.fd = head, .events = POLLIN};
    assert_int_equal(poll(&item, 1, WAIT_MS), 1);
    ssize_t n = recv(head, bytes, sizeof bytes, 0);
    assert_true(n > 0);
    assert_int_equal(fl_host_wire_get(bytes, (size_t)n, out), FL_OK);
}

static void test_relay_child__a_measurement_that_does_not_end_is_killed(void **state)
{
    (void)state;
    fl_curve_keys keys = {0};
    fl_host_message m;
    int head, how = -1;
    assert_int_equal(zmq_curve_keypair(keys.public_key, keys.secret), 0);
    assert_int_equal(zmq_curve_keypair(keys.server, (char[FL_CURVE_KEY]){0}), 0);
    const fl_relay_options o = {.keys = &keys};
    pid_t pid = start_child(&o, &head);
    fl_relay_tell_head(head, &order);
    read_message(head, &m);
    assert_int_equal(m.type, FL_HOST_UNMEASURED);
    assert_int_equal(m.unmeasured.number, NUMBER);
    assert_non_null(strstr(m.unmeasured.text, "did not end within 2 s, and was killed"));
    fl_relay_tell_head(head, &next); /* it answers that one, too */
    read_message(head, &m);
    assert_int_equal(m.type, FL_HOST_UNMEASURED);
    assert_int_equal(m.unmeasured.number, NUMBER + 1);
    close(head);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

/* Would catch: a host whose ports are in use, and which is taken for one behind a firewall. */
static void test_relay_child__a_host_without_a_free_port_names_its_ports(void **state)
{
    (void)state;
    fl_curve_keys keys = {0};
    fl_host_message m, asked = order;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int head, how = -1, taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[64];
    assert_int_equal(bind(taken, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(taken, 1), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(zmq_curve_keypair(keys.public_key, keys.secret), 0);
    assert_int_equal(zmq_curve_keypair(keys.server, (char[FL_CURVE_KEY]){0}), 0);
    const fl_relay_options o = {.keys = &keys};
    asked.order.all_ms = WAIT_MS;
    asked.order.ports[0] = asked.order.ports[1] = ntohs(address.sin_port);
    pid_t pid = start_child(&o, &head);
    fl_relay_tell_head(head, &asked);
    read_message(head, &m);
    assert_int_equal(m.type, FL_HOST_PROBED);
    assert_false(m.probed.reached);
    assert_int_equal(m.probed.stage, FL_HOST_LINK_NO_PORT);
    snprintf(text, sizeof text, "all ports of 127.0.0.1 from %d to %d", ntohs(address.sin_port),
             ntohs(address.sin_port));
    assert_non_null(strstr(m.probed.why, text));
    close(head);
    close(taken);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relay_child__a_measurement_that_does_not_end_is_killed),
        cmocka_unit_test(test_relay_child__a_host_without_a_free_port_names_its_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
