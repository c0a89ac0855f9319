/* A run grows beyond the workers that it began with, up to devices.max, and shrinks again. Would
 * catch: a step lost or repeated by that; a worker listed, waited for or watched before it is
 * started; a resumed run that has fewer workers than its plan needs. */
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EACH = 12 }; /* steps on each number of workers, at least */

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "autodp.bucket", "16KiB", "pipe.k", "1", "pipe.m", "2"

static const scenario_deed nothing = {.act = NULL};

/* In shared memory: while it holds, steps are slow, so that few of them come before the workers. */
static atomic_bool *is_slow;

static void go_slowly(const char *point, fl_worker_state *w)
{
    if (w->rank == 0 && strcmp(point, "step") == 0 && atomic_load(is_slow)) {
        nap(10000);
    }
}

static live_run start(const char *const *sets)
{
    is_slow = shared_memory(sizeof *is_slow);
    atomic_store(is_slow, true);
    return live_start_with(sets, nothing, go_slowly);
}

static void scale(live_run *run, const char *args, int r)
{
    json_t *result = live_ask(run, "scale", args);
    assert_int_equal(number(result, "r"), r);
    json_decref(result);
    live_await_step(run, live_status(run, "step") + EACH);
}

static double *train_alone(int n_steps)
{
    live_run run =
        live_start((const char *const[]){TRAINING, "devices.count", "1", "autodp.r", "1", NULL});
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    return live_take_losses(&run, n_steps);
}

static void check_losses(const double *losses, int n_steps)
{
    double *alone = train_alone(n_steps);
    assert_true(worst_difference(losses, alone, 0, n_steps) <= TOLERANCE);
    free(alone);
}

static void test_growing__one_to_two_to_four_and_back(void **state)
{
    (void)state;
    live_run run =
        start((const char *const[]){TRAINING, "devices.count", "1", "devices.max", "4", NULL});
    live_await_step(&run, EACH);
    assert_int_equal(live_n_workers(&run), 1);
    scale(&run, "{\"k\": 1, \"r\": 2}", 2);
    assert_int_equal(live_n_workers(&run), 2);
    scale(&run, "{\"k\": 1, \"r\": 4}", 4);
    assert_int_equal(live_n_workers(&run), 4);
    live_refused(&run, "scale", "{\"devices\": 5}", "refused");
    scale(&run, "{\"devices\": 1}", 1);
    int n_steps = (int)live_status(&run, "step");
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.started", ""), 3);
    assert_int_equal(count_events(run.dir, "worker.restarted", ""), 0);
    assert_int_equal(count_events(run.dir, "worker.joined", ""), 3);
    assert_int_equal(count_events(run.dir, "worker.lost", ""), 0);
    double *losses = live_take_losses(&run, n_steps);
    check_losses(losses, n_steps);
    free(losses);
}

/* A run that leaves out the workers without a stage can start them later all the same. */
static void test_growing__without_the_elastic_controller(void **state)
{
    (void)state;
    live_run run = start((const char *const[]){TRAINING, "devices.count", "2", "devices.max", "3",
                                               "autodp.r", "1", "elastic.enabled", "false", NULL});
    assert_int_equal(live_n_workers(&run), 1);
    scale(&run, "{\"k\": 1, \"r\": 3}", 3);
    live_do(&run, "drain", "{\"worker\": 0}");
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "worker.started", ""), 2);
    live_clean(&run);
}

/* The run continues on the plan to which it had grown. */
static void test_growing__resumes_with_the_workers_that_it_had(void **state)
{
    (void)state;
    const char *const sets[] = {TRAINING, "devices.count",    "1",       "devices.max",
                                "3",      "checkpoint.every", "4 steps", NULL};
    live_run run = start(sets);
    scale(&run, "{\"k\": 1, \"r\": 2}", 2);
    live_interrupt(&run);
    scenario_forget(&run.scenario);
    run.scenario.sets = sets;
    run.scenario.resumes = true;
    live_run again = live_start_again(&run.scenario);
    assert_int_equal(live_n_workers(&again), 2);
    live_await_step(&again, live_status(&again, "step") + EACH);
    live_await_state(&again, 1, "active");
    scale(&again, "{\"k\": 1, \"r\": 3}", 3);
    int n_steps = (int)live_status(&again, "step");
    live_interrupt(&again);
    double *losses = live_take_losses(&again, n_steps);
    check_losses(losses, n_steps);
    free(losses);
}

/* Would catch: a checkpoint that was begun when a worker joined, and waits for the part of that
 * one. */
static void test_growing__does_not_hold_up_checkpoints(void **state)
{
    (void)state;
    live_run run =
        start((const char *const[]){TRAINING, "devices.count", "1", "devices.max", "4",
                                    "checkpoint.every", "1 steps", "fault.deadline", "20s", NULL});
    for (int r = 2; r <= 4; r++) {
        char args[32];
        snprintf(args, sizeof args, "{\"k\": 1, \"r\": %d}", r);
        scale(&run, args, r);
        live_do(&run, "checkpoint", "{}");
    }
    live_interrupt(&run);
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing__does_not_hold_up_checkpoints),
        cmocka_unit_test(test_growing__one_to_two_to_four_and_back),
        cmocka_unit_test(test_growing__without_the_elastic_controller),
        cmocka_unit_test(test_growing__resumes_with_the_workers_that_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
