/* Runs on two hosts, which are two network name spaces with a virtual cable between them: they
 * share processors and files, and no address. Would catch: a loss that depends on where the workers
 * are, bytes between hosts that go through shared memory, and agents that ssh does not start.
 * Without the right to make name spaces, each of these tests but the last is skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEPS = 12,
    COMPARED = 12,
    ENDLESS = 1000000, /* it lasts until it is stopped, however fast its steps are */
    STOPPED = 5,
    STOPPED_US = 5000000
};

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

static int make_loopback(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make_loopback(h, 2);
    *state = h;
    return 0;
}

/* Bytes that host a has sent to host b. */
static long bytes_sent(const net_hosts *h)
{
    assert_true(net_hosts_shell("ip netns exec %s cat /sys/class/net/fl0/statistics/tx_bytes",
                                h->host[0].space));
    return strtol(net_hosts_said(), NULL, 10);
}

static void check(const net_hosts *h)
{
    char more[64];
    snprintf(more, sizeof more, "--set train.max_steps=%d", STEPS);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, STEPS, COMPARED);
}

static void run_on_two(net_hosts *h, const char *more)
{
    char job[NET_HOSTS_TEXT];
    long before = bytes_sent(h);
    snprintf(job, sizeof job, NET_JOB "--set train.max_steps=%d %s", STEPS, more);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    net_hosts_expect_codes(h, 0, 0);
    assert_true(net_hosts_log_has(h, "b.log", "the run is over: this agent ends"));
    check(h);
    long sent = bytes_sent(h) - before;
    print_message("%ld bytes from host a to host b\n", sent);
    assert_true(sent > STEPS * 16 * 17 * 16 * 4L / 2); /* half of the activations, at least */
}

/* ---- tests in name spaces ---- */

static void test_hosts__a_pipeline_across_two(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    run_on_two(h, "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2");
}

static void test_hosts__replicas_on_two(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    run_on_two(h, "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1");
}

static void test_hosts__transitions_between_plans(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    run_on_two(h,
               "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2 "
               "--set 'elastic.script=[{step: 4, k: 1, r: 2, m: 1}, {step: 8, k: 2, r: 1, m: 4}]'");
}

/* ssh as the program finds it in PATH. before: what PATH was. */
static void make_ssh(const net_hosts *h, const char *script, char before[NET_HOSTS_TEXT])
{
    char path[FOLDER_SIZE + 32], with[NET_HOSTS_TEXT + FOLDER_SIZE + 8];
    snprintf(before, NET_HOSTS_TEXT, "%s", getenv("PATH"));
    assert_true(net_hosts_shell("mkdir %s/bin", h->dir));
    snprintf(path, sizeof path, "%s/bin/ssh", h->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    assert_true(net_hosts_shell("chmod 755 %s", path));
    snprintf(with, sizeof with, "%s/bin:%s", h->dir, before);
    setenv("PATH", with, 1);
}

/* What ssh gets is run by sh, in the name space of host b. */
static void train_by_ssh(net_hosts *h, const char *more)
{
    char script[512], job[NET_HOSTS_TEXT], before[NET_HOSTS_TEXT];
    NET_NEED(h);
    snprintf(script, sizeof script,
             "[ \"$1 $2 $3\" = '-o BatchMode=yes %s' ] || exit 9\n"
             "exec ip netns exec %s sh -c \"$4\"",
             h->host[1].address, h->host[1].space);
    make_ssh(h, script, before);
    snprintf(job, sizeof job,
             NET_JOB
             "--ssh --set train.max_steps=%d --set pipe.k=2 --set autodp.r=1 --set pipe.m=2 %s",
             STEPS, more);
    net_hosts_start_head(h, job);
    int code = net_hosts_await_exit(&h->head);
    setenv("PATH", before, 1);
    if (code != 0) {
        net_hosts_show_logs(h);
        fail_msg("head %d", code);
    }
    assert_true(net_hosts_log_has(h, "head.log", "joined the run")); /* the agent's output */
    assert_true(
        net_hosts_shell("! grep 'joined the run' %s/head.log | grep -v '^host b: [0-9]'", h->dir));
    check(h);
}

static void test_hosts__the_head_starts_agents_by_ssh(void **state)
{
    train_by_ssh(*state, "");
}

/* Would catch: a head that crashes, because it keeps the ssh of agents for a run that goes back. */
static void test_hosts__so_does_one_that_ends_with_a_loss(void **state)
{
    train_by_ssh(*state, "--set fault.on_loss=stop");
}

/* The run trains, and then ends by a request. Returns the exit code of the head. */
static int stop_run(net_hosts *h)
{
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + COMPARED);
    kill(h->head, SIGTERM);
    return net_hosts_await_exit(&h->head);
}

/* Would catch: a run that goes back and ends the ssh of agents which are to join it again; and an
 * agent that dies of what it says where nobody reads it. ssh is two processes here, as sshd makes
 * them: that of the agent lives on when the other one ends. */
static void go_back_with_ssh(net_hosts *h, bool ssh_ends)
{
    char script[512], job[NET_HOSTS_TEXT], before[NET_HOSTS_TEXT];
    NET_NEED(h);
    snprintf(script, sizeof script, "echo $$ >%s/ssh.pid; ip netns exec %s sh -c \"$4\" 2>&1 | cat",
             h->dir, h->host[1].space);
    make_ssh(h, script, before);
    snprintf(job, sizeof job,
             NET_JOB "--ssh --set train.max_steps=%d --set train.epochs=%d --set pipe.k=2 "
                     "--set autodp.r=1 --set pipe.m=2 --set elastic.enabled=false",
             ENDLESS, ENDLESS);
    net_hosts_start_head(h, job);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    if (ssh_ends) {
        assert_true(net_hosts_shell("kill -KILL $(cat %s/ssh.pid)", h->dir));
    }
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") > 0);
    int code = stop_run(h);
    setenv("PATH", before, 1);
    int n_lost = net_hosts_n_events(h, "host.lost", "");
    int n_resumed = net_hosts_n_events(h, "run.resumed", "");
    assert_true(net_hosts_shell("grep -c 'joined the run' %s/head.log", h->dir));
    long n_joined = strtol(net_hosts_said(), NULL, 10);
    bool good = code == STOPPED && n_lost == 0 && n_joined == 2 && n_resumed == 1;
    if (!good) {
        net_hosts_show_logs(h);
        fail_msg("head %d, lost %d, joined %ld, resumed %d", code, n_lost, n_joined, n_resumed);
    }
}

static void test_hosts__agents_of_ssh_join_a_run_that_goes_back(void **state)
{
    go_back_with_ssh(*state, false);
}

/* A connection of ssh may break. Would catch: a host that is lost for that. */
static void test_hosts__agents_whose_ssh_has_ended_do_so_too(void **state)
{
    go_back_with_ssh(*state, true);
}

static bool access_key(const net_hosts *h)
{
    return net_hosts_shell("[ -f %s/run/hosts.key ]", h->dir);
}

/* The head stands still for longer than an agent waits for a head that answers no more: while a run
 * goes back, nobody answers, and the port of the head takes connections all the same. Would catch:
 * an agent that leaves because its ssh has ended before, and a healthy host that is lost for it. */
static void test_hosts__agents_without_ssh_wait_for_a_head_that_goes_back(void **state)
{
    net_hosts *h = *state;
    char script[512], job[NET_HOSTS_TEXT], before[NET_HOSTS_TEXT];
    NET_NEED(h);
    snprintf(script, sizeof script,
             "cd %s && mkfifo input && { ip netns exec %s sh -c \"$4\" <input >b.log 2>&1 & } && "
             "exec 3>input && echo >&3 && echo $$ >ssh.pid && wait",
             h->dir, h->host[1].space);
    make_ssh(h, script, before);
    snprintf(job, sizeof job,
             NET_JOB "--ssh --set train.max_steps=%d --set train.epochs=%d --set pipe.k=2 "
                     "--set autodp.r=1 --set pipe.m=2 --set elastic.enabled=false "
                     "--set fault.detect=2s",
             ENDLESS, ENDLESS);
    net_hosts_start_head(h, job);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    assert_true(net_hosts_shell("kill -KILL $(cat %s/ssh.pid)", h->dir));
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "the run goes back"));
    kill(h->head, SIGSTOP);
    assert_true(access_key(h)); /* an agent that is started now can read it */
    NET_AWAIT(net_hosts_log_has(h, "b.log", "which chooses where the run goes back to"));
    nap(STOPPED_US);
    kill(h->head, SIGCONT);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") > 0);
    int code = stop_run(h);
    setenv("PATH", before, 1);
    int n_lost = net_hosts_n_events(h, "host.lost", "");
    int n_resumed = net_hosts_n_events(h, "run.resumed", "");
    if (code != STOPPED || n_lost != 0 || n_resumed != 1) {
        net_hosts_show_logs(h);
        fail_msg("head %d, lost %d, resumed %d", code, n_lost, n_resumed);
    }
    assert_false(access_key(h));
}

/* ssh hangs after its agent was killed, as that of a host which has vanished. Would catch: a run
 * that waits for such an ssh at its end, and kills what ends the agents of the other hosts. */
static void test_hosts__the_ssh_of_a_lost_host_is_ended(void **state)
{
    net_hosts *h = *state;
    char script[512], job[NET_HOSTS_TEXT], before[NET_HOSTS_TEXT];
    NET_NEED(h);
    snprintf(script, sizeof script, "ip netns exec %s sh -c \"$4\"\nexec sleep 1000",
             h->host[1].space);
    make_ssh(h, script, before);
    snprintf(job, sizeof job,
             NET_JOB "--ssh --set train.max_steps=%d --set train.epochs=%d --set pipe.k=1 "
                     "--set autodp.r=2 --set pipe.m=1 --set elastic.enabled=false",
             ENDLESS, ENDLESS);
    net_hosts_start_head(h, job);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    assert_true(net_hosts_shell("kill -KILL $(ps -o ppid= -p $(ps -o ppid= -p %d))",
                                (int)net_hosts_worker_pid(h, 1)));
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") > 0);
    int code = stop_run(h);
    setenv("PATH", before, 1);
    bool good = code == STOPPED && net_hosts_n_events(h, "host.lost", "") == 1 &&
                net_hosts_log_has(h, "head.log", "ends the ssh of host b, which is lost") &&
                !net_hosts_log_has(h, "head.log", "did not end in time");
    if (!good) {
        net_hosts_show_logs(h);
        fail_msg("head %d", code);
    }
}

/* The hosts are in the job, and there is no other option: a free port of the head's address. The
 * job states that b is faster. Would catch: values of `hosts` that plans do not use, or that a
 * measurement replaces. */
static void test_hosts__the_job_names_the_hosts(void **state)
{
    enum { N_LAYERS = 6, FEW = 2 };
    net_hosts *h = *state;
    char script[512], arguments[NET_HOSTS_TEXT], before[NET_HOSTS_TEXT];
    NET_NEED(h);
    snprintf(script, sizeof script, "[ \"$3\" = %s ] || exit 9\nexec ip netns exec %s sh -c \"$4\"",
             h->host[1].address, h->host[1].space);
    make_ssh(h, script, before);
    snprintf(arguments, sizeof arguments,
             "run " NET_JOB "--run-dir %s/run --set 'hosts=[{name: a, address: %s, devices: 1}, "
             "{name: b, address: %s, devices: 1, memory: 6MiB, speed: 8}]' "
             "--set train.max_steps=%d --set pipe.k=2 --set autodp.r=1 --set pipe.m=2",
             h->dir, h->host[0].address, h->host[1].address, STEPS);
    h->head = net_hosts_start(h, 0, "head.log", arguments);
    int code = net_hosts_await_exit(&h->head);
    setenv("PATH", before, 1);
    if (code != 0) {
        net_hosts_show_logs(h);
        fail_msg("head %d", code);
    }
    assert_int_equal(
        net_hosts_n_events(h, "run.started",
                           "\"speed\": 8, \"memory_bytes\": 6291456, \"profile\": \"stated\""),
        1);
    assert_int_equal(net_hosts_n_events(h, "run.started", "\"profile\": \"the head's\""), 1);
    assert_in_range(net_hosts_layers_of_second(h, N_LAYERS), N_LAYERS - FEW, N_LAYERS - 1);
    assert_false(net_hosts_log_has(h, "head.log", "is lost")); /* nor is it at the end */
    check(h);
}

/* Would catch: a run that waits for a host which ssh cannot reach. */
static void test_hosts__a_host_that_ssh_does_not_reach_ends_the_start(void **state)
{
    net_hosts *h = *state;
    char before[NET_HOSTS_TEXT];
    make_ssh(h, "echo one; printf 'no route to %0240d host' 5 >&2; exit 255", before);
    net_hosts_start_head(h, NET_JOB "--ssh --set train.max_steps=4");
    int code = net_hosts_await_exit(&h->head);
    setenv("PATH", before, 1);
    if (code != 3) {
        net_hosts_show_logs(h);
        fail_msg("head %d", code);
    }
    assert_true(net_hosts_shell("grep -x 'host b: one' %s/head.log && "
                                "grep -x 'host b: no route to 0*5 host' %s/head.log",
                                h->dir, h->dir));
    assert_true(
        net_hosts_log_has(h, "head.log", "5 host\"; try: ssh -o BatchMode=yes 127.0.0.2 true"));
    assert_true(net_hosts_log_has(h, "head.log", "ended with exit code 255"));
    assert_true(net_hosts_log_has(h, "head.log", "host b ("));
}

/* Would catch: a host that has had no time to join and is named for one that ssh does not reach. */
static void test_hosts__the_host_that_ssh_does_not_reach_is_named(void **state)
{
    net_hosts *h = *state;
    char before[NET_HOSTS_TEXT];
    make_ssh(h,
             "case \"$*\" in *127.0.0.2*) exec sleep 100 ;; esac\n"
             "echo no route to host >&2; exit 255",
             before);
    assert_true(
        net_hosts_shell("cd %s && sed -i '/links/,$d' hosts.yaml && "
                        "echo '  - {name: c, devices: 1, address: 127.0.0.3}' >> hosts.yaml",
                        h->dir));
    net_hosts_start_head(h, NET_JOB "--ssh --set train.max_steps=4");
    int code = net_hosts_await_exit(&h->head);
    setenv("PATH", before, 1);
    assert_int_equal(code, 3);
    assert_true(net_hosts_log_has(h, "head.log", "host c (127.0.0.3): "));
    assert_false(net_hosts_log_has(h, "head.log", "host b (127.0.0.2): "));
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)
#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACES(test_hosts__a_pipeline_across_two),
        SPACES(test_hosts__replicas_on_two),
        SPACES(test_hosts__transitions_between_plans),
        SPACES(test_hosts__the_head_starts_agents_by_ssh),
        SPACES(test_hosts__so_does_one_that_ends_with_a_loss),
        SPACES(test_hosts__agents_of_ssh_join_a_run_that_goes_back),
        SPACES(test_hosts__agents_whose_ssh_has_ended_do_so_too),
        SPACES(test_hosts__agents_without_ssh_wait_for_a_head_that_goes_back),
        SPACES(test_hosts__the_ssh_of_a_lost_host_is_ended),
        SPACES(test_hosts__the_job_names_the_hosts),
        LOOPBACK(test_hosts__a_host_that_ssh_does_not_reach_ends_the_start),
        LOOPBACK(test_hosts__the_host_that_ssh_does_not_reach_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
