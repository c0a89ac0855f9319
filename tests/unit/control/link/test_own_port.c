/* A port of the head that another process has for a moment. Would catch: a start that ends because
 * the head and a process that has its port have stood still together, as all of a machine; one that
 * ends because a process with a copy of what held the port stands still. */
#include "control/link/held_port.h"
#include "control/link/keys/zap_auth.h"
#include "support/nap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum { WAIT_MS = 1000, STILL_US = 1300000, MORE_US = 100000 };

typedef struct port {
    void *zmq, *socket;
    fl_zap_auth *guard;
    char endpoint[64];
    int held;
} port;

static void open_port(port *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char key[4][FL_KEY_MAX];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    snprintf(p->endpoint, sizeof p->endpoint, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    p->held = fl_held_port_open(p->endpoint);
    assert_true(p->held >= 0);
    assert_int_equal(zmq_curve_keypair(key[0], key[1]), 0);
    assert_int_equal(zmq_curve_keypair(key[2], key[3]), 0);
    assert_int_equal(fl_zap_auth_create_for(key[1], key[2], &p->guard), FL_OK);
}

/* A process with a copy of the port, which stops this one, and gives the port up once this one has
 * gone on for a moment: that standstill is what is tested. */
static pid_t fork_stopper(const port *p)
{
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        kill(self, SIGSTOP);
        nap(STILL_US);
        kill(self, SIGCONT);
        nap(MORE_US);
        close(p->held);
        _exit(0);
    }
    assert_true(pid > 0);
    return pid;
}

static fl_status bind_port(port *p)
{
    p->zmq = zmq_ctx_new();
    p->socket = zmq_socket(p->zmq, ZMQ_ROUTER);
    assert_non_null(p->socket);
    assert_int_equal(fl_zap_auth_open(p->guard, p->zmq), FL_OK);
    return fl_zap_auth_bind_own(p->guard, p->zmq, p->socket, p->endpoint, "for a test", WAIT_MS);
}

static void close_port(port *p)
{
    zmq_close(p->socket);
    fl_zap_auth_close(p->guard);
    fl_zap_auth_destroy(&p->guard);
    zmq_ctx_term(p->zmq);
}

static void test_own_port__a_standstill_is_no_wait(void **state)
{
    (void)state;
    port p = {.held = -1};
    open_port(&p);
    pid_t pid = fork_stopper(&p);
    close(p.held); /* the other process still listens */
    assert_int_equal(bind_port(&p), FL_OK);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close_port(&p);
}

static void test_own_port__a_copy_that_stands_still_is_no_owner(void **state)
{
    (void)state;
    port p = {.held = -1};
    open_port(&p);
    pid_t pid = fork();
    if (pid == 0) {
        pause(); /* until it is killed */
        _exit(0);
    }
    assert_true(pid > 0);
    fl_held_port_close(&p.held);
    fl_status status = bind_port(&p);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(status, FL_OK);
    close_port(&p);
}

static void test_own_port__a_copy_that_is_dropped_stays_held(void **state)
{
    (void)state;
    port p = {.held = -1};
    open_port(&p);
    pid_t pid = fork();
    if (pid == 0) {
        fl_held_ports copies = {.agents = p.held, .links = -1};
        fl_held_ports_drop_copies(&copies);
        _exit(copies.agents == -1 ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    assert_int_equal(fl_held_port_open(p.endpoint), -1);
    assert_int_equal(errno, EADDRINUSE);
    fl_held_port_close(&p.held);
    assert_int_equal(bind_port(&p), FL_OK);
    close_port(&p);
}

static void test_own_port__one_that_stays_taken_is_busy(void **state)
{
    (void)state;
    port p = {.held = -1};
    open_port(&p);
    assert_int_equal(bind_port(&p), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), "which was free before, for a test"));
    fl_held_port_close(&p.held);
    close_port(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_port__a_standstill_is_no_wait),
        cmocka_unit_test(test_own_port__a_copy_that_stands_still_is_no_owner),
        cmocka_unit_test(test_own_port__a_copy_that_is_dropped_stays_held),
        cmocka_unit_test(test_own_port__one_that_stays_taken_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
