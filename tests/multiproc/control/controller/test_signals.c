/* Signals to the controller of a run: each that would end a process either stops the run as Ctrl-C
 * does, or does nothing. None leaves workers or socket files. */
#include "autodp/ledger.h"
#include "support/nap.h"
#include "support/runs/fake/fake_checks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

static fake_run endless(void)
{
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    run.epochs = 100000;
    return run;
}

static void test_signals__that_ask_for_the_end_stop_the_run(void **state)
{
    (void)state;
    static const int numbers[] = {SIGHUP, SIGQUIT, SIGXCPU, SIGPWR};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fake_run run = endless();
        fake_start(&run);
        assert_true(fake_await_steps(&run, 3));
        kill(numbers[i] == SIGQUIT ? -run.controller : run.controller,
             numbers[i]); /* as a terminal does it */
        fake_outcome outcome = fake_finish(&run);
        assert_nothing_left(&run);
        assert_int_equal(outcome.status, FL_ESTOPPED);
        assert_file_contains(&run, "summary.txt", "\nstopped after ");
        assert_false(fake_has(&run, "control.sock"));
        fake_clean(&run);
    }
}

/* Would catch: an end record in the ledger of workers that were killed. Some of their records may
 * be missing, and a ledger with an end then reads as broken although the run used every sample
 * once. Both signals arrive in one turn of the loop, so the workers cannot leave in between. */
static void test_signals__two_at_once_leave_an_incomplete_ledger(void **state)
{
    (void)state;
    char path[sizeof((fake_run *)0)->dir + 16];
    int wait_status;
    fl_ledger_proof proof;
    fake_run run = endless();
    fake_start(&run);
    assert_true(fake_await_steps(&run, 8)); /* of 5 an epoch */
    kill(run.controller, SIGSTOP);
    assert_int_equal(waitpid(run.controller, &wait_status, WUNTRACED), run.controller);
    kill(run.controller, SIGINT);
    kill(run.controller, SIGTERM);
    kill(run.controller, SIGCONT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_int_equal(outcome.status, FL_ESTOPPED);
    snprintf(path, sizeof path, "%s/ledger.bin", run.dir);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_false(proof.has_end);
    assert_int_equal(fl_ledger_judge(&proof), FL_LEDGER_INCOMPLETE);
    fl_ledger_proof_fini(&proof);
    assert_file_contains(&run, "summary.txt", "incomplete record");
    fake_clean(&run);
}

/* Would catch: SIGTERM as timeout(1) sends it, to the controller and at once to its process group,
 * that is taken for two requests, of which the second kills the workers with their records. */
static void test_signals__of_a_timeout_are_one_request(void **state)
{
    (void)state;
    char path[256];
    fl_ledger_proof proof;
    fake_run run = endless();
    fake_start(&run);
    assert_true(fake_await_steps(&run, 8));
    kill(run.controller, SIGTERM);
    nap(2000); /* otherwise the kernel makes one of them */
    kill(-run.controller, SIGTERM);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_int_equal(outcome.status, FL_ESTOPPED);
    snprintf(path, sizeof path, "%s/ledger.bin", run.dir);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_true(proof.has_end);
    fl_ledger_proof_fini(&proof);
    fake_clean(&run);
}

/* Would catch: a controller that SIGUSR1 ends, leaving the run's sockets behind. Batch systems send
 * SIGUSR1 shortly before the time limit. */
static void test_signals__that_ask_for_nothing_do_nothing(void **state)
{
    (void)state;
    const int numbers[] = {SIGUSR1, SIGUSR2, SIGALRM,   SIGVTALRM, SIGPROF,      SIGIO,
                           SIGPIPE, SIGXFSZ, SIGSTKFLT, SIGRTMIN,  SIGRTMIN + 7, SIGRTMAX};
    fake_run run = endless();
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        kill(run.controller, numbers[i]);
    }
    assert_true(fake_await_line(&run, "stderr.txt", "ignored signal 10 (User defined signal 1)"));
    assert_true(fake_await_steps(&run, atomic_load(&run.shared->done[0]) + 3));
    kill(run.controller, SIGTERM);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_int_equal(outcome.status, FL_ESTOPPED);
    assert_false(fake_has(&run, "control.sock"));
    assert_false(fake_has(&run, "events.sock"));
    fake_clean(&run);
}

/* In a worker such a signal has its usual effect, and the run names it. */
static void test_signals__to_a_worker_are_named(void **state)
{
    (void)state;
    pid_t pids[FAKE_WORKERS_MAX];
    fake_run run = endless();
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    assert_true(fake_worker_pids(&run, pids));
    kill(pids[1], SIGUSR1);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_int_equal(outcome.status, FL_EFAILED);
    assert_contains(outcome.message, "was killed by signal 10 (User defined signal 1)");
    fake_clean(&run);
}

/* Would catch: a standby worker that begins to listen after the stop, and is never woken for it. */
static void test_signals__stop_a_standby_worker_that_listens_late(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_LATE_LINK, 2, -1);
    run.n_workers = 3;
    run.epochs = 100000;
    run.waits_for_test = true;
    fake_start(&run);
    assert_true(fake_await_line(&run, "steps.jsonl", "\"step\": 0,"));
    kill(run.controller, SIGINT);
    assert_true(fake_await_line(&run, "events.jsonl", "run.stopping"));
    atomic_store(&run.shared->go_on, true);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_int_equal(outcome.status, FL_ESTOPPED);
    assert_file_contains(&run, "worker-2.log", "the controller woke this standby worker");
    fake_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals__that_ask_for_the_end_stop_the_run),
        cmocka_unit_test(test_signals__two_at_once_leave_an_incomplete_ledger),
        cmocka_unit_test(test_signals__of_a_timeout_are_one_request),
        cmocka_unit_test(test_signals__that_ask_for_nothing_do_nothing),
        cmocka_unit_test(test_signals__to_a_worker_are_named),
        cmocka_unit_test(test_signals__stop_a_standby_worker_that_listens_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
