/* Runs that are told to stop while they go back after a loss. Would catch: a request that is
 * forgotten on the way, and a run that fails because of it. */
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/restart.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

/* Shared with the workers. */
typedef struct meeting {
    atomic_bool died, stopped;
} meeting;
static meeting *shared;

/* Would catch: a request to stop that is forgotten on the way back, or that makes a run fail which
 * has a snapshot. */
static void stop_beside_a_loss(const char *name, bool while_it_returns)
{
    live_run run = live_start_again(
        &(scenario){.name = name,
                    .sets = restart_sets,
                    .more = JOB_SETS(RESTART_STAGES, "train.epochs", "10000", "fault.snapshot",
                                     "4 steps", "elastic.enabled", "false"),
                    .n_samples = RESTART_SAMPLES,
                    .dropout = 0.1f});
    restart_await(&run, "snapshots", 1);
    assert_int_equal(kill(live_process_of(&run, 1), SIGKILL), 0);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (while_it_returns && count_events(run.dir, "\"worker.lost\"", "") == 0 &&
           count_events(run.dir, "\"run.resumed\"", "") == 0) { /* which cuts the former off */
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(500);
    }
    assert_int_equal(kill(run.controller, SIGTERM), 0);
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(count_events(run.dir, "\"run.stopped\"", ""), 1);
    scenario_forget(&run.scenario);
}

static void test_restart_stops__stops_where_it_goes_back_to(void **state)
{
    (void)state;
    stop_beside_a_loss("stopped", false);
    stop_beside_a_loss("returning", true);
}

static void kill_one_then_stop(fl_worker_state *w)
{
    int n = atomic_load(&scenario_here()->outcome->n_deeds);
    if (n == 2) {
        interrupt_the_run(w);
    }
    if (n <= 2) {
        kill_this_worker(w);
    }
}

static void die_the_first_time(fl_worker_state *w)
{
    bool again = atomic_exchange(&shared->died, true);
    while (!again && !atomic_load(&shared->stopped)) {
        nap(500);
    }
    if (!again) {
        kill_this_worker(w);
    }
}

/* Until it is killed, for the signal or because it does not leave. */
static void stop_the_return(fl_worker_state *w)
{
    (void)w;
    if (atomic_exchange(&shared->stopped, true)) {
        return;
    }
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "") == 0) {
        nap(500);
    }
    if (kill(controller_here(), SIGINT) != 0) {
        abort();
    }
    for (;;) {
        nap(500);
    }
}

static void stop_during_recovery(fl_worker_state *w)
{
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "\"rank\": 1") == 0) {
        nap(500);
    }
    interrupt_the_run(w);
    kill_this_worker(w);
}

static void expect_stop_at_start(scenario *s)
{
    expect_end(s, FL_ESTOPPED);
    json_t *steps = lines_with(s->dir, "steps.jsonl", "\"loss\"");
    assert_in_range(json_array_size(steps), 1, RESTART_FATAL_STEP - 1);
    assert_int_equal(count_events(s->dir, "\"run.stopped\"", ""), 1);
    json_decref(steps);
    scenario_forget(s);
}

/* Would catch: a run that fails because it was to stop after a loss that takes it back to step 0:
 * when the request comes before the others have left, when another one is lost before the run has
 * stopped, and when the others were about to go on without the lost one. */
static void test_restart_stops__stops_on_the_way_to_its_start(void **state)
{
    (void)state;
    shared = shared_memory(sizeof *shared);
    scenario s = {
        .name = "leaving",
        .sets = restart_sets,
        .more = JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                         "fault.detect", "20s"),
        .n_samples = RESTART_SAMPLES,
        .dropout = 0.1f,
        .at = {{.point = "step", .who = 1, .step = RESTART_FATAL_STEP, .act = die_the_first_time},
               {.point = "step", .who = 0, .step = RESTART_FATAL_STEP, .act = stop_the_return}}};
    scenario_start(&s);
    expect_stop_at_start(&s);
    s = (scenario){
        .name = "again",
        .sets = restart_sets,
        .more = JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
        .n_samples = RESTART_SAMPLES,
        .dropout = 0.1f,
        .at = {{.point = "begin", .who = 1, .act = kill_one_then_stop}}};
    scenario_start(&s);
    expect_stop_at_start(&s);
    s = (scenario){.name = "both-stop",
                   .sets = restart_sets,
                   .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                    "2", "fault.on_loss", "continue", "checkpoint.every", "none",
                                    "fault.snapshot", "none"),
                   .n_samples = RESTART_SAMPLES,
                   .dropout = 0.1f,
                   .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                          {.point = "step", .who = 0, .step = 9, .act = stop_during_recovery}}};
    scenario_start(&s);
    expect_stop_at_start(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart_stops__stops_where_it_goes_back_to),
        cmocka_unit_test(test_restart_stops__stops_on_the_way_to_its_start),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
