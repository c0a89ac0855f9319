/* A run that waits for its hosts answers nobody; its run directory says for whom it waits. Would
 * catch: a run that no client can name or stop while it waits. The hosts are loopback addresses,
 * and their agents never come. */
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

enum { STEP_US = 2000 };

#define PLAN NET_JOB "--set pipe.k=1 --set autodp.r=3 --set pipe.m=1 "
#define MEASURES "starting: the run measures the links between its hosts, for "
#define WAITS_FOR_C "waits for host c (127.0.0.3) to join, for "
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

/* No request that needs workers waits for the end of a wait that may take minutes. One that does so
 * asks for "a longer --timeout" in the end. */
static void expect_refusals(const net_hosts *h, const char *state)
{
    static const char *const requests[] = {"pause",        "resume", "plan",         "scale 1",
                                           "freeze 1",     "thaw 1", "pin 0",        "trace",
                                           "set pipe.m 1", "flight", "drain host b", "watch"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        char command[64];
        snprintf(command, sizeof command, "ctl run %s --timeout 1", requests[i]);
        expect_said(h, command, state, "code 3");
        const char *said = net_hosts_said();
        if (strstr(said, "frostline ctl run stop` ends it") == NULL ||
            strstr(said, "longer --timeout") != NULL) {
            fail_msg("%s: %s", command, said);
        }
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
    assert_null(strstr(net_hosts_said(), "ctl run status")); /* no advice to do the same */
    expect_refusals(h, WAITS);
    expect_said(h, "top run", WAITS, "code 3");
    expect_said(h, "report run", WAITS, "code 3");
    expect_said(h, "list .", "starting ", "code 0");
    expect_said(h, "list .", "run: the run " WAITS, "code 0");
    expect_said(h, "list . --json", "\"waits\": \"" WAITS, "code 0");
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

/* "started" of the run in the list, which has one only. */
static void read_started(const net_hosts *h, char text[64])
{
    assert_true(net_hosts_shell("cd %s && '%s/frostline' list . --json | grep -o "
                                "'\"started\": \"2[^\"]*Z\"'",
                                h->dir, FL_BINARY_DIR));
    snprintf(text, 64, "%s", net_hosts_said());
}

/* Would catch: a run that began at another time than it did while it waited. */
static void test_hosts_waiting__the_run_began_with_its_command(void **state)
{
    char before[64], after[64];
    net_hosts *h = *state;
    net_hosts_start_head(h, PLAN "--set train.epochs=1000");
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS) != NULL);
    read_started(h, before);
    net_hosts_start_agent_for(h, 1, "--address 127.0.0.2");
    net_hosts_start_agent_for(h, 2, "--address 127.0.0.3");
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    read_started(h, after);
    assert_string_equal(after, before);
    expect_said(h, "ctl run stop", "last_step", "code 0");
    net_hosts_expect(h, 130);
}

#define AGAIN "nothing of the run was kept; `frostline run "

/* Would catch: a client that believes the record of a head that was killed; commands that
 * contradict each other about what such a head has left, or name no command that begins the run
 * again. */
static void test_hosts_waiting__a_killed_head_waits_no_more(void **state)
{
    static const char *const commands[] = {"ctl run status", "ctl run pause", "ctl run stop",
                                           "top run",        "report run",    "run --resume run"};
    char again[2 * FOLDER_SIZE + 256], run[NET_HOSTS_TEXT];
    net_hosts *h = *state;
    net_hosts_start_head(h, PLAN);
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS) != NULL);
    kill(h->head, SIGKILL);
    (void)net_hosts_await_exit(&h->head);
    snprintf(again, sizeof again,
             AGAIN "%s/run/job.yaml --hosts %s/hosts.yaml --listen tcp://127.0.0.1:5570 --run-dir "
                   "%s/run --continue` begins it again",
             h->dir, h->dir, h->dir);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        expect_said(h, commands[i], again, "code 2");
        assert_null(strstr(net_hosts_said(), WAITS));
    }
    snprintf(run, sizeof run, "run " NET_JOB "--hosts hosts.yaml --run-dir run");
    expect_said(h, run, again, "code 2");
    expect_said(h, "list .", again, "code 0");
    expect_said(h, "list . --json", "\"state\": \"lost\"", "code 0");
    snprintf(run, sizeof run, "%s", strchr(again, '`') + strlen("`frostline "));
    *strchr(run, '`') = '\0';
    h->head = net_hosts_start(h, 0, "head.log", run);
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS) != NULL);
    expect_said(h, "ctl run stop", "stopped", "code 0");
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
}

/* Would catch: an agent that takes a minute to notice that its head was killed, names another
 * reason for its wait, and does not join the head that begins the run again. */
static void test_hosts_waiting__an_agent_waits_for_a_killed_head(void **state)
{
    net_hosts *h = *state;
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
    net_hosts_start_head(h, PLAN);
    net_hosts_start_agent_for(h, 1, "--address 127.0.0.2");
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS_FOR_C) != NULL);
    kill(h->head, SIGKILL);
    (void)net_hosts_await_exit(&h->head);
    NET_AWAIT(net_hosts_log_has(h, "b.log",
                                "the head at tcp://127.0.0.1:5570 has ended before the run began; "
                                "waits up to 60 s for it to come back"));
    net_hosts_start_head(h, PLAN "--continue");
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS_FOR_C) != NULL);
    expect_said(h, "ctl run stop", "stopped", "code 0");
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 0);
}

/* One that has joined the run, which waits for others. The gate may live long enough to tell it.
 * Would catch: one that waits for twice
 * fault.detect although its connection is closed. */
static void test_hosts_waiting__an_agent_of_the_run_ends_with_its_head(void **state)
{
    net_hosts *h = *state;
    net_hosts_start_head(h, PLAN);
    net_hosts_start_agent_for(h, 1, "--address 127.0.0.2");
    NET_AWAIT(net_hosts_log_has(h, "b.log", "joined the run"));
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
    bool told = net_hosts_log_has(h, "b.log", "the run has ended: its controller has died");
    assert_true(told || net_hosts_log_has(h, "b.log", "it has taken no connection for"));
}

/* A run that measures its links before it begins, and the agent of host b. */
static void start_measured(net_hosts *h)
{
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
    net_hosts_start_head(h, PLAN);
    net_hosts_await_key(h);
    net_hosts_start_agent_for(h, 1, "--address 127.0.0.2");
}

/* Would catch: a run of which nothing is known while its hosts measure. One process that measures
 * is stopped, so that this takes long enough. */
static void test_hosts_waiting__measuring_is_a_state(void **state)
{
    net_hosts *h = *state;
    start_measured(h);
    pid_t measures = 0;
    NET_AWAIT((measures = net_hosts_child_of(h->host[1].agent)) != 0);
    net_hosts_stop(h, measures);
    net_hosts_start_agent_for(h, 2, "--address 127.0.0.3");
    NET_AWAIT(strstr(ask(h, "ctl run status"), MEASURES) != NULL);
    expect_said(h, "top run", MEASURES, "code 3");
    expect_said(h, "list .", "run: the run measures the links", "code 0");
    expect_refusals(h, MEASURES);
    expect_said(h, "ctl run stop", "stopped", "code 0");
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
}

static bool is_measuring(const net_hosts *h)
{
    return net_hosts_shell("test -e %s/run/waiting.txt", h->dir);
}

/* Between the end of the measurement and the gate, the head has a moment to make its plan. It runs
 * in small steps until then, and is killed. Would catch: agents that wait a minute for it. */
static void test_hosts_waiting__an_agent_ends_with_a_head_that_makes_a_plan(void **state)
{
    net_hosts *h = *state;
    start_measured(h);
    net_hosts_start_agent_for(h, 2, "--address 127.0.0.3");
    NET_AWAIT(strstr(ask(h, "ctl run status"), MEASURES) != NULL);
    int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
    for (bool measures = true; measures; measures = is_measuring(h)) {
        assert_true(fl_left_ms(until_us) > 0);
        kill(h->head, SIGCONT);
        nap(STEP_US);
        kill(h->head, SIGSTOP);
    }
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
    bool joined =
        net_hosts_log_has(h, "b.log", "joined the run"); /* the last step was a long one */
    assert_true(joined || net_hosts_log_has(h, "b.log", "has ended before the run began: it has"));
}

/* Would catch: a head that waits for the silence of an agent which was killed, and calls it silent.
 * A process that measures is stopped, so that this takes long enough; it ends with its agent. */
static void test_hosts_waiting__an_agent_that_is_killed_meanwhile_ends_it(void **state)
{
    net_hosts *h = *state;
    start_measured(h);
    pid_t measures = 0;
    NET_AWAIT((measures = net_hosts_child_of(h->host[1].agent)) != 0);
    net_hosts_stop(h, measures);
    net_hosts_start_agent_for(h, 2, "--address 127.0.0.3");
    NET_AWAIT(strstr(ask(h, "ctl run status"), MEASURES) != NULL);
    kill(h->host[1].agent, SIGKILL);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 128 + SIGKILL);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host b (127.0.0.2) was lost while links were measured: the "
                                  "connection of its agent was closed"));
}

/* Would catch: a start that waits ten minutes for hosts, and then cannot measure. */
static void test_hosts_waiting__a_killed_measurement_ends_it(void **state)
{
    net_hosts *h = *state;
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
    net_hosts_start_head(h, PLAN);
    NET_AWAIT(strstr(ask(h, "ctl run status"), WAITS) != NULL);
    pid_t measures = 0;
    NET_AWAIT((measures = net_hosts_child_of(h->head)) != 0);
    kill(measures, SIGKILL);
    assert_int_equal(net_hosts_await_exit(&h->head), 3);
    assert_true(net_hosts_log_has(h, "head.log", "was killed"));
}

#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOPBACK(test_hosts_waiting__before_links_are_measured),
        LOOPBACK(test_hosts_waiting__before_workers_start),
        LOOPBACK(test_hosts_waiting__the_run_began_with_its_command),
        LOOPBACK(test_hosts_waiting__a_killed_head_waits_no_more),
        LOOPBACK(test_hosts_waiting__an_agent_waits_for_a_killed_head),
        LOOPBACK(test_hosts_waiting__an_agent_of_the_run_ends_with_its_head),
        LOOPBACK(test_hosts_waiting__measuring_is_a_state),
        LOOPBACK(test_hosts_waiting__an_agent_ends_with_a_head_that_makes_a_plan),
        LOOPBACK(test_hosts_waiting__an_agent_that_is_killed_meanwhile_ends_it),
        LOOPBACK(test_hosts_waiting__a_killed_measurement_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
