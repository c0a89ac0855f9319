/* The controller over real processes that die, stop, hang and lie: what it says of whom. Each test
 * says what it would catch; exact times are not asserted. */
#include "device/system/clock.h"
#include "support/nap.h"
#include "support/runs/fake/fake_checks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The deed is held back until the controller has heard of the step before it: what a process that
 * dies or stops had not yet said is lost, and rightly so. */
static fake_outcome lose(fake_run *run)
{
    static const char *const events[] = {"run.started", "worker.lost", "run.failed"};
    char step[32];
    snprintf(step, sizeof step, "\"step\": %d,", (int)run->at_step - 1);
    run->waits_for_test = run->at_step > 0;
    fake_start(run);
    if (run->waits_for_test) {
        assert_true(fake_await_line(run, "steps.jsonl", step));
        atomic_store(&run->shared->go_on, true);
    }
    fake_outcome outcome = fake_finish(run);
    assert_nothing_left(run);
    assert_int_equal(outcome.status, FL_EFAILED);
    check_events_file(run, events, 3);
    return outcome;
}

/* The message of a run that ends because worker `who` does this. */
static void expect_loss(fake_deed deed, int who, int64_t at_step, const char *part)
{
    fake_run run = fake_run_of(deed, who, at_step);
    fake_outcome outcome = lose(&run);
    assert_contains(outcome.message, part);
    fake_clean(&run);
}

static void test_controller_losses__names_a_worker_that_exits(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_EXIT, 1, 3);
    fake_outcome outcome = lose(&run);
    assert_contains(outcome.message, "worker 1 (stage 1 of replica 0) ended without finishing "
                                     "(exit code 3) at step 3; last lines of ");
    assert_contains(outcome.message, "worker-1.log:\n");
    assert_contains(outcome.message, "the last words of worker 1");
    assert_int_equal(outcome.result.steps, 3);
    fake_clean(&run);
}

static void test_controller_losses__names_a_worker_that_segfaults(void **state)
{
    (void)state;
    expect_loss(FAKE_SEGFAULT, 0, 4,
                "worker 0 (stage 0 of replica 0) was killed by signal 11 "
                "(Segmentation fault) at step 4");
}

/* Would catch: waiting for a worker that died before it had a link, or before it was ready. */
static void test_controller_losses__names_a_worker_that_dies_before_it_is_ready(void **state)
{
    (void)state;
    expect_loss(FAKE_SEGFAULT, 1, -1, "(Segmentation fault) while it started");
}

/* Would catch: a detector that needs the worker's exit, and a SIGTERM sent to a stopped process. */
static void test_controller_losses__notices_a_stopped_worker(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_STOP, 1, 2);
    fake_outcome outcome = lose(&run);
    assert_contains(outcome.message, "worker 1 (stage 1 of replica 0) did not answer for ");
    /* As of its last heartbeat: step, or starting on a busy machine. */
    assert_contains(outcome.message, "(it was in: st");
    fake_clean(&run);
}

/* Would catch: the limit between two heartbeats applied to a worker that has not sent the first. */
static void test_controller_losses__waits_for_a_worker_that_opens_its_link_late(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_LATE_LINK, 1, -1);
    run.waits_for_test = true;
    fake_start(&run);
    int64_t until_us = fl_deadline_us(2 * run.detect_ms);
    while (fl_left_ms(until_us) > 0) {
        nap(1000);
    }
    atomic_store(&run.shared->go_on, true);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_string_equal(outcome.message, "");
    assert_int_equal(outcome.result.steps, 10);
    fake_clean(&run);
}

static void test_controller_losses__notices_a_worker_that_closes_its_link(void **state)
{
    (void)state;
    expect_loss(FAKE_CLOSE, 0, 2, "worker 0 (stage 0 of replica 0) did not answer for ");
}

/* Would catch: exit code 0 taken for success. */
static void test_controller_losses__notices_a_worker_that_leaves_early(void **state)
{
    (void)state;
    expect_loss(FAKE_LEAVE, 1, 2, "ended without finishing (exit code 0) at step 2");
}

static void test_controller_losses__repeats_what_a_worker_reports(void **state)
{
    (void)state;
    expect_loss(FAKE_REPORT, 1, 2,
                "worker 1 (stage 1 of replica 0) reported: the disk \"sda\"\n "
                "is on fire at step 2");
}

/* Would catch: a report that is dropped, so that the others wait for what it would have brought
 * until a deadline, and a message that names neither the worker nor the report. */
static void test_controller_losses__ends_a_worker_whose_report_cannot_be(void **state)
{
    (void)state;
    expect_loss(FAKE_LIE, 1, 2,
                "worker 1 (stage 1 of replica 0) sent a message that the controller cannot read (a "
                "frame of type 5 (time) with 48 bytes has another length, or a value that is out "
                "of range) at step ");
}

/* Would catch: naming a survivor, which only reports a lost peer, instead of the lost worker. */
static void test_controller_losses__names_the_cause_and_not_its_consequences(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_DIE_LATE, 2, 3);
    run.n_workers = run.k = 3;
    fake_outcome outcome = lose(&run);
    assert_contains(outcome.message,
                    "worker 2 (stage 2 of replica 0) was killed by signal 9 (Killed) at step 3");
    fake_clean(&run);
}

/* Would catch: missing a deadlocked worker because its link thread still answers. */
static void test_controller_losses__names_the_worker_that_others_wait_for(void **state)
{
    (void)state;
    expect_loss(FAKE_HANG, 1, 3,
                "worker 1 (stage 1 of replica 0) is alive, but others "
                "waited for it in vain (it is in: counting sheep)");
}

/* Would catch: a run that hangs at its end. All steps are done, so the run has succeeded. */
static void test_controller_losses__ends_a_worker_that_does_not_leave(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_DONE_STAYS, 1, 0);
    fake_outcome outcome = play(&run);
    assert_string_equal(outcome.message, "");
    assert_file_contains(&run, "stderr.txt", "killed worker 1: it did not exit in time");
    fake_clean(&run);
}

/* ---- the agent ---- */

/* Starts an endless run; the process of its agent, which is neither the controller nor the test. */
static pid_t start_and_find_agent(fake_run *run, pid_t *pids)
{
    run->n_samples = 100000000;
    fake_start(run);
    assert_true(fake_await_steps(run, 3));
    assert_true(fake_worker_pids(run, pids));
    pid_t agent = fake_agent_pid(pids[0]);
    assert_true(agent > 1 && agent != run->controller && agent != getpid());
    assert_int_equal(fake_agent_pid(pids[1]), agent);
    assert_int_equal(fake_agent_pid(agent), run->controller);
    return agent;
}

/* Would catch: a run that goes on, hangs or leaves workers behind when its agent dies, and a
 * message that blames a worker. */
static void test_controller_losses__ends_the_run_without_its_agent(void **state)
{
    (void)state;
    static const char *const events[] = {"agent.lost", "run.failed"};
    pid_t pids[FAKE_WORKERS_MAX];
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    pid_t agent = start_and_find_agent(&run, pids);
    kill(agent, SIGKILL);
    fake_outcome outcome = fake_finish(&run);
    assert_true(fake_await_gone(pids, 2, NULL));
    assert_int_equal(outcome.status, FL_EFAILED);
    assert_string_equal(outcome.message,
                        "the agent, the parent of the workers, was killed by signal 9 (Killed), "
                        "and the workers ended with it");
    char *text = fake_read(&run, "events.jsonl"), *at = text;
    assert_null(strstr(text, "worker.lost"));
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        at = strstr(at, events[i]);
        assert_non_null(at);
    }
    free(text);
    fake_clean(&run);
}

/* Would catch: workers that are taken for lost, or a controller that waits, while the agent does
 * not run; a worker's death that is forgotten. */
static void test_controller_losses__goes_on_while_its_agent_is_stopped(void **state)
{
    (void)state;
    enum { STOPPED_MS = 4000 }; /* longer than fault.detect */
    pid_t pids[FAKE_WORKERS_MAX];
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    pid_t agent = start_and_find_agent(&run, pids);
    kill(agent, SIGSTOP);
    int64_t step = atomic_load(&run.shared->done[0]);
    for (int64_t until_us = fl_deadline_us(STOPPED_MS); fl_left_ms(until_us) > 0;) {
        nap(1000);
    }
    assert_true(atomic_load(&run.shared->done[0]) > step + 100); /* the run goes on meanwhile */
    assert_int_equal(waitpid(run.controller, NULL, WNOHANG), 0);
    kill(agent, SIGCONT);
    assert_true(fake_await_steps(&run, atomic_load(&run.shared->done[0]) + 100));
    kill(agent, SIGSTOP);
    kill(pids[1], SIGKILL);
    assert_true(fake_await_ended(&pids[1], 1));
    kill(agent, SIGCONT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "worker 1 (stage 1 of replica 0) was killed by signal 9");
    assert_int_equal(outcome.status, FL_EFAILED);
    fake_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controller_losses__names_a_worker_that_exits),
        cmocka_unit_test(test_controller_losses__names_a_worker_that_segfaults),
        cmocka_unit_test(test_controller_losses__names_a_worker_that_dies_before_it_is_ready),
        cmocka_unit_test(test_controller_losses__notices_a_stopped_worker),
        cmocka_unit_test(test_controller_losses__waits_for_a_worker_that_opens_its_link_late),
        cmocka_unit_test(test_controller_losses__notices_a_worker_that_closes_its_link),
        cmocka_unit_test(test_controller_losses__notices_a_worker_that_leaves_early),
        cmocka_unit_test(test_controller_losses__repeats_what_a_worker_reports),
        cmocka_unit_test(test_controller_losses__ends_a_worker_whose_report_cannot_be),
        cmocka_unit_test(test_controller_losses__names_the_cause_and_not_its_consequences),
        cmocka_unit_test(test_controller_losses__names_the_worker_that_others_wait_for),
        cmocka_unit_test(test_controller_losses__ends_a_worker_that_does_not_leave),
        cmocka_unit_test(test_controller_losses__ends_the_run_without_its_agent),
        cmocka_unit_test(test_controller_losses__goes_on_while_its_agent_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
