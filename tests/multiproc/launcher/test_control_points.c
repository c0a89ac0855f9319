/* What all members of a run do between two steps, when commands and reports meet in an order that
 * a busy machine brings about. Would catch: a worker that joins at a step for which elastic.script
 * has an entry and trains on while the others wait there; step reports that are lost because the
 * link of the leader before is late; a pause that holds a run which has ended. */
#include "control/link/link_thread.h"
#include "device/system/clock.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { SCRIPT_STEP = 1000, LATE_US = 300000, JOIN_MS = 30000, SPOILED_STEP = 20, SLOW_US = 10000 };

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "autodp.bucket", "16KiB", "devices.count", "2", "pipe.k", "1", "autodp.r", "2", "pipe.m",  \
        "1", "fault.detect", "5s", "fault.deadline", "5s"

/* Shared with the workers. */
static struct {
    atomic_llong step;      /* the steps that worker 0 has done */
    atomic_bool joins_late; /* worker 1 opens its next generation once SCRIPT_STEP is reached */
    atomic_bool is_slow;    /* steps are, until worker 1 has begun with that */
    atomic_int late_rank;   /* whose link is late; -1: none */
} * shared;

static void join_late(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "step") == 0 && w->rank == 0) {
        atomic_store(&shared->step, w->step);
        nap(atomic_load(&shared->is_slow) ? SLOW_US : 0);
    } else if (strcmp(point, "prepare") == 0 && w->rank == 1 && atomic_load(&shared->joins_late)) {
        int64_t deadline_us = fl_deadline_us(JOIN_MS);
        atomic_store(&shared->is_slow, false);
        while (atomic_load(&shared->step) < SCRIPT_STEP && fl_left_ms(deadline_us) > 0) {
            nap(1000);
        }
    }
}

void fl__link_turn(int rank)
{
    if (rank == atomic_load(&shared->late_rank)) {
        nap(LATE_US);
    }
}

static int reset(void **state)
{
    (void)state;
    atomic_store(&shared->step, 0);
    atomic_store(&shared->joins_late, false);
    atomic_store(&shared->is_slow, false);
    atomic_store(&shared->late_rank, -1);
    return 0;
}

static void ask(live_run *run, const char *cmd, const char *args)
{
    json_decref(live_ask(run, cmd, args));
}

/* steps.jsonl has each step once, in order. Returns how many. */
static int check_steps(const live_run *run)
{
    json_t *steps = lines_with(run->dir, "steps.jsonl", "");
    const json_t *line;
    int n = 0;
    FOR_EACH(line, steps)
    {
        assert_int_equal(number(line, "step"), n);
        n++;
    }
    json_decref(steps);
    return n;
}

static void stop(live_run *run)
{
    ask(run, "stop", "{}");
    assert_int_equal(live_finish(run), FL_ESTOPPED);
    live_check_ledger(run);
}

/* A worker comes back through `ctl scale` and is still preparing when the others reach a step of
 * elastic.script: it joins at that very step, and has to wait there with them. */
static void test_control_points__a_worker_that_joins_at_a_scripted_step_waits_there(void **state)
{
    (void)state;
    atomic_store(&shared->is_slow, true);
    live_run run = live_start_with((const char *const[]){TRAINING, "elastic.script",
                                                         "[{step: 1000, m: 2}]", "train.max_steps",
                                                         "1200", "fault.deadline", "60s", NULL},
                                   (scenario_deed){.point = NULL}, join_late);
    live_await_step(&run, 10);
    ask(&run, "scale", "{\"k\": 1, \"r\": 1}");
    atomic_store(&shared->joins_late, true);
    ask(&run, "scale", "{\"k\": 1, \"r\": 2}");
    assert_int_equal(live_finish(&run), FL_OK);
    live_check_ledger(&run);
    assert_int_equal(check_steps(&run), 1200);
    json_t *done = lines_with(run.dir, "events.jsonl", "\"transition.done\"");
    assert_int_equal(length(done), 3);
    const json_t *joined = json_array_get(done, 1), *scripted = json_array_get(done, 2);
    assert_int_equal(number(joined, "step"), SCRIPT_STEP); /* else the test shows nothing */
    assert_int_equal(number(joined, "r"), 2);
    assert_int_equal(number(scripted, "step"), SCRIPT_STEP);
    assert_int_equal(number(scripted, "m"), 2);
    json_decref(done);
    live_clean(&run);
}

/* The leader leaves, and its link is late: the new leader's first reports arrive before its last
 * ones. */
static void test_control_points__a_late_link_loses_no_step_report(void **state)
{
    (void)state;
    live_run run = live_start_with((const char *const[]){TRAINING, NULL},
                                   (scenario_deed){.point = NULL}, join_late);
    live_await_step(&run, 30);
    atomic_store(&shared->late_rank, 0);
    ask(&run, "drain", "{\"worker\": 0}");
    int64_t step = live_status(&run, "step");
    live_await_step(&run, step + 400);
    stop(&run);
    assert_true(check_steps(&run) >= step + 400);
    live_clean(&run);
}

/* The update of SPOILED_STEP - 1 makes every weight NaN, so the loss of SPOILED_STEP is NaN. The
 * leader begins that step when the pause has arrived. */
static void spoil_a_step(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "step") != 0) {
        return;
    }
    w->lr_factor = w->step == SPOILED_STEP - 1 ? (double)NAN : 1.0;
    int64_t deadline_us = fl_deadline_us(JOIN_MS);
    while (w->step == SPOILED_STEP && w->leads && atomic_load(&w->link->n_commands) == 0 &&
           fl_left_ms(deadline_us) > 0) {
        nap(1000);
    }
}

/* A pause takes effect after the very step whose loss ends the run. */
static void test_control_points__a_pause_does_not_hold_a_run_that_ends(void **state)
{
    (void)state;
    live_run run = live_start_with((const char *const[]){TRAINING, "fault.deadline", "60s", NULL},
                                   (scenario_deed){.point = NULL}, spoil_a_step);
    live_await_step(&run, SPOILED_STEP);
    live_refused(&run, "pause", "{}", "over");
    assert_int_equal(live_finish(&run), FL_EFAILED);
    assert_int_equal(count_events(run.dir, "step.nonfinite", ""), 1);
    assert_int_equal(count_events(run.dir, "run.paused", ""), 0);
    assert_int_equal(check_steps(&run), SPOILED_STEP + 1);
    live_clean(&run);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(
            test_control_points__a_worker_that_joins_at_a_scripted_step_waits_there, reset),
        cmocka_unit_test_setup(test_control_points__a_late_link_loses_no_step_report, reset),
        cmocka_unit_test_setup(test_control_points__a_pause_does_not_hold_a_run_that_ends, reset),
    };
    return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
