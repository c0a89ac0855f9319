/* Nobody is lost who is only slow, or slept: a worker that takes longer than fault.deadline, a
 * machine that stands still as a whole, a controller that is stopped while workers wait for it. */
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum {
    AT_STEP = 5,
    SLEEP_US = 2600000, /* longer than fault.deadline */
};

#define SHORT_DEADLINES "fault.detect", "2s", "fault.deadline", "2s"
#define SMALL_JOB                                                                                  \
    "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "train.batch", "12", "train.epochs", "1",       \
        "train.evaluate", "false"

/* How far a worker and the test have come. */
typedef struct meeting {
    atomic_bool arrived, go_on;
} meeting;

static void await(const atomic_bool *flag)
{
    while (!atomic_load(flag)) {
        nap(5000);
    }
}

/* Until a worker is where the test wants it, or until the run has ended before that, which fails.
 */
static void await_arrival(scenario *s, const meeting *m)
{
    siginfo_t end = {.si_pid = 0};
    while (!atomic_load(&m->arrived)) {
        assert_int_equal(waitid(P_PID, (id_t)s->controller, &end, WEXITED | WNOHANG | WNOWAIT), 0);
        if (end.si_pid != 0) {
            expect_end(s, FL_OK);
            fail_msg("%s: the run ended too early", s->name);
        }
        nap(5000);
    }
}

static void stop_here(void)
{
    meeting *m = (meeting *)(uintptr_t)scenario_here()->context;
    atomic_store(&m->arrived, true);
    await(&m->go_on);
}

/* ---- a slow worker ---- */

static void go_slowly(fl_flight_kind kind, int rank, int64_t step)
{
    if (rank == 0 && step == AT_STEP && kind == FL_FLIGHT_BACKWARD) {
        nap(200000);
    }
}

/* Its step takes over 3 s, each layer of it a fraction. Would catch: a deadline of the wait for a
 * worker that goes on, layer by layer. */
static void test_patience__waits_for_a_worker_that_is_slow(void **state)
{
    (void)state;
    scenario s = {.name = "slow",
                  .sets = JOB_SETS(SMALL_JOB, SHORT_DEADLINES, "devices.count", "2"),
                  .n_samples = 120,
                  .at_operation = go_slowly};
    scenario_run(&s);
}

/* ---- a machine that sleeps ---- */

static void meet_in_a_layer(fl_flight_kind kind, int rank, int64_t step)
{
    if (rank == 0 && step == AT_STEP && kind == FL_FLIGHT_FORWARD) {
        stop_here();
    }
}

static void signal_workers(const scenario *s, int n_workers, int number)
{
    for (int i = 0; i < n_workers; i++) {
        assert_int_equal(kill(atomic_load(&s->outcome->pid[i]), number), 0);
    }
}

static void signal_all(const scenario *s, int n_workers, int number)
{
    assert_int_equal(kill(s->controller, number), 0);
    signal_workers(s, n_workers, number);
}

/* Would catch: the time of a pause counted as time that a worker had to answer. */
static void test_patience__survives_a_machine_that_slept(void **state)
{
    (void)state;
    meeting *m = shared_memory(sizeof *m);
    scenario s = {.name = "slept",
                  .sets = JOB_SETS(SMALL_JOB, SHORT_DEADLINES, "devices.count", "2"),
                  .n_samples = 120,
                  .at_operation = meet_in_a_layer,
                  .context = m};
    scenario_start(&s);
    await_arrival(&s, m); /* worker 1 waits for worker 0 now, or soon */
    nap(50000);
    signal_all(&s, 2, SIGSTOP);
    nap(SLEEP_US);
    signal_all(&s, 2, SIGCONT);
    nap(50000); /* worker 1 wakes up first */
    atomic_store(&m->go_on, true);
    expect_end(&s, FL_OK);
    scenario_forget(&s);
}

/* Would catch: "no other worker is left", because all were stopped while the controller ran. */
static void test_patience__waits_for_workers_that_are_stopped_together(void **state)
{
    (void)state;
    meeting *m = shared_memory(sizeof *m);
    scenario s = {.name = "together",
                  .sets = JOB_SETS(SMALL_JOB, "fault.detect", "1s", "fault.deadline", "60s",
                                   "fault.on_loss", "continue", "devices.count", "2"),
                  .n_samples = 120,
                  .at_operation = meet_in_a_layer,
                  .context = m};
    scenario_start(&s);
    await_arrival(&s, m);
    signal_workers(&s, 2, SIGSTOP);
    nap(2 * SLEEP_US);
    signal_workers(&s, 2, SIGCONT);
    atomic_store(&m->go_on, true);
    expect_end(&s, FL_OK);
    assert_int_equal(count_events(s.dir, "\"worker.lost\"", ""), 0);
    assert_int_equal(count_events(s.dir, "\"run.recovered\"", ""), 0);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 0);
    scenario_forget(&s);
}

/* But not for ever: then it goes back to its start, in which nobody stops them. */
static void test_patience__waits_for_them_for_fault_deadline(void **state)
{
    (void)state;
    meeting *m = shared_memory(sizeof *m);
    scenario s = {.name = "for_good",
                  .sets = JOB_SETS(SMALL_JOB, SHORT_DEADLINES, "fault.on_loss", "continue",
                                   "devices.count", "2"),
                  .n_samples = 120,
                  .at_operation = meet_in_a_layer,
                  .context = m};
    scenario_start(&s);
    await_arrival(&s, m);
    signal_workers(&s, 2, SIGSTOP);
    atomic_store(&m->go_on, true);
    expect_end(&s, FL_OK);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", "did not answer for"), 1);
    scenario_forget(&s);
}

/* ---- a controller that is stopped ---- */

static void meet_before_an_answer(fl_flight_kind kind, int rank, int64_t step)
{
    (void)rank;
    (void)step;
    if (kind == FL_FLIGHT_COMMAND) { /* the leader */
        stop_here();
    }
}

/* The plan is not ready before the controller is stopped: the workers wait for its answer. */
static void prepare_late(const char *point, fl_worker_state *w)
{
    (void)w;
    if (strcmp(point, "prepare") == 0) {
        await(&((const meeting *)scenario_here()->context)->go_on);
    }
}

/* Would catch: a deadline for the controller's answer that counts while it is stopped. */
static void test_patience__waits_for_a_controller_that_was_stopped(void **state)
{
    (void)state;
    const fl_script_entry one_stage = {.step = AT_STEP, .f = -1, .k = 1, .r = 2, .m = 1};
    meeting *m = shared_memory(sizeof *m);
    scenario s = {.name = "stopped",
                  .sets = JOB_SETS(SMALL_JOB, SHORT_DEADLINES, "devices.count", "2"),
                  .script = &one_stage,
                  .n_script = 1,
                  .n_samples = 120,
                  .at_point = prepare_late,
                  .at_operation = meet_before_an_answer,
                  .context = m};
    scenario_start(&s);
    await_arrival(&s, m);
    assert_int_equal(kill(s.controller, SIGSTOP), 0);
    atomic_store(&m->go_on, true);
    nap(SLEEP_US);
    assert_int_equal(kill(s.controller, SIGCONT), 0);
    expect_end(&s, FL_OK);
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patience__waits_for_a_worker_that_is_slow),
        cmocka_unit_test(test_patience__survives_a_machine_that_slept),
        cmocka_unit_test(test_patience__waits_for_workers_that_are_stopped_together),
        cmocka_unit_test(test_patience__waits_for_them_for_fault_deadline),
        cmocka_unit_test(test_patience__waits_for_a_controller_that_was_stopped),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
