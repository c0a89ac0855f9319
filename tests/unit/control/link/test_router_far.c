/* The port at which the controller awaits the workers of other hosts. It was free when the run
 * began, and is held while the plan is made. Would catch: a start that ends, as if the user had
 * named a port that is taken, because another process has the port for a moment, or has taken it
 * since. */
#include "control/link/held_port.h"
#include "control/link/router.h"
#include "support/folder.h"
#include "support/nap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct rig {
    char folder[64], endpoint[64], keys[4][41];
    int dir_fd;
    fl_router router;
} rig;

static void open_rig(rig *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    snprintf(r->endpoint, sizeof r->endpoint, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    make_folder(r->folder);
    r->dir_fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(r->dir_fd >= 0);
    assert_int_equal(zmq_curve_keypair(r->keys[0], r->keys[1]), 0);
    assert_int_equal(zmq_curve_keypair(r->keys[2], r->keys[3]), 0);
}

static fl_status open_router(rig *r, int *held_fd)
{
    const fl_router_far far = {
        .endpoint = r->endpoint, .held_fd = held_fd, .secret = r->keys[1], .client = r->keys[2]};
    return fl_router_open(&r->router, r->dir_fd, r->folder, 1, &far);
}

static void close_rig(rig *r)
{
    fl_router_close(&r->router);
    close(r->dir_fd);
    assert_int_equal(rmdir(r->folder), 0);
}

/* "socket:[12345]"; "": the process has no such descriptor. */
static void read_socket(pid_t pid, int fd, char name[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)pid, fd);
    ssize_t n = readlink(link, name, PATH_MAX - 1);
    name[n < 0 ? 0 : n] = '\0';
}

/* A process with a copy of what holds the port, as an agent that was forked meanwhile, until the
 * router has begun to take the port over. */
static pid_t fork_copy(int held)
{
    pid_t router = getpid(), pid = fork();
    if (pid == 0) {
        char before[PATH_MAX], now[PATH_MAX];
        for (read_socket(getpid(), held, before);; nap(1000)) {
            read_socket(router, held, now);
            if (strcmp(before, now) != 0) {
                _exit(0);
            }
        }
    }
    assert_true(pid > 0);
    return pid;
}

static void test_router_far__takes_over_a_port_that_is_held(void **state)
{
    (void)state;
    rig r = {.dir_fd = -1};
    int how = -1;
    open_rig(&r);
    int held = fl_held_port_open(r.endpoint);
    assert_true(held >= 0);
    pid_t pid = fork_copy(held);
    assert_int_equal(open_router(&r, &held), FL_OK);
    assert_int_equal(held, -1);
    assert_int_equal(fl_held_port_open(r.endpoint), -1); /* the router has it */
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    close_rig(&r);
}

/* That is no mistake of the user. */
static void test_router_far__a_port_that_stays_taken_is_busy(void **state)
{
    (void)state;
    rig r = {.dir_fd = -1};
    open_rig(&r);
    int taken = fl_held_port_open(r.endpoint);
    assert_true(taken >= 0);
    assert_int_equal(open_router(&r, NULL), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), r.endpoint));
    fl_held_port_close(&taken);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_far__takes_over_a_port_that_is_held),
        cmocka_unit_test(test_router_far__a_port_that_stays_taken_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
