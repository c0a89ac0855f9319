/* Two hosts whose agents reach each other, while a firewall keeps the ports of their workers shut.
 * Would catch: a run that goes back to the same pair again and again, one that loses other hosts
 * first, a message that does not name the ports, and a host that stays out when the ports are open.
 *
 * With FL_TEST_MATRIX in the environment, the other cases run (ctest -L long). */
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
#include <unistd.h>

#include <cmocka.h>

enum { COMPARED = 12, STEPS = 800, ENDLESS = 1000000, STOPPED = 5, A = 0, B = 1, C = 2 };

#define CHAIN_MODEL "--set model.blocks=3 "
#define CHAIN "--set pipe.k=3 --set autodp.r=1 --set pipe.m=2 " CHAIN_MODEL
#define THREE "--set pipe.k=1 --set autodp.r=3 --set pipe.m=1 "
#define FIXED "--set elastic.enabled=false " NET_FILTER_PORTS
#define SCRIPT                                                                                     \
    FIXED "--set 'elastic.script=[{step: 400, k: 1, r: 3, m: 2}, {step: 430, k: 3, r: 1, m: 2}]' "

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

static void start_run(net_hosts *h, const char *plan, int steps)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "%s --set train.max_steps=%d --set train.epochs=%d --set fault.detect=2s "
                     "--set fault.restarts=3",
             plan, steps, steps);
    for (int i = 0; i < h->n; i++) {
        net_filter_prepare(h, i);
    }
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, B);
    net_hosts_start_agent(h, C);
}

static void block_pair(const net_hosts *h, bool both, net_filter_how how, bool but_agents)
{
    net_filter_block(h, B, C, how, but_agents);
    if (both) {
        net_filter_block(h, C, B, how, but_agents);
    }
}

/* The event names a port of the range, and what to open. */
static void check_told(const net_hosts *h, const char *what)
{
    bool told = net_hosts_log_has(h, "head.log", what) &&
                net_hosts_n_events(h, "host.lost", "port 20") == 1;
    if (!told) {
        net_hosts_show_logs(h);
        fail_msg("the pair, or its port, is not named");
    }
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"apart_from\": \""), 1);
}

/* The run has gone on without one of the two until it ended with this code; the agent of that one
 * waited until then. */
static void check_run(net_hosts *h, const char *plan, int code, const char *what)
{
    char more[256];
    net_hosts_expect_codes(h, code, code);
    check_told(h, what);
    if (net_hosts_n_events(h, "host.lost", "") != 1) {
        net_hosts_show_logs(h);
        fail_msg("more than one host was left out");
    }
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 0);
    snprintf(more, sizeof more, "--set train.max_steps=%d %s", COMPARED,
             strstr(plan, CHAIN_MODEL) == NULL ? "" : CHAIN_MODEL);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

static const char workers_alone[] = "agents reach each other, their workers do not: port 20";
static const char agents_too[] = ") do not reach each other (";

/* The run lasts until it is stopped: the firewall comes in the middle of its training, however fast
 * its steps are. */
static void go_on(net_hosts *h, const char *plan, bool both, int at_step)
{
    start_run(h, plan, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) >= at_step);
    block_pair(h, both, NET_FILTER_DROPS, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    kill(h->head, SIGTERM);
    check_run(h, plan, STOPPED, workers_alone);
    assert_true(net_hosts_log_has(
        h, "head.log", "; let TCP to the ports 20000 to 20499 between the hosts through; the run"));
}

/* ---- the agents' ports are open ---- */

static void test_hosts_ports__replicas_go_on_with_one_of_them(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    go_on(h, FIXED THREE, true, COMPARED);
}

static void test_hosts_ports__a_chain_goes_on_with_one_of_them(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    go_on(h, FIXED CHAIN, false, COMPARED);
}

/* Connections of the next plan meet the firewall. */
static void test_hosts_ports__shut_before_a_transition(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    go_on(h, SCRIPT CHAIN, true, COMPARED - 1);
}

static void test_hosts_ports__a_firewall_that_refuses(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, SCRIPT CHAIN, STEPS);
    NET_AWAIT(net_hosts_n_steps(h) >= COMPARED - 1);
    block_pair(h, true, NET_FILTER_REFUSES, true);
    check_run(h, SCRIPT CHAIN, 0, workers_alone);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

/* The host joins again: then the trial of the port has succeeded. */
static void test_hosts_ports__the_host_comes_back(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, FIXED THREE, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    block_pair(h, false, NET_FILTER_DROPS, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "may join once"));
    int n_steps = net_hosts_n_steps(h), n_joined = net_hosts_n_events(h, "host.joined", "");
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + 10 * COMPARED);
    assert_int_equal(net_hosts_n_events(h, "host.joined", ""), n_joined);
    net_filter_open(h, B, C);
    NET_AWAIT(net_hosts_n_events(h, "host.joined", "") == n_joined + 1);
    NET_AWAIT(net_hosts_n_events(h, "transition.done", "\"r\": 3") > 0);
    n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    check_told(h, workers_alone);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 1);
}

/* What the head sends to a host is dropped: it tries by itself whether that is over. */
static void test_hosts_ports__the_head_and_a_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, FIXED THREE, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    net_filter_block(h, A, C, NET_FILTER_DROPS, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "\"host\": \"c\"") == 1);
    int n_steps = net_hosts_n_steps(h), n_joined = net_hosts_n_events(h, "host.joined", "");
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + 10 * COMPARED);
    net_filter_open(h, A, C);
    NET_AWAIT(net_hosts_n_events(h, "host.joined", "") == n_joined + 1);
    NET_AWAIT(net_hosts_n_events(h, "transition.done", "\"r\": 3") > 0);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    check_told(h, workers_alone);
}

/* ---- those of the agents are shut, too ---- */

static void shut_at_start(net_hosts *h, const char *plan, net_filter_how how)
{
    block_pair(h, false, how, false);
    start_run(h, plan, STEPS);
    check_run(h, plan, 0, agents_too);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

static void test_hosts_ports__shut_before_the_start(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    shut_at_start(h, FIXED CHAIN, NET_FILTER_DROPS);
}

static void test_hosts_ports__refused_before_the_start(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    shut_at_start(h, FIXED THREE, NET_FILTER_REFUSES);
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest few[] = {
        SPACES(test_hosts_ports__a_chain_goes_on_with_one_of_them),
    };
    const struct CMUnitTest all[] = {
        SPACES(test_hosts_ports__replicas_go_on_with_one_of_them),
        SPACES(test_hosts_ports__shut_before_a_transition),
        SPACES(test_hosts_ports__a_firewall_that_refuses),
        SPACES(test_hosts_ports__the_host_comes_back),
        SPACES(test_hosts_ports__the_head_and_a_host),
        SPACES(test_hosts_ports__shut_before_the_start),
        SPACES(test_hosts_ports__refused_before_the_start),
    };
    return getenv("FL_TEST_MATRIX") != NULL ? cmocka_run_group_tests(all, NULL, NULL)
                                            : cmocka_run_group_tests(few, NULL, NULL);
}
