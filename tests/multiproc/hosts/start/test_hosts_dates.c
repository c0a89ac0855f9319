/* A host whose date is wrong by decades, as one whose clock has lost its battery. Would catch: a
 * head that takes no answer with such a date, asks again at once, and writes a line for each: 8,000
 * of them a second, so that the stop wrote no checkpoint; a run that does not tell the user. Hosts
 * are network name spaces; without the right to make them, the test is skipped. */
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

#include <cmocka.h>

enum { STEPS = 20, LINES_MAX = 60 };

#define JOB NET_JOB "--set train.epochs=1000 --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* To 1963 today. */
static const char shifted[] =
    "LD_PRELOAD=" FL_BINARY_DIR "/tests/time_of_day.so TIME_OF_DAY_SHIFT_S=-2000000000";

static int count_lines(const net_hosts *h, const char *text)
{
    (void)net_hosts_shell("grep -c -- '%s' %s/head.log", text, h->dir);
    return (int)strtol(net_hosts_said(), NULL, 10);
}

static bool clock_is_known(const net_hosts *h)
{
    return net_hosts_shell("'%s/frostline' ctl %s/run status --json | grep -q "
                           "'\"clock_ms\": -2000000[0-9][0-9][0-9][0-9][0-9][0-9]'",
                           FL_BINARY_DIR, h->dir);
}

static void test_hosts_dates__a_host_before_1970_trains(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent_env(h, 1, shifted);
    NET_AWAIT(net_hosts_n_steps(h) > STEPS);
    NET_AWAIT(clock_is_known(h));
    assert_int_equal(kill(h->head, SIGTERM), 0);
    net_hosts_expect_codes(h, 5, 5);
    assert_int_equal(count_lines(h, "dropped"), 0);
    assert_int_equal(count_lines(h, "time of day of host b .* is 63.4 years behind this host"), 1);
    assert_in_range(count_lines(h, ""), 1, LINES_MAX);
    assert_int_equal(net_hosts_n_events(h, "checkpoint.written", ""), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        test_hosts_dates__a_host_before_1970_trains, make_two, net_hosts_tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
