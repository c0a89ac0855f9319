/* Processes of the head that a signal kills in a run on two hosts: head -> gate -> agent of the
 * head. Would catch: a signal that is reported as exit code 1, and a gate that is taken for an
 * agent. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STEPS = 5 };

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

static pid_t start_and_find_gate(net_hosts *h)
{
    net_hosts_start_head(h, NET_JOB "--set train.max_steps=100000000 --set train.epochs=100000 "
                                    "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2");
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > STEPS);
    pid_t gate = net_hosts_child_of(h->head);
    assert_true(gate > 0);
    return gate;
}

static void check_named(net_hosts *h, const char *message)
{
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log", message));
    assert_int_equal(net_hosts_n_events(h, "agent.lost", message), 1);
    assert_int_equal(net_hosts_n_events(h, "run.failed", message), 1);
    assert_true(net_hosts_shell("grep -F '%s' %s/run/summary.txt", message, h->dir));
}

static void test_hosts_head_lost__names_the_signal_that_killed_its_agent(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    pid_t agent = net_hosts_child_of(start_and_find_gate(h));
    assert_true(agent > 0);
    kill(agent, SIGKILL);
    check_named(h, "the agent of the head, the parent of its workers, was killed by signal 9 "
                   "(Killed), and the workers of all hosts ended with it");
}

static void test_hosts_head_lost__names_the_signal_that_killed_the_gate(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    kill(start_and_find_gate(h), SIGKILL);
    check_named(h, "the gate, the parent of the agent of the head, was killed by signal 9 "
                   "(Killed), and the workers of all hosts ended with it");
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACES(test_hosts_head_lost__names_the_signal_that_killed_its_agent),
        SPACES(test_hosts_head_lost__names_the_signal_that_killed_the_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
