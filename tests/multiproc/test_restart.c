/* A run whose lost worker had layers that no other one has goes back to its newest snapshot or
 * checkpoint by itself. Would catch: a sample that is lost or used twice on the way back, a run
 * that ends although it has a checkpoint, one that restarts for ever, and a message that hides the
 * first loss. */
#include "nn/model.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 100, STEPS = 30, FATAL_STEP = 13 };

static const double TOLERANCE = 1e-5;
static double *one; /* [STEPS] losses of one worker */

static const char *const *const training =
    JOB_SETS("train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "train.evaluate",
             "false", "fault.detect", "2s");

/* Once a checkpoint is durable. */
static void kill_later(fl_worker_state *w)
{
    while (atomic_load(w->c->store->kept_step) < 4) {
        nap(500);
    }
    kill_this_worker(w);
}

static void kill_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_later(w);
    }
}

#define STAGES                                                                                     \
    "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2", "fault.on_loss", "continue"

static void start(scenario *s, const char *name, const char *const *more,
                  void (*act)(fl_worker_state *w))
{
    *s = (scenario){.name = name,
                    .sets = training,
                    .more = more,
                    .n_samples = N_SAMPLES,
                    .dropout = 0.1f,
                    .at = {{.point = "step", .who = 1, .step = FATAL_STEP, .act = act}}};
    scenario_start(s);
}

static void test_restart__goes_back_to_the_newest_checkpoint(void **state)
{
    (void)state;
    scenario s;
    start(&s, "back", JOB_SETS(STAGES, "checkpoint.every", "4 steps", "fault.snapshot", "none"),
          kill_once);
    expect_end(&s, FL_OK);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"run.finished\"", ""), 1);
    free(losses);
    scenario_forget(&s);
}

/* Once a snapshot is complete. */
static void kill_once_snapped(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
            nap(500);
        }
        kill_this_worker(w);
    }
}

static void expect_return(scenario *s, const double *expected)
{
    expect_end(s, FL_OK);
    double *losses = losses_of(s, STEPS);
    assert_true(worst_difference(losses, expected, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the snapshot in memory"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "worker 1 (stage 1"), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    free(losses);
    scenario_forget(s);
}

static void test_restart__goes_back_to_a_snapshot(void **state)
{
    (void)state;
    scenario s;
    start(&s, "snapshot", JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
          kill_once_snapped);
    expect_return(&s, one);
}

/* The moments of frozen blocks, which no stage has, come from the snapshot; the blocks thaw after
 * the return. */
static void test_restart__brings_parked_moments_back(void **state)
{
    (void)state;
    const char *script = "[{step: 3, f: 2}, {step: 20, f: 0}]";
    const char *const *frozen =
        JOB_SETS("train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "train.evaluate",
                 "false", "elastic.script", script);
    double *expected = losses_of_one(frozen, N_SAMPLES, STEPS);
    scenario s;
    start(&s, "parked",
          JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps",
                   "elastic.script", script),
          kill_once_snapped);
    expect_return(&s, expected);
    free(expected);
}

/* Both slots: at any time one may be about to be filled. */
static void kill_once_damaged(fl_worker_state *w)
{
    const fl_snapshot *s = w->c->snapshot;
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
            nap(500);
        }
        s->slots[1] += 1.0f;
        s->slots[s->layer_at[fl_model_n_layers(s->model)] + 1] += 1.0f;
        kill_later(w);
    }
}

/* A damaged snapshot is no state of the run: it goes back to the checkpoint, although that is not
 * newer. */
static void test_restart__a_damaged_snapshot_is_not_used(void **state)
{
    (void)state;
    scenario s;
    start(&s, "damaged",
          JOB_SETS(STAGES, "checkpoint.every", "4 steps", "fault.snapshot", "1 steps"),
          kill_once_damaged);
    expect_end(&s, FL_OK);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", "the snapshot in memory"), 0);
    free(losses);
    scenario_forget(&s);
}

static void kill_first_time(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

static void expect_new_start(scenario *s, const char *why)
{
    expect_end(s, FL_OK);
    double *losses = losses_of(s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s->dir, "\"run.started\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the start of the run"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", why), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    check_exactly_once(s->dir, 3, N_SAMPLES);
    free(losses);
    scenario_forget(s);
}

/* Before there is any state to go back to, the run begins again: nothing of the first try stays in
 * its files. Would catch: a run that ends because it lost a worker in its first seconds. */
static void test_restart__begins_again_without_a_state(void **state)
{
    (void)state;
    scenario s;
    start(&s, "nowhere", JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
          kill_first_time);
    expect_new_start(&s, "worker 1 (stage 1 of replica 0) was killed");
}

/* The same for a worker that dies before all have started, in a plan whose workers could regroup
 * later. */
static void test_restart__begins_again_after_a_loss_at_the_start(void **state)
{
    (void)state;
    scenario s = {.name = "early",
                  .sets = training,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "begin", .who = 1, .act = kill_first_time}}};
    scenario_start(&s);
    expect_new_start(&s, "while it started");
}

/* A worker that always dies in the same step: the run begins again as often as it may. */
static void test_restart__begins_again_at_most_fault_restarts_times(void **state)
{
    (void)state;
    scenario s;
    start(&s, "always",
          JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none", "fault.restarts",
                   "2"),
          kill_this_worker);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "no other worker has the weights of"));
    scenario_forget(&s);
}

static void test_restart__gives_up_after_fault_restarts(void **state)
{
    (void)state;
    scenario s;
    start(&s, "often", JOB_SETS(STAGES, "checkpoint.every", "4 steps", "fault.restarts", "2"),
          kill_later);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    scenario_forget(&s);
}

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    one = losses_of_one(training, N_SAMPLES, STEPS);
    return 0;
}

static int tear_down(void **state)
{
    free(one);
    return remove_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart__goes_back_to_the_newest_checkpoint),
        cmocka_unit_test(test_restart__goes_back_to_a_snapshot),
        cmocka_unit_test(test_restart__brings_parked_moments_back),
        cmocka_unit_test(test_restart__a_damaged_snapshot_is_not_used),
        cmocka_unit_test(test_restart__begins_again_without_a_state),
        cmocka_unit_test(test_restart__begins_again_after_a_loss_at_the_start),
        cmocka_unit_test(test_restart__begins_again_at_most_fault_restarts_times),
        cmocka_unit_test(test_restart__gives_up_after_fault_restarts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
