/* A stranger opens more connections than a process may have descriptors, to every port of the head
 * of a run on two hosts, which may have few: both ports for the other host, both of the control
 * socket, and that of metrics. It keeps them open, in silence, with junk, with half a greeting, or
 * with a request of HTTP that never ends, and opens each anew as soon as it is closed. Would catch:
 * a head that ends, that cannot open a file, that stops training, or that nobody reaches
 * afterwards: a worker that is started anew, a client of the control socket, one of the metrics.
 * And one that says it can do with a limit and cannot. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FILES = 192,   /* that each process of the head may have */
    HELD = 2500,   /* connections of the stranger */
    FURTHER = 200, /* steps */
    LEAST = 144,   /* that a head of two workers accepts */
    WATCHERS = 64,
    FIRST = 4, /* of them */
    PORT = 5570,
    CONTROL_PORT = 5580,
    METRICS_PORT = 5590
};

static const int ports[] = {PORT, PORT + 1, CONTROL_PORT, CONTROL_PORT + 1, METRICS_PORT};
enum { N_PORTS = sizeof ports / sizeof *ports };

/* ---- the stranger ---- */

static const char *const words[] = {"", "\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01" /* half a greeting */,
                                    "GET /metrics HTTP/1.1\r\nX-",
                                    "\x01\x02junk that is no greeting and no request at all\xfe"};
enum { N_WORDS = sizeof words / sizeof *words };

static int open_one(const char *address, int n)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)ports[n % N_PORTS])};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    inet_pton(AF_INET, address, &to.sin_addr);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether it goes on. Words of which more always follows, or once. */
static bool keep_one(int fd, int n)
{
    char byte;
    const char *word = words[n / N_PORTS % N_WORDS];
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != ENOTCONN)) {
        return false;
    }
    return *word == '\0' || send(fd, word, strlen(word), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
           errno == EAGAIN || errno == ENOTCONN;
}

static _Noreturn void run_stranger(const char *address)
{
    static int held[HELD];
    memset(held, -1, sizeof held);
    for (;;) {
        for (int n = 0; n < HELD; n++) {
            if (held[n] >= 0 && !keep_one(held[n], n)) {
                close(held[n]);
                held[n] = -1;
            }
            held[n] = held[n] < 0 ? open_one(address, n) : held[n];
        }
        nap(1000);
    }
}

static pid_t start_stranger(const net_hosts *h)
{
    char path[64];
    const struct rlimit many = {HELD + 64, HELD + 64};
    snprintf(path, sizeof path, "/run/netns/%s", h->host[2].space);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int space = open(path, O_RDONLY | O_CLOEXEC);
        if (space < 0 || setns(space, CLONE_NEWNET) != 0 || setrlimit(RLIMIT_NOFILE, &many) != 0) {
            _exit(127);
        }
        run_stranger(h->host[0].address);
    }
    assert_true(pid > 0);
    return pid;
}

/* ---- the run ---- */

#define SHORT_CHECKPOINTS                                                                          \
    "--set train.max_steps=1000000 --set train.epochs=10000 --set checkpoint.every='50 steps' "

/* NET_AWAIT, and what the programs said where that never comes. */
#define AWAIT(h, condition)                                                                        \
    for (int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS); !(condition); nap(2000)) {          \
        if (fl_left_ms(until_us) == 0) {                                                           \
            net_hosts_show_logs(h);                                                                \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

/* Whether the process has ended; it is still to be waited for. */
static bool has_ended(pid_t pid)
{
    siginfo_t how = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid != 0;
}

static void start_head(net_hosts *h)
{
    char job[NET_HOSTS_TEXT];
    const char *at = h->host[0].address;
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=1000000 --set train.epochs=10000 --set pipe.k=auto "
                     "--set autodp.r=auto --set pipe.m=1 --set checkpoint.every='50 steps' "
                     "--set control.listen=tcp://%s:%d --set control.key=%s/run.key "
                     "--set control.allow=%s/mine.key.pub --set control.metrics=%s:%d",
             at, CONTROL_PORT, h->dir, h->dir, at, METRICS_PORT);
    net_hosts_start_head_limited(h, job, FILES);
}

static bool ask(const net_hosts *h)
{
    return net_hosts_shell("cd %s && ip netns exec %s timeout 20 '%s/frostline' ctl "
                           "tcp://%s:%d status --key mine.key --server run.key.pub",
                           h->dir, h->host[1].space, FL_BINARY_DIR, h->host[0].address,
                           CONTROL_PORT);
}

static bool read_metrics(const net_hosts *h)
{
    return net_hosts_shell("ip netns exec %s timeout 20 bash -c 'exec 3<>/dev/tcp/%s/%d && "
                           "printf \"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3 && cat <&3' | "
                           "grep -q ^frostline_",
                           h->host[1].space, h->host[0].address, METRICS_PORT);
}

static void expect_no(const net_hosts *h, const char *event)
{
    int n = net_hosts_n_events(h, event, "");
    if (n > 0) {
        net_hosts_show_logs(h);
        net_hosts_shell("tail -n 20 %s/run/events.jsonl", h->dir);
        fail_msg("%d times %s:\n%s", n, event, net_hosts_said());
    }
}

static void go_on(const net_hosts *h, int n)
{
    int steps = net_hosts_n_steps(h);
    AWAIT(h, net_hosts_n_steps(h) >= steps + n);
}

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

static void test_hosts_flood__leaves_room_for_the_run(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_write_file(h, "ab"); /* host c is the stranger's */
    assert_true(
        net_hosts_shell("cd %s && '%s/frostline' key run.key && '%s/frostline' key mine.key",
                        h->dir, FL_BINARY_DIR, FL_BINARY_DIR));
    start_head(h);
    net_hosts_start_agent(h, 1);
    AWAIT(h, net_hosts_n_steps(h) > 0);
    AWAIT(h, ask(h));
    AWAIT(h, read_metrics(h));
    pid_t stranger = start_stranger(h);
    AWAIT(h, net_hosts_log_has(h, "head.log", "descriptors are in use: new connections wait"));
    int checkpoints = net_hosts_n_events(h, "checkpoint.written", "");
    go_on(h, FURTHER);
    AWAIT(h, net_hosts_n_events(h, "checkpoint.written", "") > checkpoints + 1);
    int files = net_hosts_n_files(h->head);
    print_message("%d descriptors of %d\n", files, FILES);
    assert_true(files < FILES);
    expect_no(h, "checkpoint.failed");
    expect_no(h, "worker.lost");
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    AWAIT(h, net_hosts_n_events(h, "worker.joined", "") > 0);
    go_on(h, FURTHER);
    AWAIT(h, ask(h));
    AWAIT(h, read_metrics(h));
    kill(h->head, SIGINT);
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
}

/* The same before the run, while the links between hosts are to be measured. */
static void test_hosts_flood__leaves_room_for_the_hosts_that_are_awaited(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    assert_true(net_hosts_shell("sed -i '/^links/,$d' %s/hosts.yaml", h->dir));
    net_hosts_start_head_limited(h, NET_JOB "--set train.max_steps=20 --set train.epochs=1 ",
                                 FILES);
    AWAIT(h, net_hosts_log_has(h, "head.log", "measures the links between hosts"));
    pid_t stranger = start_stranger(h);
    AWAIT(h, net_hosts_log_has(h, "head.log", "descriptors are in use: new connections wait"));
    int files = net_hosts_n_files(h->head);
    print_message("%d descriptors of %d\n", files, FILES);
    assert_true(files < FILES);
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    net_hosts_start_agent(h, 1);
    AWAIT(h, has_ended(h->head) && has_ended(h->host[1].agent));
    net_hosts_expect(h, 0);
}

static pid_t start_watcher(const net_hosts *h)
{
    char arguments[FOLDER_SIZE + 32];
    snprintf(arguments, sizeof arguments, "ctl %s/run watch", h->dir);
    return net_hosts_start(h, 0, "watch.log", arguments);
}

static bool ask_near(const net_hosts *h)
{
    return net_hosts_shell("timeout 20 '%s/frostline' ctl %s/run status", FL_BINARY_DIR, h->dir);
}

/* With the least limit that a run accepts, and clients of the control socket in the run directory:
 * strangers keep none of the first ones away, and all of them leave the run what it needs. */
static void test_hosts_flood__leaves_room_at_the_least_limit(void **state)
{
    net_hosts *h = *state;
    char command[NET_HOSTS_TEXT], refused[96];
    pid_t watcher[WATCHERS];
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    snprintf(refused, sizeof refused, "a limit of %d .ulimit -n.; .*needs at least %d: ulimit",
             LEAST - 1, LEAST);
    snprintf(command, sizeof command, "cd %s && ulimit -n %d && ip netns exec %s '%s/frostline' ",
             h->dir, LEAST - 1, h->host[0].space, FL_BINARY_DIR);
    assert_true(net_hosts_shell("%s run " NET_JOB SHORT_CHECKPOINTS
                                " --run-dir %s/run --hosts hosts.yaml --listen tcp://%s:%d 2>err; "
                                "[ $? = 2 ] && grep '%s' err && [ ! -e run ]",
                                command, h->dir, h->host[0].address, PORT, refused));
    net_hosts_start_head_limited(h, NET_JOB SHORT_CHECKPOINTS, LEAST);
    net_hosts_start_agent(h, 1);
    AWAIT(h, net_hosts_n_steps(h) > 0);
    pid_t stranger = start_stranger(h);
    AWAIT(h, net_hosts_log_has(h, "head.log", "80 descriptors are in use: new connections wait"));
    for (int i = 0; i < WATCHERS; i++) {
        watcher[i] = start_watcher(h);
        assert_true(i >= FIRST || ask_near(h));
    }
    AWAIT(h, net_hosts_log_has(h, "head.log", "new clients in the run directory wait"));
    AWAIT(h, net_hosts_log_has(h, "watch.log", "no descriptor left for another client"));
    int checkpoints = net_hosts_n_events(h, "checkpoint.written", "");
    AWAIT(h, net_hosts_n_events(h, "checkpoint.written", "") > checkpoints + 4);
    int files = net_hosts_n_files(h->head);
    print_message("%d descriptors of %d\n", files, LEAST);
    assert_true(files < LEAST);
    expect_no(h, "checkpoint.failed");
    assert_false(net_hosts_log_has(h, "head.log", "could not be removed"));
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    kill(h->head, SIGINT);
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
    assert_true(net_hosts_shell("! ls %s/run | grep '[.]sock'", h->dir));
    for (int i = 0; i < WATCHERS; i++) {
        waitpid(watcher[i], NULL, 0); /* the run has ended */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hosts_flood__leaves_room_for_the_run, make_three,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_flood__leaves_room_at_the_least_limit,
                                        make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(
            test_hosts_flood__leaves_room_for_the_hosts_that_are_awaited, make_three,
            net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
