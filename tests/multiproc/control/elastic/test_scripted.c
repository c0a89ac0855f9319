/* An entry of elastic.script takes effect at its step, whatever happens to the attempts before:
 * connections that fail, a vote that is lost, a worker that is late, connections that break while
 * all wait. Each of that is forced at one point. Would catch: workers that are let go at the step
 * without the change, a step later change, a generation number that is used twice, and a run that
 * hangs because nobody answers. */
#include "control/link/link_thread.h"
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 203, STEPS = 21, FIRST = 8, PATIENCE_MS = 60000 };

static double *one; /* [STEPS] losses of one worker with the same script */

#define COMMON                                                                                     \
    "pipe.m", "2", "train.batch", "10", "train.epochs", "1", "train.lr", "1e-3", "train.evaluate", \
        "false", "fault.detect", "5s", "fault.on_loss", "continue"

/* Blocks freeze: the losses after it tell the step of the change. */
static const fl_script_entry entry = {.step = FIRST, .f = 2, .k = 1, .r = 2, .m = 2};

/* The n-th attempt (from 0) at the first change of this run. */
static uint32_t attempt_of(const fl_worker_state *w)
{
    return w->prepare_thread.generation - 2;
}

/* ---- what happens to worker 1 ---- */

/* Connections of the generation that is being opened fail, at two attempts. */
static void fail_to_connect(fl_worker_state *w)
{
    if (attempt_of(w) < 2) {
        fl_abort_set_abort(&w->abort_set, w->prepare_thread.generation, FL_EPEER);
    }
}

static void vote_no(fl_worker_state *w)
{
    if (attempt_of(w) < 2) {
        atomic_store(&w->prepare_thread.state, FL_PREPARE_REFUSED);
    }
}

/* It opens nothing until the first attempt is given up. */
static void be_late(fl_worker_state *w)
{
    int64_t deadline_us = fl_deadline_us(PATIENCE_MS);
    while (attempt_of(w) == 0 && fl_left_ms(deadline_us) > 0 &&
           fl_abort_set_check(&w->abort_set, w->prepare_thread.generation) == FL_OK) {
        nap(1000);
    }
}

/* Two steps before the end, the leader waits until the order to prepare has arrived; on a busy
 * machine it may have obeyed by then. */
static void await_order(fl_worker_state *w)
{
    int64_t deadline_us = fl_deadline_us(PATIENCE_MS);
    while (w->leads && w->step == STEPS - 2 && fl_left_ms(deadline_us) > 0 &&
           atomic_load(&w->link->n_commands) == 0 && w->prepare_thread.generation < 2) {
        nap(1000);
    }
}

/* The connections over which the running generation hears commands break: all regroup. */
static void break_connections(fl_worker_state *w)
{
    if (attempt_of(w) == 0) {
        fl_message_abort(w->messages, FL_EPEER);
    }
}

/* ---- the runs ---- */

static void check_losses(const scenario *s)
{
    double *losses = losses_of(s, STEPS);
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(losses[i] - one[i]) <= 1e-5 * fabs(one[i]))) {
            fail_msg("%s: step %d has loss %.9g, one worker %.9g", s->name, i, losses[i], one[i]);
        }
    }
    free(losses);
}

/* n: attempts that fail */
static void check_change(const char *name, const char *point, void (*act)(fl_worker_state *w),
                         const char *deadline, int n)
{
    scenario s = {.name = name,
                  .sets = JOB_SETS(COMMON, "pipe.k", "2", "autodp.r", "1", "devices.count", "2",
                                   "fault.deadline", deadline),
                  .script = &entry,
                  .n_script = 1,
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = point, .who = 1, .act = act}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_true(atomic_load(&s.outcome->n_deeds) > 0);
    assert_int_equal(count_events(s.dir, "\"transition.cancelled\"", "\"again\": true"), n);
    assert_int_equal(count_events(s.dir, "\"transition.cancelled\"", "\"again\": false"), 0);
    assert_int_equal(count_events(s.dir, "\"transition.done\"", "\"why\": \"elastic.script"), 1);
    json_t *done =
        lines_with(s.dir, "events.jsonl", "\"why\": \"elastic.script, step 8\", \"step\"");
    assert_int_equal(json_array_size(done), 1);
    assert_int_equal(number(json_array_get(done, 0), "step"), FIRST);
    json_decref(done);
    check_losses(&s);
    scenario_forget(&s);
}

static void test_scripted__a_connection_that_fails_delays_no_change(void **state)
{
    (void)state;
    check_change("connect", "prepare", fail_to_connect, "30s", 2);
}

static void test_scripted__a_lost_vote_delays_no_change(void **state)
{
    (void)state;
    check_change("vote", "vote", vote_no, "30s", 2);
}

static void test_scripted__a_late_worker_delays_no_change(void **state)
{
    (void)state;
    check_change("late", "prepare", be_late, "5s", 1);
}

static void test_scripted__broken_connections_delay_no_change(void **state)
{
    (void)state;
    check_change("break", "prepare", break_connections, "30s", 1);
    /* all have voted for the change, and nobody has switched */
    check_change("migrate", "migrate", break_connections, "30s", 1);
}

/* An entry for the end of the run is prepared, and a worker is not ready before the end. Would
 * catch: a worker that leaves, and is blamed for a stale generation. */
static void test_scripted__the_end_of_the_run_is_the_reason_that_is_told(void **state)
{
    (void)state;
    static const fl_script_entry last = {.step = STEPS, .f = 2, .k = 1, .r = 2, .m = 2};
    scenario s = {.name = "end",
                  .sets = JOB_SETS(COMMON, "pipe.k", "2", "autodp.r", "1", "devices.count", "2"),
                  .script = &last,
                  .n_script = 1,
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "prepare", .who = 1, .act = be_late},
                         {.point = "step", .who = EVERYBODY, .act = await_order}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(
        count_events(s.dir, "\"transition.cancelled\"", "the run ended before the change"), 1);
    assert_int_equal(count_events(s.dir, "\"transition.cancelled\"", "stale"), 0);
    scenario_forget(&s);
}

/* ---- */

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    static const fl_script_entry alone = {.step = FIRST, .f = 2, .k = 1, .r = 1, .m = 2};
    scenario s = {.name = "one",
                  .sets = JOB_SETS(COMMON, "pipe.k", "1", "autodp.r", "1", "devices.count", "1"),
                  .script = &alone,
                  .n_script = 1,
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f};
    scenario_run(&s);
    one = losses_of(&s, STEPS);
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
        cmocka_unit_test(test_scripted__a_connection_that_fails_delays_no_change),
        cmocka_unit_test(test_scripted__a_lost_vote_delays_no_change),
        cmocka_unit_test(test_scripted__a_late_worker_delays_no_change),
        cmocka_unit_test(test_scripted__broken_connections_delay_no_change),
        cmocka_unit_test(test_scripted__the_end_of_the_run_is_the_reason_that_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
