/* A run that waits for its hosts answers nobody; its run directory says for whom it waits. Would
 * catch: a run that no client can name or stop while it waits. The hosts are loopback addresses,
 * and their agents never come. */
#include "support/hosts/net_hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLAN NET_JOB "--set pipe.k=1 --set autodp.r=3 --set pipe.m=1 "
#define WAITS "waits for hosts b (127.0.0.2), c (127.0.0.3) to join, for "

static int make_loopback(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make_loopback(h, 3);
    *state = h;
    return 0;
}

/* What `frostline COMMAND` says, with its exit code. */
static const char *ask(const net_hosts *h, const char *command)
{
    (void)net_hosts_shell("cd %s && '%s/frostline' %s 2>&1; echo code $?", h->dir, FL_BINARY_DIR,
                          command);
    return net_hosts_said();
}

static void expect_said(const net_hosts *h, const char *command, const char *text, const char *code)
{
    const char *said = ask(h, command);
    if (strstr(said, text) == NULL || strstr(said, code) == NULL) {
        fail_msg("%s: %s", command, said);
    }
}

/* All that a client can learn of the wait, and its end.
 * wait  what the head's log says of it */
static void watch_and_stop(net_hosts *h, const char *wait, const char *stop)
{
    net_hosts_start_head(h, PLAN);
    NET_AWAIT(net_hosts_log_has(h, "head.log", wait));
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS) != NULL);
    expect_said(h, "ctl run status", "run: starting: the run " WAITS, "code 3");
    expect_said(h, "ctl run pause --timeout 1", WAITS, "code 3");
    expect_said(h, "top run", WAITS, "code 3");
    expect_said(h, "report run", WAITS, "code 3");
    expect_said(h, "list .", "starting ", "code 0");
    expect_said(h, "list . --json", "\"job\": \"quickstart\", \"state\": \"starting\"", "code 0");
    expect_said(h, stop, "hosts", "code 0");
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
    assert_true(net_hosts_shell("test ! -e %s/run", h->dir));
}

/* Nothing states the links: they are measured, before there is a plan. */
static void test_hosts_waiting__before_links_are_measured(void **state)
{
    net_hosts *h = *state;
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
    watch_and_stop(h, "measures the links between hosts", "ctl run stop");
}

static void test_hosts_waiting__before_workers_start(void **state)
{
    watch_and_stop(*state, "gate: waits for 2 other hosts", "ctl run stop --json");
}

/* Would catch: a client that believes the record of a head that was killed. */
static void test_hosts_waiting__a_killed_head_waits_no_more(void **state)
{
    net_hosts *h = *state;
    net_hosts_start_head(h, PLAN);
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS) != NULL);
    kill(h->head, SIGKILL);
    (void)net_hosts_await_exit(&h->head);
    const char *said = ask(h, "ctl run status");
    assert_null(strstr(said, WAITS));
    assert_non_null(strstr(said, "code 2"));
    expect_said(h, "ctl run stop", "", "code 2");
}

#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOPBACK(test_hosts_waiting__before_links_are_measured),
        LOOPBACK(test_hosts_waiting__before_workers_start),
        LOOPBACK(test_hosts_waiting__a_killed_head_waits_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
