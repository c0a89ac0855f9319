/* Requests that are in flight when a run ends. Would catch: frostline ctl status or stop that waits
 * for its whole --timeout, of a minute, for a run that is gone. */
#include "device/system/clock.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ASK_MS = LIVE_WAIT_MS, ALL_MS = 5 * ASK_MS }; /* to wait longer is to hang */

/* A number, and the command. */
#define REQUEST "{\"v\": 1, \"id\": \"end-%d\", \"cmd\": \"%s\", \"args\": {}}"

#define BASE                                                                                       \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "devices.count", "2",      \
        "pipe.k", "2", "autodp.r", "1", "pipe.m", "2"
#define ENDLESS BASE, "train.epochs", "9000", "train.decay", "constant", "train.warmup", "0"

/* Shared with the workers: a request was answered. */
static atomic_bool *is_answered;

/* Ask again and again, until the run does not answer, because it has ended. Returns how many were
 * carried out. */
static int ask_to_the_end(const char *dir, const char *cmd)
{
    fl_ctl_client_link *link = NULL;
    const char *reply = NULL;
    char request[256];
    int n = 0;
    int64_t deadline_us = fl_deadline_us(ALL_MS);
    fl_status status = fl_ctl_client_open(dir, false, &link);
    while (status == FL_OK) {
        snprintf(request, sizeof request, REQUEST, n, cmd);
        status = fl_ctl_client_ask(link, request, ASK_MS, &reply);
        n += status == FL_OK && strstr(reply, "\"ok\": true") != NULL;
        if (is_answered != NULL) {
            atomic_store(is_answered, n > 0);
        }
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    assert_int_equal(status, FL_EPEER);
    fl_ctl_client_close(&link);
    return n;
}

static void hold_until_answered(fl_worker_state *w)
{
    (void)w;
    while (!atomic_load(is_answered)) {
        nap(1000);
    }
}

/* The run does not end before a request was answered. */
static void test_ctl_end__status_until_a_run_is_over(void **state)
{
    (void)state;
    is_answered = shared_memory(sizeof *is_answered);
    live_run run = live_start_with(
        (const char *const[]){BASE, "train.epochs", "40", NULL},
        (scenario_deed){.point = "step", .who = 0, .step = 1, .act = hold_until_answered}, NULL);
    assert_true(ask_to_the_end(run.dir, "status") > 0);
    is_answered = NULL;
    assert_int_equal(live_finish(&run), FL_OK);
    live_clean(&run);
}

static void test_ctl_end__stop_until_a_run_is_over(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 5);
    assert_true(ask_to_the_end(run.dir, "stop") > 0);
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

static void be_absent(fl_worker_state *w)
{
    (void)w;
    for (;;) {
        pause();
    }
}

/* One of the workers does not come to the others. Would catch: "the run ended before it took
 * effect", of the very request that has ended it. */
static void test_ctl_end__a_stop_of_an_opening_has_its_effect(void **state)
{
    (void)state;
    live_run run =
        live_start_with((const char *const[]){ENDLESS, NULL},
                        (scenario_deed){.point = "begin", .who = 1, .act = be_absent}, NULL);
    live_do(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

/* The controller has the request and is killed before it reads it. Would catch: "the run has
 * ended", which is also said of one that was stopped, and no command that continues it. */
static void check_killed(const char *cmd, int64_t timeout_ms)
{
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    fl_ctl_client_link *link = NULL;
    const char *reply = NULL;
    char request[256];
    live_await_step(&run, 5);
    assert_int_equal(fl_ctl_client_open(run.dir, false, &link), FL_OK);
    kill(run.controller, SIGSTOP);
    snprintf(request, sizeof request, REQUEST, 0, cmd);
    assert_int_equal(fl_ctl_client_send(link, request), FL_OK);
    kill(run.controller, SIGKILL);
    assert_int_equal(waitpid(run.controller, NULL, 0), run.controller);
    int64_t deadline_us = fl_deadline_us(ASK_MS);
    assert_int_equal(fl_ctl_client_receive(link, timeout_ms, &reply), FL_EPEER);
    assert_true(fl_left_ms(deadline_us) > 0);
    assert_non_null(
        strstr(fl_errmsg(), ": the run is lost: its process ended before the run did; "));
    assert_non_null(strstr(fl_errmsg(), " from its newest checkpoint, if it has one"));
    fl_ctl_client_close(&link);
    fl_ctl_client_close(&run.ctl);
    live_clean(&run);
}

static void test_ctl_end__a_request_to_a_killed_run_is_over_at_once(void **state)
{
    (void)state;
    check_killed("status", ASK_MS);
    check_killed("stop", ASK_MS);
}

/* Would catch: "connected, but no answer in time", of a run that has ended meanwhile. */
static void test_ctl_end__the_end_counts_more_than_the_time(void **state)
{
    (void)state;
    check_killed("status", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ctl_end__status_until_a_run_is_over),
        cmocka_unit_test(test_ctl_end__stop_until_a_run_is_over),
        cmocka_unit_test(test_ctl_end__a_stop_of_an_opening_has_its_effect),
        cmocka_unit_test(test_ctl_end__a_request_to_a_killed_run_is_over_at_once),
        cmocka_unit_test(test_ctl_end__the_end_counts_more_than_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
