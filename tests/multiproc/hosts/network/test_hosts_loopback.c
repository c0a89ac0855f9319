/* Hosts whose firewall drops what goes over the interface lo, through which the workers of one host
 * reach each other. Would catch: a run that hangs at its start or in a change of the plan, a
 * message that does not say where loopback is filtered, and a host with one worker that is kept
 * from a run for that; a host that is refused and counts as lost, or that is left out and does not
 * join again once its loopback works. */
#include "support/hosts/net_filter.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 12, ENDLESS = 1000000, A = 0, B = 1, BAD_INPUT = 2, FAILED = 3, STOPPED = 5 };

static int make_large_b(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 2});
}

static int make_large_a(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){2, 1});
}

static int make_small(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* Every worker has all layers, unless `more` says otherwise. */
static void start_head(net_hosts *h, int steps, const char *more)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "--set pipe.k=1 --set autodp.r=%d --set pipe.m=1 --set fault.restarts=3 "
                     "--set train.max_steps=%d --set train.epochs=%d %s",
             h->host[A].n_devices + h->host[B].n_devices, steps, steps, more);
    net_hosts_start_head(h, job);
}

static void assert_said(const net_hosts *h, const char *log, const char *text)
{
    if (!net_hosts_log_has(h, log, text)) {
        net_hosts_show_logs(h);
        fail_msg("%s does not say: %s", log, text);
    }
}

static void assert_said_once(const net_hosts *h, const char *log, const char *text)
{
    if (!net_hosts_shell("[ $(grep -c '%s' %s/%s) = 1 ]", text, h->dir, log)) {
        net_hosts_show_logs(h);
        fail_msg("%s does not say once: %s", log, text);
    }
}

static void test_hosts_loopback__a_filtered_host_is_refused_at_the_start(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback(h, B, true);
    start_head(h, STEPS, "");
    net_hosts_start_agent(h, B);
    net_hosts_expect_codes(h, BAD_INPUT, BAD_INPUT);
    const char *const logs[] = {"head.log", "b.log"};
    for (int i = 0; i < 2; i++) {
        assert_said(h, logs[i],
                    ": workers 1 .. 2 cannot reach each other: loopback is filtered: "
                    "10.213.8.2 over the interface lo, port");
        assert_said(h, logs[i], "`frostline doctor` on host b");
        assert_said_once(h, logs[i], "loopback is filtered");
    }
    assert_said(h, "head.log", "on host b (10.213.8.2): workers 1 .. 2");
    assert_int_equal(net_hosts_n_events(h, "worker.ready", ""), 0);
}

static void test_hosts_loopback__a_filtered_head_is_refused(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback(h, A, true);
    start_head(h, STEPS, "");
    net_hosts_expect_codes(h, BAD_INPUT, BAD_INPUT);
    assert_said(h, "head.log", "host a: workers 0 .. 1 cannot reach each other: loopback is");
}

/* The process that measures the links of the head connects to the head. */
static void test_hosts_loopback__a_filtered_head_measures_no_links(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback(h, A, true);
    assert_true(net_hosts_shell("sed -i '/^links/,$d' %s/hosts.yaml", h->dir));
    start_head(h, STEPS, "");
    net_hosts_expect_codes(h, BAD_INPUT, BAD_INPUT);
    assert_said(h, "head.log", "host a: its links cannot be measured: loopback is filtered");
}

/* Two processes of the head measure the link between its workers at 127.0.0.1, which is no address
 * of its workers. Would catch: a start that ends when the time for the whole profile is over. */
static void test_hosts_loopback__a_head_that_filters_127_measures_no_costs(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback_to(h, A, "127.0.0.0/8");
    start_head(h, STEPS, "--set pipe.profile=none");
    net_hosts_expect_codes(h, BAD_INPUT, BAD_INPUT);
    assert_said(h, "head.log",
                "the link between two workers of this host cannot be measured: loopback is "
                "filtered: 127.0.0.1 over the interface lo, port");
    h->head = net_hosts_start(h, A, "plan.log",
                              "plan " NET_JOB "--set devices.count=2 --set pipe.profile=none");
    assert_int_equal(net_hosts_await_exit(&h->head), BAD_INPUT);
    assert_said(h, "plan.log", "the link between two workers of this host cannot be measured: ");
}

/* Would catch: a doctor to which a run refers, and which tries 127.0.0.1 alone. */
static void test_hosts_loopback__the_doctor_tries_the_address_of_the_head(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback_to(h, A, h->host[A].address);
    assert_false(net_hosts_shell("ip netns exec %s '%s/frostline' doctor " NET_JOB
                                 "--hosts %s/hosts.yaml",
                                 h->host[A].space, FL_BINARY_DIR, h->dir));
    assert_non_null(strstr(net_hosts_said(), "ok       sockets    TCP over 127.0.0.1"));
    assert_non_null(strstr(net_hosts_said(), "error    sockets    host a: workers 0 .. 1 cannot "
                                             "reach each other: loopback is filtered: "));
}

/* Would catch: the same advice twice, for 127.0.0.1 and for the address of the head. */
static void test_hosts_loopback__the_doctor_has_one_line_for_both_addresses(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback(h, A, true);
    (void)net_hosts_shell("ip netns exec %s '%s/frostline' doctor " NET_JOB
                          "--hosts %s/hosts.yaml | grep ' sockets  '",
                          h->host[A].space, FL_BINARY_DIR, h->dir);
    const char *line = net_hosts_said(), *end = strchr(line, '\n');
    if (end == NULL || end[1] != '\0' || strstr(line, "error    sockets    ") == NULL ||
        strstr(line, "connections to 127.0.0.1 do not get through") == NULL ||
        strstr(line, "; host a: workers 0 .. 1 cannot reach each other: loopback is") == NULL) {
        fail_msg("%s", line);
    }
}

static void test_hosts_loopback__an_interface_that_is_down_is_named(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    assert_true(net_hosts_shell("ip -n %s link set lo down", h->host[A].space));
    start_head(h, STEPS, "");
    net_hosts_expect_codes(h, BAD_INPUT, BAD_INPUT);
    assert_said(h, "head.log",
                "host a: workers 0 .. 1 cannot reach each other: the interface lo is down; "
                "allowed: one that is up, by `ip link set lo up` (");
}

static void test_hosts_loopback__a_host_with_one_worker_needs_none(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback(h, A, true);
    net_filter_loopback(h, B, true);
    start_head(h, STEPS, "");
    net_hosts_start_agent(h, B);
    net_hosts_expect(h, 0);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

static void test_hosts_loopback__without_other_hosts_it_is_refused_too(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_filter_loopback(h, A, true);
    h->head = net_hosts_start(h, A, "head.log",
                              "run " NET_JOB "--set devices.count=2 --run-dir /nowhere/run");
    assert_int_equal(net_hosts_await_exit(&h->head), BAD_INPUT);
    assert_said(h, "head.log",
                "workers 0 .. 1 cannot reach each other: loopback is filtered: 127.0.0.1 over the "
                "interface lo, port");
}

/* The filter comes now; then the plan is to change. Whether that is refused or ends with the host
 * does not matter here. */
static void filter_now(net_hosts *h, int host)
{
    net_filter_loopback(h, host, true);
    (void)net_hosts_shell("ip netns exec %s '%s/frostline' ctl %s/run scale k=3 r=1",
                          h->host[A].space, FL_BINARY_DIR, h->dir);
}

static void filter_while_training(net_hosts *h, int host, const char *more)
{
    start_head(h, ENDLESS, more);
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) >= STEPS);
    filter_now(h, host);
}

/* The host is left out, as one that other hosts do not reach, and joins again once its loopback
 * works. */
static void leave_out_filtered_host(net_hosts *h, const char *more, const char *goes_on)
{
    const char *const b = "\"host\": \"b\"";
    filter_while_training(h, B, more);
    NET_AWAIT(net_hosts_n_events(h, goes_on, "") == 1);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "host b may join once its loopback works"));
    int n = net_hosts_n_steps(h), n_joined = net_hosts_n_events(h, "host.joined", b);
    NET_AWAIT(net_hosts_n_steps(h) > n + STEPS);
    net_filter_loopback(h, B, false);
    NET_AWAIT(net_hosts_n_events(h, "host.joined", b) == n_joined + 1);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", b) == 2);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"apart_from\": \"b\""), 1);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 1);
    assert_said(h, "head.log",
                "host b (10.213.8.2): its workers do not reach each other over the interface lo: "
                "loopback is filtered (worker ");
    assert_said(h, "b.log", "the run goes on without this host: its workers do not reach each");
    assert_said(h, "b.log", "it joins again when they do");
}

static void test_hosts_loopback__a_filter_while_training_leaves_the_host_out(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    leave_out_filtered_host(h, "--set fault.detect=2s", "run.recovered");
}

static void test_hosts_loopback__a_run_goes_back_without_the_filtered_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    leave_out_filtered_host(
        h, "--set fault.detect=2s --set pipe.k=3 --set autodp.r=1 --set model.blocks=3",
        "run.resumed");
}

/* Nothing is lost by that. */
static void test_hosts_loopback__a_filtered_host_is_refused_when_it_joins(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_head(h, ENDLESS, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) >= STEPS);
    kill(h->host[B].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[B].agent);
    NET_AWAIT(net_hosts_n_events(h, "worker.lost", "") == 2);
    net_filter_loopback(h, B, true);
    net_hosts_start_agent(h, B);
    assert_int_equal(net_hosts_await_exit(&h->host[B].agent), BAD_INPUT);
    NET_AWAIT(net_hosts_n_events(h, "host.refused", "workers 1 .. 2 cannot reach each other") == 1);
    int n = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n + STEPS);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED); /* that of b has ended */
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 1);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 2);
    assert_said(h, "head.log", "workers lost 2 times");
    assert_said(h, "head.log", "host b (10.213.8.2) cannot take part: workers 1 .. 2 cannot");
    assert_said_once(h, "b.log", "loopback is filtered");
}

/* A head is never left out. */
static void expect_end_by_head(net_hosts *h)
{
    net_hosts_expect_codes(h, FAILED, FAILED);
    assert_said(h, "head.log",
                "on host a (10.213.8.1), whose workers do not reach each other over the interface "
                "lo: loopback is filtered (worker ");
    assert_said(h, "head.log", "the run cannot go back: host a: workers 0 .. 1 cannot reach");
}

static void test_hosts_loopback__a_filter_on_the_head_ends_the_run(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    filter_while_training(h, A, "--set fault.detect=2s");
    expect_end_by_head(h);
    assert_said(h, "head.log", "`frostline doctor` checks it); "); /* and where the run goes back */
    assert_int_equal(net_hosts_n_events(h, "run.returning", "`frostline doctor` checks it)"), 1);
}

/* The head has tried its loopback, and its workers open their connections. */
static void test_hosts_loopback__a_filter_in_the_start_ends_the_run(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_head(h, ENDLESS, "--set fault.detect=2s");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_log_has(h, "run/worker-1.log", "worker 1: on processor"));
    filter_now(h, A);
    expect_end_by_head(h);
}

#define WITH(test, make) cmocka_unit_test_setup_teardown(test, make, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_hosts_loopback__a_filtered_host_is_refused_at_the_start, make_large_b),
        WITH(test_hosts_loopback__a_filtered_head_is_refused, make_large_a),
        WITH(test_hosts_loopback__a_filtered_head_measures_no_links, make_small),
        WITH(test_hosts_loopback__a_head_that_filters_127_measures_no_costs, make_large_a),
        WITH(test_hosts_loopback__the_doctor_tries_the_address_of_the_head, make_large_a),
        WITH(test_hosts_loopback__the_doctor_has_one_line_for_both_addresses, make_large_a),
        WITH(test_hosts_loopback__an_interface_that_is_down_is_named, make_large_a),
        WITH(test_hosts_loopback__a_host_with_one_worker_needs_none, make_small),
        WITH(test_hosts_loopback__without_other_hosts_it_is_refused_too, make_small),
        WITH(test_hosts_loopback__a_filter_while_training_leaves_the_host_out, make_large_b),
        WITH(test_hosts_loopback__a_run_goes_back_without_the_filtered_host, make_large_b),
        WITH(test_hosts_loopback__a_filtered_host_is_refused_when_it_joins, make_large_b),
        WITH(test_hosts_loopback__a_filter_on_the_head_ends_the_run, make_large_a),
        WITH(test_hosts_loopback__a_filter_in_the_start_ends_the_run, make_large_a),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
