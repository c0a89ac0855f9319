/* Hosts that join a run while it trains: one that was lost, or that was drained, and a new one that
 * the file of hosts does not name. Would catch: a host that stays away for ever, one whose workers
 * join and get no work, a name or ranks that are given twice, losses that such a change moves, and
 * samples that are used twice or never. Hosts are network name spaces; without the right to make
 * them, the tests are skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMPARED = 20 };

/* It ends by a request. */
#define JOB NET_JOB "--set train.epochs=1000 --set fault.detect=5s --set elastic.enabled=false "

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

static bool ctl(const net_hosts *h, const char *words)
{
    return net_hosts_shell("'%s/frostline' ctl %s/run %s", FL_BINARY_DIR, h->dir, words);
}

/* Start the run on a and b with two replicas, and wait until it trains. */
static void start_two(net_hosts *h, const char *more)
{
    char job[1024];
    net_hosts_write_file(h, "ab");
    snprintf(job, sizeof job, JOB "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 %s", more);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
}

static void check_end(net_hosts *h)
{
    assert_true(ctl(h, "stop"));
    net_hosts_expect(h, 130);
    net_hosts_run_alone(h, "--set train.max_steps=20");
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

/* How many changes to such a plan there were. */
static int n_plans(const net_hosts *h, const char *grid)
{
    return net_hosts_n_events(h, "transition.done", grid);
}

static void test_host_joining__a_lost_host_comes_back(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_two(h, "");
    kill(h->host[1].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[1].agent);
    net_hosts_start_agent(h, 1); /* before the head knows of the loss */
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"b\"") == 1);
    NET_AWAIT(n_plans(h, "\"r\": 2") == 1);
    int pid = net_hosts_event_pid(h, "worker.joined", 1);
    assert_int_equal(net_hosts_event_pid(h, "worker.ready", 1), pid);
    assert_int_not_equal(net_hosts_worker_pid(h, 1), pid);
    check_end(h);
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"host\": \"b\""), 1);
    assert_int_equal(net_hosts_n_events(h, "host.joined", "\"host\": \"b\""), 2);
    assert_int_equal(net_hosts_n_events(h, "worker.restarted", "\"host joined\""), 1);
}

/* Would catch: an agent that stood still, and is told of two possible reasons. */
static void test_host_joining__an_agent_that_was_replaced_is_told(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_two(h, "");
    pid_t former = h->host[1].agent;
    net_hosts_stop(h, former);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "host b (10.213.8.2) is lost"));
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_events(h, "host.joined", "\"host\": \"b\"") == 2);
    kill(former, SIGCONT);
    assert_int_equal(net_hosts_await_exit(&former), 3);
    if (!net_hosts_log_has(h, "b.log", "and another agent (10.213.8.2) has joined as host b")) {
        net_hosts_show_logs(h);
        fail_msg("no reason");
    }
    assert_true(ctl(h, "stop"));
    net_hosts_expect(h, 130);
}

/* What an agent of host c says that is refused. */
static void expect_refusal(net_hosts *h, const char *more, const char *text)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, "agent --join tcp://%s:5570 --key %s/run/hosts.key %s",
             h->host[0].address, h->dir, more);
    pid_t pid = net_hosts_start(h, 2, "refused.log", arguments);
    assert_int_equal(net_hosts_await_exit(&pid), 2);
    if (!net_hosts_log_has(h, "refused.log", text)) {
        net_hosts_shell("cat %s/refused.log", h->dir);
        fail_msg("it does not say '%s': %s", text, net_hosts_said());
    }
}

/* Agents with the name of a host that is in the run, and that ask in turns. Would catch: each of
 * them starting the others' time anew, so that none is ever answered. */
static void expect_rivals_refused(net_hosts *h, const char *name)
{
    enum { RIVALS = 3 };
    char arguments[512], log[32];
    pid_t pid[RIVALS];
    snprintf(arguments, sizeof arguments,
             "agent --join tcp://%s:5570 --key %s/run/hosts.key --name %s", h->host[0].address,
             h->dir, name);
    for (int i = 0; i < RIVALS; i++) {
        snprintf(log, sizeof log, "rival%d.log", i);
        pid[i] = net_hosts_start(h, 2, log, arguments);
    }
    for (int i = 0; i < RIVALS; i++) {
        snprintf(log, sizeof log, "rival%d.log", i);
        assert_int_equal(net_hosts_await_exit(&pid[i]), 2);
        assert_true(net_hosts_log_has(h, log, "a host of this name has joined already"));
    }
}

static void test_host_joining__rivals_are_refused_in_turn(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_two(h, "--set devices.max=3");
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"c\"") == 1);
    expect_rivals_refused(h, "b");
    expect_rivals_refused(h, "c"); /* which the file of hosts does not name */
    assert_true(ctl(h, "stop"));
    net_hosts_expect(h, 130);
}

/* It is drained, and comes back, as any other. */
static void test_host_joining__a_new_host_is_used(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_two(h, "--set devices.max=3");
    assert_false(ctl(h, "scale k=1 r=3 2>&1"));
    assert_non_null(strstr(net_hosts_said(), "the hosts of this run lack 1 device; on a host"));
    assert_non_null(strstr(net_hosts_said(), "/run/hosts.key --devices 1"));
    expect_refusal(h, "--name c --devices 2", "only 1 of 3 ranks is left (devices.max)");
    expect_refusal(h, "--name b", "a host of this name has joined already");
    expect_refusal(h, "--name a", "a host of this name has joined already");
    expect_refusal(h, "--name c --address 10.213.8.2",
                   "found 10.213.8.2, which is no address of a network interface of "
                   "this host; allowed: 10.213.8.3 (fl0)");
    expect_refusal(h, "--name c --address 127.0.0.1",
                   "found 127.0.0.1, which leads other hosts to themselves");
    assert_true(net_hosts_shell("ip -n %s addr add 10.213.8.2/32 dev lo", h->host[2].space));
    expect_refusal(h, "--name c --address 10.213.8.2", "the address 10.213.8.2 is that of host b");
    assert_true(net_hosts_shell("ip -n %s addr del 10.213.8.2/32 dev lo", h->host[2].space));
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"c\"") == 1);
    assert_true(ctl(h, "scale k=1 r=3"));
    assert_true(ctl(h, "status"));
    assert_non_null(strstr(net_hosts_said(), "10.213.8.3"));
    expect_refusal(h, "--name d", "only 0 of 3 ranks are left");
    kill(h->host[2].agent, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->host[2].agent), 6);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(n_plans(h, "\"r\": 3") == 2);
    check_end(h);
    assert_int_equal(net_hosts_n_events(h, "worker.started", "\"host\": \"c\""), 1);
    assert_int_equal(net_hosts_n_events(h, "host.joined", "\"host\": \"c\""), 2);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
}

#define DATA FL_TEST_FASHION

/* It joins late, and has no data. Would catch: a run that ends because of it. */
static void test_host_joining__one_without_the_data_changes_nothing(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_two(h, "--set devices.max=3");
    assert_true(net_hosts_shell("mkdir %s/empty", h->dir));
    net_hosts_start_agent_with(h, 2, "empty", DATA);
    assert_int_equal(net_hosts_await_exit(&h->host[2].agent), 2);
    assert_true(net_hosts_log_has(h, "c.log", DATA));
    NET_AWAIT(net_hosts_n_events(h, "host.refused", "\"host\": \"c\"") == 1);
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    check_end(h);
}

/* Host b, whose agent was lost, joins again with an address of its own to which no other host has a
 * way, as behind a firewall. */
static void join_unreachable(net_hosts *h, const char *more)
{
    assert_true(net_hosts_shell("ip -n %s addr add 10.99.0.2/32 dev lo", h->host[1].space));
    start_two(h, more);
    kill(h->host[1].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[1].agent);
    net_hosts_start_agent_for(h, 1, "--address 10.99.0.2");
}

/* Would catch: the same failure every second, without the host and the reason; and an attempt that
 * is announced, although the host joins again once the others reach it, and not before. */
static void test_host_joining__one_that_nobody_reaches_is_left_out(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    join_unreachable(h, "--set fault.deadline=100s");
    NET_AWAIT(net_hosts_log_has(h, "head.log", "; its agent joins again when they do"));
    assert_true(net_hosts_log_has(
        h, "head.log",
        "worker 1 cannot join the run yet: it was left out with host b (10.99.0.2): it and host a "
        "(10.213.8.1) do not reach each other: "));
    assert_false(net_hosts_log_has(h, "head.log", "frostline doctor"));
    assert_false(net_hosts_log_has(h, "head.log", "; attempt "));
    assert_int_equal(
        net_hosts_n_events(h, "transition.cancelled",
                           "was left out with host b (10.99.0.2): it and host a (10.213.8.1)"),
        1);
    assert_int_equal(net_hosts_n_events(h, "transition.prepare", "worker 1 joins"), 1);
    assert_true(ctl(h, "scale k=1 r=1 m=2")); /* other changes have their turn */
    assert_int_equal(net_hosts_n_events(h, "transition.prepare", "worker 1 joins"), 1);
    assert_true(net_hosts_shell("ip -n %s route add 10.99.0.2 via 10.213.8.2", h->host[0].space));
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"b\"") == 1);
    assert_true(ctl(h, "stop"));
    net_hosts_expect(h, 130);
}

/* Would catch: a question about the network for a worker that a signal has killed. Nobody reaches
 * it, so that it is in the preparation until then. */
static void test_host_joining__a_killed_worker_is_no_question_of_the_network(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    join_unreachable(h, "--set fault.deadline=100s");
    NET_AWAIT(net_hosts_n_events(h, "transition.prepare", "worker 1 joins") > 0);
    kill(net_hosts_event_pid(h, "worker.ready", 1), SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log",
                                "cannot join the run yet: worker 1, which was to join, has ended"));
    assert_false(net_hosts_log_has(h, "head.log", "frostline doctor"));
    assert_true(ctl(h, "stop"));
    net_hosts_expect(h, 130);
}

/* Would catch: the same question for one whose host was lost, and an attempt that is announced,
 * although no agent is there that could start the worker. */
static void test_host_joining__a_lost_host_is_no_question_of_the_network(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    join_unreachable(h, "--set fault.deadline=100s");
    NET_AWAIT(net_hosts_n_events(h, "transition.prepare", "worker 1 joins") > 0);
    kill(h->host[1].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[1].agent);
    NET_AWAIT(net_hosts_log_has(
        h, "head.log",
        "worker 1 cannot join the run: it was lost with host b (10.99.0.2): the connection of its "
        "agent was closed; a new agent there joins again (frostline agent --join)"));
    assert_false(net_hosts_log_has(h, "head.log", "frostline doctor"));
    assert_false(net_hosts_log_has(h, "head.log", "; attempt "));
    assert_int_equal(
        net_hosts_n_events(h, "transition.cancelled",
                           "worker 1, which was to join, was lost with host b (10.99.0.2): the "
                           "connection of its agent was closed"),
        1);
    assert_true(ctl(h, "stop"));
    net_hosts_expect(h, 130);
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_host_joining__a_lost_host_comes_back),
        HOSTS(test_host_joining__an_agent_that_was_replaced_is_told),
        HOSTS(test_host_joining__a_new_host_is_used),
        HOSTS(test_host_joining__rivals_are_refused_in_turn),
        HOSTS(test_host_joining__one_without_the_data_changes_nothing),
        HOSTS(test_host_joining__one_that_nobody_reaches_is_left_out),
        HOSTS(test_host_joining__a_killed_worker_is_no_question_of_the_network),
        HOSTS(test_host_joining__a_lost_host_is_no_question_of_the_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
