/* What becomes of the checkpoints of a run when something goes wrong: a full disk, a lost worker, a
 * lost controller, a signal. Would catch: a run that ends because of a checkpoint, an older
 * checkpoint that is lost, and a run that leaves none. */
#include "control/checkpoint/manifest/manifest.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/run_checkpoints.h"
#include "support/runs/scenario.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* From here on this worker can write files of at most one page, as on a disk that is full. */
static void limit_files(fl_worker_state *w)
{
    (void)w;
    struct rlimit limit = {.rlim_cur = 512, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void lift_limit(fl_worker_state *w)
{
    (void)w;
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void test_checkpoint_faults__a_full_disk_costs_one_checkpoint(void **state)
{
    (void)state;
    fl_checkpoint_folder *folders = NULL;
    scenario s = {.name = "full",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "40", "checkpoint.every", "100 steps",
                                   "checkpoint.keep", "9", "devices.count", "2", "pipe.k", "2",
                                   "autodp.r", "1"),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "step", .who = 1, .step = 150, .act = limit_files},
                         {.point = "step", .who = 1, .step = 700, .act = lift_limit}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    int n = check_all_checkpoints(s.dir, &folders);
    assert_true(n >= 2);
    assert_int_equal(folders[0].step, 40 * PER_EPOCH);
    assert_true(folders[n - 1].step <= 150);
    for (int i = 0; i < n; i++) {
        assert_true(folders[i].step <= 150 || folders[i].step >= 700);
    }
    assert_true(count_events(s.dir, "checkpoint.failed", "worker 1") > 0);
    fl_free(folders);
    scenario_forget(&s);
}

static void once_one_is_kept(fl_worker_state *w, void (*die)(fl_worker_state *w))
{
    int64_t deadline_us = fl_deadline_us(60000);
    while (atomic_load(w->c->store->kept_step) < 0 && fl_left_ms(deadline_us) > 0) {
        nap(1000);
    }
    die(w);
}

static void kill_worker_later(fl_worker_state *w)
{
    once_one_is_kept(w, kill_this_worker);
}

static void kill_controller_later(fl_worker_state *w)
{
    once_one_is_kept(w, kill_the_controller);
}

static void test_checkpoint_faults__survive_a_lost_worker_and_a_lost_controller(void **state)
{
    (void)state;
    static void (*const acts[])(fl_worker_state * w) = {kill_worker_later, kill_controller_later};
    for (int i = 0; i < 2; i++) {
        fl_checkpoint_folder *folders = NULL;
        char checkpoints[512];
        int n = 0;
        scenario s = {.name = i == 0 ? "worker" : "controller",
                      .sets =
                          JOB_SETS(TRAINING, "train.epochs", "900", "checkpoint.every", "5 steps",
                                   "devices.count", "2", "pipe.k", "1", "autodp.r", "2"),
                      .n_samples = N_SAMPLES,
                      .at = {{.point = "step", .who = 1, .step = 1501, .act = acts[i]}}};
        scenario_start(&s);
        if (i == 0) {
            expect_lost(&s, 1, "was killed by signal 9");
            assert_true(check_all_checkpoints(s.dir, &folders) >
                        0); /* what was not whole is gone */
        } else {
            expect_beheaded(&s);
            run_file_path(checkpoints, s.dir, FL_CHECKPOINT_FOLDER);
            assert_int_equal(fl_checkpoint_list(checkpoints, &folders, &n), FL_OK);
            assert_true(n > 0 && n <= 4);
            for (int k = 0; k < n; k++) {
                if (!folders[k].whole) { /* it was being written, or removed */
                    char folder[1024];
                    snprintf(folder, sizeof folder, "%s/%s", checkpoints, folders[k].name);
                    assert_int_equal(remove_folder(folder), 0);
                }
            }
            fl_free(folders);
            assert_true(check_all_checkpoints(s.dir, &folders) > 0);
        }
        fl_free(folders);
        scenario_forget(&s);
    }
}

/* A run that is stopped leaves a checkpoint of its last step, and no older one is lost for it. */
static void test_checkpoint_faults__a_stopped_run_leaves_one(void **state)
{
    (void)state;
    fl_checkpoint_folder *folders = NULL;
    scenario s = {.name = "stopped",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "900", "checkpoint.every", "10min",
                                   "devices.count", "2"),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "step", .who = 0, .step = 33, .act = interrupt_the_run}}};
    scenario_start(&s);
    expect_end(&s, FL_ESTOPPED);
    assert_int_equal(check_all_checkpoints(s.dir, &folders), 1);
    json_t *steps = lines_with(s.dir, "steps.jsonl", "");
    assert_int_equal(folders[0].step, length(steps));
    assert_true(folders[0].step >= 33);
    json_decref(steps);
    fl_free(folders);
    scenario_forget(&s);
}

/* A batch system's way to end a run: its exit code says that it can be continued. */
static void test_checkpoint_faults__sigterm_leaves_one_and_has_a_code_of_its_own(void **state)
{
    (void)state;
    static output result;
    fl_checkpoint_folder *folders = NULL;
    char command[2048], dir[FOLDER_SIZE + 8];
    if (access(FL_TEST_FASHION "/train-images-idx3-ubyte", R_OK) != 0) {
        skip();
    }
    snprintf(dir, sizeof dir, "%s/run", root);
    for (int interrupted = 0; interrupted <= 1; interrupted++) {
        snprintf(command, sizeof command,
                 "echo '{model: {blocks: 1, dim: 16, heads: 2, patch: 14}, data: {samples: 2000, "
                 "path: " FL_TEST_FASHION "}, train: {epochs: 9000, batch: 20}, "
                 "devices: {count: 2}, pipe: {profile: none}}' >job.yaml && rm -rf run && "
                 "{ %s/frostline run job.yaml --run-dir run & } && "
                 "while ! grep -qs '\"step\": 50,' run/steps.jsonl; do sleep 0.05; done && "
                 "kill -s %s $! && wait $!",
                 FL_BINARY_DIR, interrupted == 0 ? "TERM" : "INT");
        run_command(root, command, &result);
        assert_string_equal(result.err, "");
        assert_int_equal(result.exit_code, interrupted == 0 ? 5 : 130);
        assert_int_equal(check_all_checkpoints(dir, &folders), 1);
        assert_true(folders[0].step > 50);
        fl_free(folders);
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_checkpoint_faults__##name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_costs_one_checkpoint),
        TEST(survive_a_lost_worker_and_a_lost_controller),
        TEST(a_stopped_run_leaves_one),
        TEST(sigterm_leaves_one_and_has_a_code_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
