/* Runs that lose a worker before they have anything to go back to begin again, as often as
 * fault.restarts allows; others fail. Would catch: a run that ends because it lost a worker in its
 * first seconds, one that restarts for ever, and a message that hides the first loss. */
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/restart.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void kill_first_time(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

static void expect_new_start(scenario *s, const char *why)
{
    expect_end(s, FL_OK);
    restart_expect_losses(s, restart_one);
    assert_int_equal(count_events(s->dir, "\"run.started\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the start of the run"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", why), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    check_exactly_once(s->dir, 3, RESTART_SAMPLES);
    scenario_forget(s);
}

/* Before there is any state to go back to, the run begins again: nothing of the first try stays in
 * its files. Would catch: a run that ends because it lost a worker in its first seconds. */
static void test_restart_again__begins_again_without_a_state(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "nowhere",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
                  kill_first_time);
    expect_new_start(&s, "worker 1 (stage 1 of replica 0) was killed");
}

/* The same for a worker that dies before all have started, in a plan whose workers could regroup
 * later. */
static void test_restart_again__begins_again_after_a_loss_at_the_start(void **state)
{
    (void)state;
    scenario s = {.name = "early",
                  .sets = restart_sets,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "begin", .who = 1, .act = kill_first_time}}};
    scenario_start(&s);
    expect_new_start(&s, "while it started");
}

/* A worker that always dies in the same step: the run begins again as often as it may. */
static void test_restart_again__begins_again_at_most_fault_restarts_times(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "always",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                           "fault.restarts", "2"),
                  kill_this_worker);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "no other worker has the weights of"));
    scenario_forget(&s);
}

static void test_restart_again__gives_up_after_fault_restarts(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "often",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "4 steps", "fault.restarts", "2"),
                  restart_kill_later);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "it went back 2 times without reaching"));
    assert_non_null(strstr(s.outcome->message, "`frostline run --resume "));
    assert_int_equal(count_events(s.dir, "\"run.failed\"", ""), 1);
    scenario_forget(&s);
}

/* Would catch: a loss that is logged by the recovery that begins, and again by the one that fails,
 * when it turns out during a switch that nobody else has the lost layers. */
static void test_restart_again__a_loss_in_a_switch_is_logged_once(void **state)
{
    (void)state;
    scenario s = {.name = "switch",
                  .sets = restart_sets,
                  .more =
                      JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                               "fault.restarts", "0", "elastic.script", "[{step: 5, f: 2}]"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "switch", .who = 1, .act = kill_this_worker}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(count_events(s.dir, "\"run.failed\"", "no other worker has the weights of"),
                     1);
    assert_non_null(strstr(s.outcome->message, "it does not go back: fault.restarts is 0"));
    assert_int_equal(count_events(s.dir, "\"worker.lost\"", ""), 1);
    scenario_forget(&s);
}

static void kill_once_spoiled(fl_worker_state *w)
{
    char path[256];
    snprintf(path, sizeof path, "%s/job.yaml", scenario_here()->dir);
    while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
        nap(500);
    }
    assert_int_equal(truncate(path, 0), 0);
    kill_this_worker(w);
}

/* The return is announced, and then fails because the job cannot be read. Would catch: a run that
 * its files and its subscribers take for one that still goes back. */
static void test_restart_again__a_return_that_fails_ends_the_run(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "spoiled",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
                  kill_once_spoiled);
    expect_end(&s, FL_EFAILED);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 1);
    assert_int_equal(count_events(s.dir, "\"run.failed\"", "worker 1 ("), 1);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 0);
    scenario_forget(&s);
}

static void die_during_recovery(fl_worker_state *w)
{
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "\"rank\": 1") == 0) {
        nap(500);
    }
    kill_this_worker(w);
}

/* Would catch: a message that names only the worker that was lost last. */
static void test_restart_again__the_message_begins_with_the_first_loss(void **state)
{
    (void)state;
    scenario s = {.name = "first",
                  .sets = restart_sets,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue", "fault.restarts", "0"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                         {.point = "step", .who = 0, .step = 9, .act = die_during_recovery}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    static const char begin[] = "worker 1 (stage 0 of replica 1) was killed by signal 9";
    if (strncmp(s.outcome->message, begin, strlen(begin)) != 0 ||
        strstr(s.outcome->message, "; then worker 0 (") == NULL) {
        fail_msg("the message is: %s", s.outcome->message);
    }
    assert_int_equal(count_events(s.dir, "\"run.failed\"", begin), 1);
    scenario_forget(&s);
}

static void kill_all_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill(atomic_load(&scenario_here()->outcome->pid[0]), SIGKILL);
        kill_this_worker(w);
    }
}

/* Would catch: a summary that names one lost worker where all were lost. */
static void test_restart_again__counts_all_that_are_lost_at_once(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "both",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
                  kill_all_once);
    expect_end(&s, FL_OK);
    restart_expect_summary(s.dir, "  losses         2 workers lost; the run went back 1 time");
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart_again__begins_again_without_a_state),
        cmocka_unit_test(test_restart_again__begins_again_after_a_loss_at_the_start),
        cmocka_unit_test(test_restart_again__begins_again_at_most_fault_restarts_times),
        cmocka_unit_test(test_restart_again__a_loss_in_a_switch_is_logged_once),
        cmocka_unit_test(test_restart_again__the_message_begins_with_the_first_loss),
        cmocka_unit_test(test_restart_again__a_return_that_fails_ends_the_run),
        cmocka_unit_test(test_restart_again__gives_up_after_fault_restarts),
        cmocka_unit_test(test_restart_again__counts_all_that_are_lost_at_once),
    };
    return cmocka_run_group_tests(tests, restart_set_up, restart_tear_down);
}
