/* A worker is lost while a run writes what it leaves: the last checkpoint and the trained weights.
 * Would catch: a stopped run that cannot be resumed although others had all weights; weights of a
 * layer that nobody wrote; a run that is complete, and goes back and repeats its steps. */
#include "control/checkpoint/manifest/manifest.h"
#include "device/system/alloc.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 100, STEPS = 30, STOP = 13 };

static const double TOLERANCE = 1e-5;
static double *one; /* [STEPS] losses of one worker */

#define TRAINING "train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "fault.detect", "2s"
#define REPLICAS                                                                                   \
    TRAINING, "pipe.k", "1", "pipe.m", "2", "fault.on_loss", "continue", "fault.restarts", "0",    \
        "checkpoint.every", "10min"

static void expect_whole_checkpoint(const scenario *s, int64_t step)
{
    char path[512], folder[1024];
    fl_checkpoint_folder *folders = NULL;
    fl_checkpoint *c = NULL;
    int n = 0;
    snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_FOLDER, s->dir);
    assert_int_equal(fl_checkpoint_list(path, &folders, &n), FL_OK);
    assert_int_equal(n, 1);
    assert_int_equal(folders[0].step, step);
    snprintf(folder, sizeof folder, "%s/%s", path, folders[0].name);
    assert_int_equal(fl_alloc(sizeof *c, (void **)&c), FL_OK);
    assert_int_equal(fl_checkpoint_read(folder, c), FL_OK);
    assert_int_equal(fl_checkpoint_verify(c, folder, 2), FL_OK);
    fl_checkpoint_fini(c);
    fl_free(c);
    fl_free(folders);
}

/* At most one worker dies of it, and it does so once. */
static void kill_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

static void expect_one_loss(const scenario *s)
{
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", "\"goes_on\": true"), 1);
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", ""), 0);
    assert_int_equal(count_events(s->dir, "\"checkpoint.written\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"checkpoint.failed\"", ""), 0);
}

/* "end": the others have begun to write, the worker has not. "saved": it has, and the others may
 * still write. */
static const char *const points[] = {"end", "saved"};

/* The checkpoint that the survivors leave is continued, and is that of a run without a loss. */
static void stop_with_a_loss(const char *point, int n_workers, int who)
{
    char count[8];
    int64_t n_steps;
    snprintf(count, sizeof count, "%d", n_workers);
    scenario s = {
        .name = "stopped",
        .sets = JOB_SETS(REPLICAS, "train.evaluate", "false", "devices.count", count, "autodp.r",
                         count),
        .n_samples = N_SAMPLES,
        .dropout = 0.1f,
        .at = {{.point = point, .who = who, .act = kill_this_worker},
               {.point = "step", .who = EVERYBODY, .step = STOP, .act = interrupt_after_step}}};
    scenario_start(&s);
    expect_end(&s, FL_ESTOPPED);
    json_t *steps = lines_with(s.dir, "steps.jsonl", "");
    n_steps = length(steps);
    json_decref(steps);
    assert_true(n_steps >= STOP && n_steps < STEPS);
    expect_one_loss(&s);
    expect_whole_checkpoint(&s, n_steps);
    scenario_forget(&s);
    s.at[0] = s.at[1] = (scenario_deed){.act = NULL};
    s.resumes = true;
    scenario_start(&s);
    expect_end(&s, FL_OK);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    free(losses);
    scenario_forget(&s);
    assert_int_equal(remove_folder(s.dir), 0);
}

static void test_last_checkpoint__survivors_write_it_after_a_stop(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        stop_with_a_loss(points[i], 2, 0);
        stop_with_a_loss(points[i], 2, 1);
        stop_with_a_loss(points[i], 3, 1);
    }
}

static void test_last_checkpoint__survivors_write_what_a_run_leaves(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        scenario s = {.name = "finished",
                      .sets = JOB_SETS(REPLICAS, "devices.count", "2", "autodp.r", "2"),
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f,
                      .at = {{.point = "end", .who = who, .act = kill_this_worker}}};
        scenario_start(&s);
        expect_end(&s, FL_OK);
        expect_one_loss(&s);
        expect_whole_checkpoint(&s, STEPS);
        assert_int_equal(count_events(s.dir, "\"model.saved\"", ""), 1);
        assert_int_equal(count_events(s.dir, "\"evaluation\"", "\"step\": 29,"), 1);
        scenario_forget(&s);
        assert_int_equal(remove_folder(s.dir), 0);
    }
}

/* Nobody else has the layers: the run goes back, and writes it then. */
static void test_last_checkpoint__without_an_owner_the_run_goes_back(void **state)
{
    (void)state;
    scenario s = {.name = "stages",
                  .sets = JOB_SETS(TRAINING, "pipe.k", "2", "autodp.r", "1", "pipe.m", "2",
                                   "devices.count", "2", "fault.on_loss", "continue",
                                   "checkpoint.every", "10min", "train.evaluate", "false"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "end", .who = 1, .act = kill_once}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(
        count_events(s.dir, "\"run.resumed\"", "") + count_events(s.dir, "\"run.started\"", ""), 2);
    expect_whole_checkpoint(&s, STEPS);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    free(losses);
    scenario_forget(&s);
}

/* The other one has met this worker at the end, and its process is gone. */
static void kill_as_the_last(fl_worker_state *w)
{
    pid_t other = atomic_load(&scenario_here()->outcome->pid[1 - w->rank]);
    while (kill(other, 0) == 0 || errno != ESRCH) {
        nap(2000);
    }
    kill_this_worker(w);
}

static void test_last_checkpoint__a_complete_run_does_not_go_back(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        scenario s = {.name = "complete",
                      .sets = JOB_SETS(REPLICAS, "devices.count", "2", "autodp.r", "2"),
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f,
                      .at = {{.point = "met", .who = who, .act = kill_as_the_last}}};
        scenario_start(&s);
        expect_end(&s, FL_OK);
        expect_one_loss(&s);
        expect_whole_checkpoint(&s, STEPS);
        assert_int_equal(count_events(s.dir, "\"model.saved\"", ""), 1);
        scenario_forget(&s);
        assert_int_equal(remove_folder(s.dir), 0);
    }
}

/* The letter of a process's state in /proc; 'Z' if there is none. */
static char state_of(pid_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    const char *end =
        file != NULL && fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
    char letter = end == NULL ? 'Z' : end[2];
    if (file != NULL) {
        fclose(file);
    }
    return letter;
}

/* As a busy controller, which reads the last report of the workers only after the second signal:
 * the worker has not sent it yet. */
static void hold_the_controller(fl_worker_state *w)
{
    (void)w;
    kill(controller_here(), SIGSTOP);
    while (state_of(controller_here()) != 'T') {
        nap(1000);
    }
}

static void await_both_ended(const scenario *s)
{
    for (int rank = 0; rank < 2; rank++) {
        pid_t pid;
        while ((pid = atomic_load(&s->outcome->pid[rank])) == 0 || state_of(pid) != 'Z') {
            nap(2000);
        }
    }
}

/* Would catch: a checkpoint that is written after the second Ctrl-C, because all its parts are
 * there. */
static void test_last_checkpoint__a_second_signal_ends_the_run_without_it(void **state)
{
    (void)state;
    scenario s = {
        .name = "hurried",
        .sets =
            JOB_SETS(REPLICAS, "train.evaluate", "false", "devices.count", "2", "autodp.r", "2"),
        .more = JOB_SETS("fault.detect", "20s"),
        .n_samples = N_SAMPLES,
        .at = {{.point = "part", .who = 1, .act = hold_the_controller},
               {.point = "step", .who = EVERYBODY, .step = STOP, .act = interrupt_after_step}}};
    scenario_start(&s);
    await_both_ended(&s);
    kill(s.controller, SIGINT);
    kill(s.controller, SIGCONT);
    expect_end(&s, FL_ESTOPPED);
    assert_int_equal(count_events(s.dir, "\"checkpoint.written\"", ""), 0);
    assert_int_equal(count_events(s.dir, "\"checkpoint.failed\"", "a second signal"), 1);
    scenario_forget(&s);
}

static void interrupt_and_stay(fl_worker_state *w)
{
    (void)w;
    kill(controller_here(), SIGINT);
    for (;;) {
        nap(10000); /* until it is killed */
    }
}

/* Would catch: a run that ends without its last checkpoint and does not say so, because no worker
 * had begun its part. */
static void test_last_checkpoint__a_second_signal_before_any_part_is_told(void **state)
{
    (void)state;
    scenario s = {
        .name = "early",
        .sets = JOB_SETS(REPLICAS, "devices.count", "2", "autodp.r", "2"),
        .n_samples = N_SAMPLES,
        .at = {{.point = "end", .who = EVERYBODY, .act = interrupt_and_stay},
               {.point = "step", .who = EVERYBODY, .step = STOP, .act = interrupt_after_step}}};
    scenario_start(&s);
    expect_end(&s, FL_ESTOPPED);
    assert_int_equal(count_events(s.dir, "\"checkpoint.written\"", ""), 0);
    assert_int_equal(count_events(s.dir, "\"checkpoint.failed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"checkpoint.failed\"", "a second signal"), 1);
    scenario_forget(&s);
}

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    one = losses_of_one(JOB_SETS(TRAINING, "train.evaluate", "false"), N_SAMPLES, STEPS);
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
        cmocka_unit_test(test_last_checkpoint__survivors_write_it_after_a_stop),
        cmocka_unit_test(test_last_checkpoint__survivors_write_what_a_run_leaves),
        cmocka_unit_test(test_last_checkpoint__without_an_owner_the_run_goes_back),
        cmocka_unit_test(test_last_checkpoint__a_complete_run_does_not_go_back),
        cmocka_unit_test(test_last_checkpoint__a_second_signal_ends_the_run_without_it),
        cmocka_unit_test(test_last_checkpoint__a_second_signal_before_any_part_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
