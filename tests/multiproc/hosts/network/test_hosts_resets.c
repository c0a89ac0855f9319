/* Connections of a host that are reset for a while, as by a firewall that is loaded anew: those
 * between workers, and those of workers to the head. What is on its way is lost. Would catch: a run
 * that waits for ever for a report because the order for it, or the report, was lost with the link
 * of a worker; a change of the plan that nobody hears the end of; and a host that is lost although
 * it was there. */
#include "device/system/clock.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SOME = 12, TIMES = 3, CHANGES = 4, LOSSES = 3, STOPPED = 5 };

#define JOB                                                                                        \
    NET_JOB "--set elastic.enabled=false --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "          \
            "--set fault.detect=7s --set train.max_steps=1000000 --set train.epochs=1000000 "

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* All but the connection of its agent, again and again for a second: what is opened meanwhile, too.
 */
static void reset_host(const net_hosts *h, int i)
{
    (void)net_hosts_shell("ip netns exec %s timeout 1 sh -c 'while :; do ss -tK dport != 5570; "
                          "done' >/dev/null 2>&1",
                          h->host[i].space);
}

static void test_hosts_resets__training_goes_on(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent(h, 1);
    for (int i = 0; i < TIMES; i++) {
        int n_steps = net_hosts_n_steps(h);
        NET_AWAIT(net_hosts_n_steps(h) > n_steps + SOME);
        reset_host(h, 1);
        n_steps = net_hosts_n_steps(h);
        NET_AWAIT(net_hosts_n_steps(h) > n_steps + SOME);
    }
    if (net_hosts_n_events(h, "run.recovered", "connections between workers broke") == 0) {
        print_message("no connection was reset (CONFIG_INET_DIAG_DESTROY)\n");
        skip();
    }
    assert_true(net_hosts_n_events(h, "run.recovered", "broke (reported from host ") > 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
}

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

/* ss prints what it has closed. */
static bool reset_pair(const net_hosts *h, int a, int b)
{
    return net_hosts_shell("ip netns exec %s ss -tnHK dst %s | grep -q .", h->host[a].space,
                           h->host[b].address);
}

static bool is_broken(const net_hosts *h, int rank)
{
    char log[32];
    snprintf(log, sizeof log, "run/worker-%d.log", rank);
    return net_hosts_log_has(h, log, " is broken after ");
}

/* What host i has sent to the head's port for workers is not there yet, and is lost. */
static void lose_reports(const net_hosts *h, int i)
{
    const char *space = h->host[i].space;
    NET_AWAIT(
        net_hosts_shell("ip netns exec %s ss -tnH dport = 5571 | awk '$3 > 0' | grep -q .", space));
    (void)net_hosts_shell("ip netns exec %s ss -tK dport = 5571", space);
}

/* All that the worker of host 1 sends to the head for a moment is lost, and nothing else. */
static void lose_moment(const net_hosts *h)
{
    net_hosts_cut(h, 1, 0, true);
    lose_reports(h, 1);
    net_hosts_cut(h, 1, 0, false);
}

/* Nobody regroups here, which would send lost reports again: they come by their link alone. */
static void test_hosts_resets__a_change_of_the_plan_ends(void **state)
{
    net_hosts *h = *state;
    char set[FOLDER_SIZE + 64];
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > SOME);
    for (int i = 0; i < CHANGES; i++) {
        snprintf(set, sizeof set, "ctl %s/run set pipe.m %d", h->dir, 2 - i % 2);
        pid_t ctl = net_hosts_start(h, 0, "ctl.log", set);
        for (int k = 0; k < LOSSES; k++) {
            lose_moment(h);
        }
        assert_int_equal(net_hosts_await_exit(&ctl), 0);
        assert_int_equal(net_hosts_n_events(h, "transition.done", ""), i + 1);
    }
    assert_int_equal(net_hosts_n_events(h, "run.recovered", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "transition.cancelled", ""), 0);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
}

/* The connection between the last two workers is reset, and so is what both then report of it,
 * while the first one waits for a message. */
static void test_hosts_resets__a_report_that_is_lost_comes_again(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_write_file(h, "abc");
    net_hosts_start_head(h, NET_JOB "--set elastic.enabled=false --set model.blocks=3 "
                                    "--set pipe.k=3 --set autodp.r=1 --set fault.detect=10s "
                                    "--set train.max_steps=1000000 --set train.epochs=1000000 ");
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_steps(h) > SOME);
    net_hosts_cut(h, 1, 0, true);
    net_hosts_cut(h, 2, 0, true);
    if (!reset_pair(h, 1, 2)) {
        print_message("no connection was reset (CONFIG_INET_DIAG_DESTROY)\n");
        skip();
    }
    for (int i = 1; i < 3; i++) {
        NET_AWAIT(is_broken(h, i));
        lose_reports(h, i);
    }
    net_hosts_cut(h, 1, 0, false);
    net_hosts_cut(h, 2, 0, false);
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + SOME);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "run.recovered",
                                        "connections between workers broke (reported from host "),
                     1);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hosts_resets__training_goes_on, make_two,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_resets__a_change_of_the_plan_ends, make_two,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_resets__a_report_that_is_lost_comes_again,
                                        make_three, net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
