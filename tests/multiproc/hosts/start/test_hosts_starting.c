/* A host that is lost between its welcome and the start of its workers, and a worker that is
 * stopped while it opens its connections. Would catch: a run that ends although it may go back, and
 * one that waits for that worker for ever. The hosts are loopback addresses. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { STEPS = 12 };

static int make_loopback(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make_loopback(h, 2);
    *state = h;
    return 0;
}

/* The process that would start the workers of host b is stopped before the head lets the host in,
 * and killed after that. */
static void lose_host_while_it_starts(net_hosts *h, const char *more)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=%d --set train.epochs=1 --set elastic.enabled=false %s",
             STEPS, more);
    net_hosts_start_head(h, job);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host"));
    pid_t gate = 0, agent = 0;
    NET_AWAIT((gate = net_hosts_child_of(h->head)) > 0);
    net_hosts_stop(h, gate);
    net_hosts_start_agent(h, 1);
    NET_AWAIT((agent = net_hosts_child_of(h->host[1].agent)) > 0);
    net_hosts_stop(h, agent);
    kill(gate, SIGCONT);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "host b (127.0.0.2) has joined"));
    kill(agent, SIGKILL);
}

static void test_hosts_starting__a_lost_host_is_a_loss(void **state)
{
    net_hosts *h = *state;
    lose_host_while_it_starts(h, "");
    net_hosts_expect_codes(h, 0, 3);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "while it started, with host b (127.0.0.2): its "
                                  "agent was killed by signal 9"));
    assert_true(net_hosts_log_has(h, "head.log", "goes back from step 0 to its start, step 0"));
}

static void test_hosts_starting__a_run_that_may_not_go_back_ends(void **state)
{
    net_hosts *h = *state;
    lose_host_while_it_starts(h, "--set fault.restarts=0");
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log", "while it started, with host b (127.0.0.2)"));
    assert_true(net_hosts_log_has(h, "head.log", "fault.restarts is 0"));
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"host\": \"b\""), 1);
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 1);
}

/* The line is written once its link is open, and before its first group. */
static void test_hosts_starting__a_worker_that_stops_is_a_loss(void **state)
{
    net_hosts *h = *state;
    int pid = 0;
    net_hosts_start_head(h, NET_JOB "--set train.max_steps=1000000 --set train.epochs=1000000 "
                                    "--set fault.detect=2s --set fault.restarts=0 --set pipe.k=2 "
                                    "--set autodp.r=1");
    net_hosts_start_agent(h, 1);
    NET_AWAIT(
        net_hosts_shell("sed -n 's/.*, process \\([0-9]*\\)$/\\1/p' %s/run/worker-1.log", h->dir) &&
        (pid = (int)strtol(net_hosts_said(), NULL, 10)) > 0 &&
        net_hosts_log_has(h, "run/worker-1.log", "worker 1: on processor"));
    net_hosts_stop(h, pid);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log", "worker 1 (stage "));
    assert_true(
        net_hosts_log_has(h, "head.log", "did not answer for") ||
        net_hosts_log_has(h, "head.log", "was not ready") || /* stopped before it was heard */
        net_hosts_log_has(h, "head.log", "is alive, but others waited for it in vain"));
}

#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOPBACK(test_hosts_starting__a_lost_host_is_a_loss),
        LOOPBACK(test_hosts_starting__a_run_that_may_not_go_back_ends),
        LOOPBACK(test_hosts_starting__a_worker_that_stops_is_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
