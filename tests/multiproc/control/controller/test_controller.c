/* The controller over real processes: good ones, signals, a terminal.
 * Each test names the defect that it would catch. The tests do not assert exact times. They assert
 * that every worker has ended when the controller returns, and what the controller reports. */
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/nap.h"
#include "support/runs/fake/fake_checks.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

/* ---- a good run ---- */

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text != 0; text++) {
        n += *text == '\n';
    }
    return n;
}

static void check_steps_file(const fake_run *run, int n_steps)
{
    static const char *const fields[] = {"step",     "epoch",
                                         "loss",     "grad_norm",
                                         "lr",       "generation",
                                         "f",        "k",
                                         "r",        "m",
                                         "ms",       "samples",
                                         "tokens",   "train_accuracy",
                                         "train_f1", "train_matthews"};
    enum { N_REAL = 14 }; /* the others are of counts that fake workers do not have */
    char *text = fake_read(run, "steps.jsonl"), *rest = text;
    assert_int_equal(count_lines(text), n_steps);
    for (int step = 0; step < n_steps; step++) {
        char *line = strsep(&rest, "\n");
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        assert_int_equal(json_object_size(json), sizeof fields / sizeof *fields);
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            const json_t *value = json_object_get(json, fields[i]);
            assert_true(json_is_number(value) || (i >= N_REAL && json_is_null(value)));
        }
        assert_int_equal((int)json_integer_value(json_object_get(json, "step")), step);
        /* Exact: what is read back is the very double. */
        assert_true(json_number_value(json_object_get(json, "loss")) == 1.0 / (double)(step + 1));
        json_decref(json);
    }
    free(text);
}

/* Would catch: a lost report, a wrong sum, a socket or process left behind, control characters in
 * a pipe. */
static void test_controller__runs_to_the_end(void **state)
{
    (void)state;
    static const char *const events[] = {"run.started",    "plan.chosen", "worker.ready",
                                         "worker.ready",   "run.running", "epoch.finished",
                                         "epoch.finished", "run.finished"};
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    fake_outcome outcome = play(&run);
    assert_string_equal(outcome.message, "");
    assert_int_equal(outcome.status, FL_OK);
    assert_int_equal(outcome.result.steps, 10);
    assert_int_equal(outcome.result.epochs, 2);
    double mean = 0;
    for (int step = 5; step < 10; step++) {
        mean += 1.0 / (step + 1) / 5;
    }
    assert_true(outcome.result.train_loss > mean - 1e-12 &&
                outcome.result.train_loss < mean + 1e-12);
    assert_true(outcome.result.test_accuracy == 0.75 && outcome.result.test_loss == 0.5);
    assert_true(outcome.result.seconds > 0 && outcome.result.samples_per_s > 0);
    check_steps_file(&run, 10);
    check_events_file(&run, events, sizeof events / sizeof *events);
    assert_file_contains(&run, "worker-0.log", "info worker 0: hello from worker 0");
    assert_file_contains(&run, "worker-1.log", "info worker 1: hello from worker 1");
    char *out = fake_read(&run, "stdout.txt");
    assert_contains(out, "epoch 2/2");
    assert_contains(out, "every sample of 2 epochs used once");
    assert_contains(out, "75.00 %");
    assert_contains(out, run.dir);
    assert_null(strpbrk(out, "\r\033\b"));
    free(out);
    assert_file_contains(&run, "stderr.txt", "");
    fake_clean(&run);
}

/* Would catch: a socket path over the 107 bytes that the kernel allows. */
static void test_controller__takes_a_long_run_directory(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    char parent[FOLDER_SIZE];
    make_folder(parent);
    snprintf(run.dir, sizeof run.dir, "%s/%0200d", parent, 1);
    assert_int_equal(mkdir(run.dir, 0700), 0);
    fake_outcome outcome = play(&run);
    assert_string_equal(outcome.message, "");
    assert_int_equal(outcome.result.steps, 10);
    fake_clean(&run);
    rmdir(parent);
}

/* Would catch: reports lost or reordered under load (a thousand steps a second and more). */
static void test_controller__takes_a_thousand_steps_a_second(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    run.n_samples = 20000;
    run.step_us = 100;
    fake_outcome outcome = play(&run);
    assert_string_equal(outcome.message, "");
    assert_int_equal(outcome.result.steps, 4000);
    check_steps_file(&run, 4000);
    fake_clean(&run);
}

/* Would catch: a worker or a socket left behind, or a crash, when any allocation fails; a call that
 * reports success although it failed. */
static void test_controller__survives_every_failing_allocation(void **state)
{
    (void)state;
    int n_refused = 0;
    for (uint64_t n = 1; n <= 24; n++) {
        fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
        run.fail_alloc = n;
        fake_start(&run);
        fake_outcome outcome = fake_finish(&run);
        assert_false(fake_has(&run, "link"));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
        if (outcome.status == FL_ENOMEM ||
            strstr(outcome.message, "the ledger could not be proved: allocation of ") != NULL) {
            n_refused++;
        } else if (strstr(outcome.message, "its record is incomplete") != NULL) {
            assert_int_equal(outcome.status, FL_EFAILED); /* a line of steps.jsonl */
            assert_int_equal(outcome.result.steps, 10);
        } else if (outcome.status == FL_EFAILED) { /* a worker's own n-th allocation */
            assert_contains(outcome.message, "worker ");
        } else {
            assert_string_equal(outcome.message, "");
            assert_int_equal(outcome.result.steps, 10);
        }
        fake_clean(&run);
    }
    assert_true(n_refused >= 3);
}

/* ---- signals ---- */

static fake_run endless(fake_deed deed)
{
    fake_run run = fake_run_of(deed, 0, -2);
    run.epochs = 100000;
    return run;
}

static void test_controller__stops_cleanly_after_one_interrupt(void **state)
{
    (void)state;
    static const char *const events[] = {"run.running", "run.stopping", "run.stopped"};
    fake_run run = endless(FAKE_NOTHING);
    fake_start(&run);
    assert_true(fake_await_steps(&run, 7));
    /* As a terminal does it: to the whole group. */
    kill(-run.controller, SIGINT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "stopped by the user after ");
    assert_int_equal(outcome.status, FL_ESTOPPED);
    assert_true(outcome.result.steps >= 7);
    assert_int_equal(outcome.result.steps, atomic_load(&run.shared->done[0]));
    check_steps_file(&run, (int)outcome.result.steps);
    check_events_file(&run, events, 3);
    assert_file_contains(&run, "stdout.txt", "used once");
    assert_file_contains(&run, "stdout.txt", "stopped after ");
    fake_clean(&run);
}

/* Would catch: a stop request that is lost while workers are still starting. */
static void test_controller__stops_while_it_starts(void **state)
{
    (void)state;
    fake_run run = endless(FAKE_NOTHING);
    run.who = 1;
    run.at_step = -1;
    run.waits_for_test = true;
    fake_start(&run);
    assert_true(fake_await_line(&run, "events.jsonl", "worker.ready"));
    kill(run.controller, SIGINT);
    assert_true(fake_await_line(&run, "events.jsonl", "run.stopping"));
    atomic_store(&run.shared->go_on, true);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "stopped by the user after ");
    assert_int_equal(outcome.status, FL_ESTOPPED);
    fake_clean(&run);
}

static void test_controller__stops_at_once_after_two_interrupts(void **state)
{
    (void)state;
    fake_run run = endless(FAKE_ONE_STEP_ON);
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    kill(run.controller, SIGINT);
    assert_true(fake_await_line(&run, "events.jsonl", "run.stopping"));
    kill(run.controller, SIGINT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "stopped by the user after ");
    assert_int_equal(outcome.status, FL_ESTOPPED);
    fake_clean(&run);
}

/* Would catch: a SIGTERM to the whole process group, as timeout(1) and batch systems send it, that
 * is reported as the death of a worker. */
static void test_controller__stops_cleanly_when_the_group_is_terminated(void **state)
{
    (void)state;
    fake_run run = endless(FAKE_NOTHING);
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    kill(-run.controller, SIGTERM);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "stopped by SIGTERM after ");
    assert_int_equal(outcome.status, FL_ESTOPPED);
    fake_clean(&run);
}

static void test_controller__names_a_worker_that_is_terminated(void **state)
{
    (void)state;
    pid_t pids[FAKE_WORKERS_MAX];
    fake_run run = endless(FAKE_NOTHING);
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    assert_true(fake_worker_pids(&run, pids));
    kill(pids[1], SIGTERM);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "was killed by signal 15 (Terminated)");
    assert_int_equal(outcome.status, FL_EFAILED);
    fake_clean(&run);
}

/* Would catch: orphans. */
static void test_controller__leaves_nobody_when_it_is_killed(void **state)
{
    (void)state;
    pid_t pids[FAKE_WORKERS_MAX];
    int wait_statuses[FAKE_WORKERS_MAX] = {0};
    fake_run run = endless(FAKE_NOTHING);
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    assert_true(fake_worker_pids(&run, pids));
    assert_true(fake_await_line(&run, "events.jsonl", "run.running"));
    kill(run.controller, SIGKILL);
    (void)fake_finish(&run);
    assert_true(fake_await_gone(pids, 2, wait_statuses));
    for (int i = 0; i < 2; i++) {
        assert_true(WIFSIGNALED(wait_statuses[i]) && WTERMSIG(wait_statuses[i]) == SIGKILL);
    }
    int64_t until_us = fl_deadline_us(FAKE_WAIT_MS); /* the agent removes it, at its own pace */
    while (fake_has(&run, "link") && fl_left_ms(until_us) > 0) {
        nap(1000);
    }
    assert_false(fake_has(&run, "link"));
    fake_clean(&run);
}

/* Would catch: a controller that was stopped (Ctrl-Z, a laptop's lid) and mistakes its own pause
 * for silence of its workers; workers that give up on a stopped controller. */
static void test_controller__goes_on_after_it_was_stopped(void **state)
{
    (void)state;
    fake_run run = endless(FAKE_NOTHING);
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    kill(run.controller, SIGSTOP);
    assert_true(fake_await_line(&run, "worker-0.log", "the controller has been silent for"));
    assert_true(fake_await_line(&run, "worker-1.log", "the controller has been silent for"));
    kill(run.controller, SIGCONT);
    int64_t step = atomic_load(&run.shared->done[0]);
    assert_true(fake_await_steps(&run, step + 200));
    kill(run.controller, SIGINT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "stopped by the user after ");
    assert_int_equal(outcome.status, FL_ESTOPPED);
    check_steps_file(&run, (int)atomic_load(&run.shared->done[0]));
    fake_clean(&run);
}

/* Would catch: exits taken for losses because the controller sees them before the last reports. The
 * reports fit into the kernel's buffers, so that the workers can leave. */
static void test_controller__hears_workers_that_left_while_it_was_stopped(void **state)
{
    (void)state;
    pid_t pids[FAKE_WORKERS_MAX];
    fake_run run = fake_run_of(FAKE_NOTHING, 1, 3);
    run.waits_for_test = true;
    run.epochs = 4;
    fake_start(&run);
    assert_true(fake_worker_pids(&run, pids));
    assert_true(fake_await_line(&run, "steps.jsonl", "\"step\": 2,"));
    kill(run.controller, SIGSTOP);
    atomic_store(&run.shared->go_on, true);
    assert_true(fake_await_ended(pids, 2));
    kill(run.controller, SIGCONT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_string_equal(outcome.message, "");
    assert_int_equal(outcome.result.steps, 20);
    check_steps_file(&run, 20);
    fake_clean(&run);
}

/* Would catch: reports that a worker drops because the controller does not read them while the
 * worker leaves, and no buffer of the kernel holds them all. */
static void test_controller__is_waited_for_by_workers_with_reports(void **state)
{
    (void)state;
    enum { DROPPED_MS = 1500 }; /* by then, a worker that does not wait has dropped its reports */
    fake_run run = fake_run_of(FAKE_NOTHING, 1, 3);
    run.waits_for_test = true;
    run.n_samples = 5000;
    run.batch = 1000; /* 8 kB of sample numbers a step */
    run.epochs = 40;
    fake_start(&run);
    assert_true(fake_await_line(&run, "steps.jsonl", "\"step\": 2,"));
    kill(run.controller, SIGSTOP);
    atomic_store(&run.shared->go_on, true);
    assert_true(fake_await_steps(&run, 200));
    for (int64_t until_us = fl_deadline_us(DROPPED_MS); fl_left_ms(until_us) > 0;) {
        nap(1000);
    }
    kill(run.controller, SIGCONT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_string_equal(outcome.message, "");
    assert_int_equal(outcome.result.steps, 200);
    check_steps_file(&run, 200);
    fake_clean(&run);
}

/* ---- at a terminal ---- */

/* Would catch: a live line that is wider than the terminal, or that stays when the run is over. */
static void test_controller__draws_one_live_line_at_a_terminal(void **state)
{
    (void)state;
    enum { COLUMNS = 40 };
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        skip();
    }
    setenv("TERM", "xterm", 1);
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    run.step_us = 50000;
    run.terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(run.terminal >= 0);
    struct winsize size = {.ws_row = 24, .ws_col = COLUMNS};
    ioctl(run.terminal, TIOCSWINSZ, &size);
    fake_start(&run);
    close(run.terminal);
    static char text[65536];
    size_t n = 0;
    ssize_t more;
    while (n < sizeof text - 1 && (more = read(master, text + n, sizeof text - 1 - n)) > 0) {
        n += (size_t)more;
    }
    text[n] = 0;
    fake_outcome outcome = fake_finish(&run);
    assert_string_equal(outcome.message, "");
    assert_nothing_left(&run);
    int n_live = 0;
    for (const char *at = text; (at = strchr(at, '\r')) != NULL; at++) {
        const char *end = strstr(at, "\033[K");
        if (at[1] != '\n' && end != NULL) {
            n_live++;
            assert_true(end - at - 1 < COLUMNS);
        }
    }
    assert_true(n_live > 2);
    const char *summary = strstr(text, "done after 10 of 10 steps");
    assert_non_null(summary);
    assert_null(strstr(summary, "\033"));
    close(master);
    fake_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controller__runs_to_the_end),
        cmocka_unit_test(test_controller__takes_a_long_run_directory),
        cmocka_unit_test(test_controller__takes_a_thousand_steps_a_second),
        cmocka_unit_test(test_controller__survives_every_failing_allocation),
        cmocka_unit_test(test_controller__stops_cleanly_after_one_interrupt),
        cmocka_unit_test(test_controller__stops_while_it_starts),
        cmocka_unit_test(test_controller__stops_at_once_after_two_interrupts),
        cmocka_unit_test(test_controller__stops_cleanly_when_the_group_is_terminated),
        cmocka_unit_test(test_controller__names_a_worker_that_is_terminated),
        cmocka_unit_test(test_controller__leaves_nobody_when_it_is_killed),
        cmocka_unit_test(test_controller__goes_on_after_it_was_stopped),
        cmocka_unit_test(test_controller__hears_workers_that_left_while_it_was_stopped),
        cmocka_unit_test(test_controller__is_waited_for_by_workers_with_reports),
        cmocka_unit_test(test_controller__draws_one_live_line_at_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
