/* The checkpoints that runs write: when, and what is in them. Would catch: a checkpoint that is not
 * whole; one of a state that no run had; a run that ends, hangs or stands still because of a
 * checkpoint; an older checkpoint that is lost. */
#include "control/checkpoint/manifest/manifest.h"
#include "device/system/alloc.h"
#include "support/lines.h"
#include "support/runs/live_run.h"
#include "support/runs/run_checkpoints.h"
#include "support/shell.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ENDLESS TRAINING, "train.epochs", "9000", "train.evaluate", "false"

/* ---- what is on the disk ---- */

static void read_checkpoint(const char *dir, int64_t step, fl_checkpoint **out)
{
    char folder[512], name[FL_CHECKPOINT_NAME_MAX];
    snprintf(folder, sizeof folder, "%s/checkpoints/%s", dir,
             fl_checkpoint_folder_name(step, name));
    assert_int_equal(fl_alloc(sizeof **out, (void **)out), FL_OK);
    assert_int_equal(fl_checkpoint_read(folder, *out), FL_OK);
}

static void free_checkpoint(fl_checkpoint *c)
{
    fl_checkpoint_fini(c);
    fl_free(c);
}

static ino_t inode_of(const char *dir, int64_t step, const char *file)
{
    struct stat st;
    char path[512], name[FL_CHECKPOINT_NAME_MAX];
    snprintf(path, sizeof path, "%s/checkpoints/%s/%s", dir, fl_checkpoint_folder_name(step, name),
             file);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

/* ---- the schedule ---- */

static void test_checkpoints__come_at_their_interval_and_at_the_end(void **state)
{
    (void)state;
    fl_checkpoint_folder *folders = NULL;
    fl_checkpoint *c = NULL;
    scenario s = {.name = "interval",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "100", "checkpoint.every", "1 epoch",
                                   "checkpoint.keep", "3", "devices.count", "2", "pipe.k", "2",
                                   "autodp.r", "1"),
                  .n_samples = N_SAMPLES};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    /* A slow disk may take the run's whole time for one of them. */
    int n_written = count_events(s.dir, "checkpoint.written", "");
    assert_true(n_written >= 2);
    assert_int_equal(check_all_checkpoints(s.dir, &folders), n_written < 3 ? n_written : 3);
    assert_int_equal(folders[0].step, 100 * PER_EPOCH);
    fl_free(folders);
    assert_int_equal(count_events(s.dir, "checkpoint.failed", ""), 0);
    read_checkpoint(s.dir, 100 * PER_EPOCH, &c);
    assert_int_equal(c->cursor.epoch, 100);
    assert_int_equal(c->cursor.position, 0);
    assert_int_equal(c->controller.stats.samples, 100 * N_SAMPLES);
    assert_int_equal(c->data.n_samples, N_SAMPLES);
    assert_non_null(strstr(c->job, "every: 1 epoch"));
    free_checkpoint(c);
    scenario_forget(&s);
}

static void test_checkpoints__none_means_none(void **state)
{
    (void)state;
    char path[512];
    scenario s = {.name = "none",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "2", "checkpoint.every", "none"),
                  .n_samples = N_SAMPLES};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    run_file_path(path, s.dir, FL_CHECKPOINT_FOLDER);
    assert_int_not_equal(access(path, F_OK), 0);
    scenario_forget(&s);
}

/* A folder elsewhere, which several runs may share; the run directory links to it. */
static void test_checkpoints__may_lie_elsewhere(void **state)
{
    (void)state;
    char elsewhere[FOLDER_SIZE], path[512];
    fl_checkpoint_folder *folders = NULL;
    make_folder(elsewhere);
    snprintf(path, sizeof path, "%s/deep", elsewhere);
    scenario s = {.name = "elsewhere",
                  .sets = JOB_SETS(TRAINING, "train.epochs", "1", "checkpoint.every", "10min",
                                   "checkpoint.dir", path),
                  .n_samples = N_SAMPLES};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(check_all_checkpoints(s.dir, &folders), 1);
    fl_free(folders);
    snprintf(path, sizeof path, "%s/deep/elsewhere/step-%09d/manifest.json", elsewhere, PER_EPOCH);
    assert_int_equal(access(path, F_OK), 0);
    scenario_forget(&s);
    assert_int_equal(remove_folder(elsewhere), 0);
}

/* ---- on request ---- */

/* Ask, and check the reply: the step. */
static int64_t ask_checkpoint(live_run *run)
{
    char folder[512], name[FL_CHECKPOINT_NAME_MAX];
    json_t *result = live_ask(run, "checkpoint", "{}");
    int64_t step = (int64_t)json_integer_value(json_object_get(result, "step"));
    fl_checkpoint *c = NULL;
    snprintf(folder, sizeof folder, "%s/checkpoints/%s", run->dir,
             fl_checkpoint_folder_name(step, name));
    const char *path = json_string_value(json_object_get(result, "path"));
    assert_non_null(strstr(path, name));
    assert_true(json_integer_value(json_object_get(result, "bytes")) +
                    json_integer_value(json_object_get(result, "linked_bytes")) >
                0);
    read_checkpoint(run->dir, step, &c);
    fl_status status = fl_checkpoint_verify(c, folder, 2);
    assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
    free_checkpoint(c);
    json_decref(result);
    return step;
}

static void finish(live_run *run)
{
    fl_checkpoint_folder *folders = NULL;
    json_decref(live_ask(run, "stop", "{}"));
    assert_int_equal(live_finish(run), FL_ESTOPPED);
    live_check_ledger(run);
    check_all_checkpoints(run->dir, &folders);
    fl_free(folders);
    live_clean(run);
}

static void test_checkpoints__are_written_on_request_and_while_paused(void **state)
{
    (void)state;
    live_run run =
        live_start((const char *const[]){ENDLESS, "devices.count", "3", "pipe.k", "2", "autodp.r",
                                         "1", "checkpoint.every", "none", NULL});
    int64_t first = ask_checkpoint(&run);
    assert_true(ask_checkpoint(&run) > first);
    json_decref(live_ask(&run, "pause", "{}"));
    int64_t paused = live_status(&run, "step");
    assert_int_equal(ask_checkpoint(&run), paused);
    assert_int_equal(live_status(&run, "step"), paused);
    assert_int_equal(ask_checkpoint(&run), paused); /* nothing has changed: the one that is there */
    json_decref(live_ask(&run, "set", "{\"field\": \"train.lr\", \"value\": 0.0002}"));
    live_refused(&run, "checkpoint", "{}", "refused");
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    json_decref(live_ask(&run, "resume", "{}"));
    live_await_step(&run, paused + 20);
    assert_true(ask_checkpoint(&run) > paused);
    finish(&run);
}

/* Would catch: a request that waits for the step of a scheduled checkpoint that the pause put off.
 */
static void test_checkpoints__are_written_at_any_pause(void **state)
{
    (void)state;
    live_run run =
        live_start((const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2", "autodp.r",
                                         "1", "checkpoint.every", "25 steps", NULL});
    for (int i = 0; i < 6; i++) {
        live_await_step(&run, live_status(&run, "step") + 10 + 7 * i);
        json_decref(live_ask(&run, "pause", "{}"));
        assert_int_equal(ask_checkpoint(&run), live_status(&run, "step"));
        json_decref(live_ask(&run, "resume", "{}"));
    }
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    finish(&run);
}

/* An old checkpoint can be deleted at any time, also the newest one, with frozen layers. */
static void test_checkpoints__go_on_after_the_newest_was_deleted(void **state)
{
    (void)state;
    char command[512], name[FL_CHECKPOINT_NAME_MAX];
    live_run run =
        live_start((const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2", "autodp.r",
                                         "1", "checkpoint.every", "none", NULL});
    live_await_step(&run, 5);
    json_decref(live_ask(&run, "freeze", "{\"blocks\": 2}"));
    for (int i = 0; i < 2; i++) {
        int64_t step = ask_checkpoint(&run);
        snprintf(command, sizeof command, "rm -r %s/checkpoints/%s", run.dir,
                 fl_checkpoint_folder_name(step, name));
        assert_int_equal(system(command), 0);
    }
    ask_checkpoint(&run);
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    finish(&run);
}

/* One bad byte of a frozen layer's file costs the checkpoint that has it, and none after it. */
static void test_checkpoints__inherit_no_damage(void **state)
{
    (void)state;
    char path[512], name[FL_CHECKPOINT_NAME_MAX];
    live_run run =
        live_start((const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2", "autodp.r",
                                         "1", "checkpoint.every", "none", NULL});
    live_await_step(&run, 5);
    json_decref(live_ask(&run, "freeze", "{\"blocks\": 2}"));
    int64_t first = ask_checkpoint(&run);
    snprintf(path, sizeof path, "%s/checkpoints/%s/weights-001.safetensors", run.dir,
             fl_checkpoint_folder_name(first, name));
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 601), 1);
    close(fd);
    int64_t second = ask_checkpoint(&run); /* verifies its files */
    assert_true(second > first);
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    snprintf(path, sizeof path, "rm -r %s/checkpoints/%s", run.dir, name);
    assert_int_equal(system(path), 0); /* finish checks all that are left */
    finish(&run);
}

/* Where a file of the run is gone, no checkpoint can be resumed from, and a request is refused. A
 * pipe in its place fails checkpoints, and holds up neither them nor the end. */
static void test_checkpoints__wait_for_no_pipe(void **state)
{
    (void)state;
    char path[512];
    live_run run = live_start(
        (const char *const[]){ENDLESS, "devices.count", "2", "checkpoint.every", "none", NULL});
    live_await_step(&run, 5);
    run_file_path(path, run.dir, "ledger.bin");
    assert_int_equal(unlink(path), 0);
    live_refused(&run, "checkpoint", "{}", "refused");
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    live_refused(&run, "checkpoint", "{}", "refused");
    assert_true(count_events(run.dir, "checkpoint.failed", "ledger.bin: not a regular file") > 0);
    json_decref(live_ask(&run, "stop", "{}"));
    (void)live_finish(&run);
    live_clean(&run);
}

/* Requests and plan changes in turn: with standby workers, another leader, workers that leave. The
 * run keeps all checkpoints: none is removed while it is verified, and each is verified in the end.
 */
static void test_checkpoints__agree_with_changes_of_the_plan(void **state)
{
    (void)state;
    static const char *const scales[] = {"{\"k\": 1, \"r\": 4}", "{\"k\": 2, \"r\": 1}",
                                         "{\"k\": 1, \"r\": 1}", "{\"k\": 2, \"r\": 2}"};
    live_run run = live_start((const char *const[]){
        TRAINING, "train.epochs", "9000", "train.evaluate", "false", "devices.count", "4",
        "checkpoint.every", "7 steps", "checkpoint.keep", "1000", NULL});
    live_await_step(&run, 3);
    for (int i = 0; i < 8; i++) {
        json_decref(live_ask(&run, "scale", scales[i % 4]));
        ask_checkpoint(&run);
    }
    json_decref(live_ask(&run, "drain", "{\"worker\": 0}"));
    ask_checkpoint(&run);
    live_await_step(&run, live_status(&run, "step") + 50);
    assert_int_equal(count_events(run.dir, "checkpoint.failed", ""), 0);
    finish(&run);
}

/* The workers save the step of a change that comes before the one that they were asked for, and the
 * controller has captured its state by then. Would catch: checkpoints that fail because each try
 * meets a change, and a run with many changes that has no checkpoint but the last. */
static void test_checkpoints__come_between_changes_of_the_plan(void **state)
{
    (void)state;
    enum { CHANGES = 90, APART = 40 };
    static char script[CHANGES * 24], epochs[16];
    fl_checkpoint_folder *folders = NULL;
    int n = 0;
    for (int i = 1; i <= CHANGES; i++) {
        n += snprintf(script + n, sizeof script - (size_t)n, "%s{step: %d, m: %d}",
                      i == 1 ? "[" : ", ", i * APART, 1 + i % 2);
    }
    snprintf(script + n, sizeof script - (size_t)n, "]");
    snprintf(epochs, sizeof epochs, "%d", (CHANGES + 2) * APART / PER_EPOCH);
    scenario s = {.name = "between",
                  .sets = JOB_SETS(TRAINING, "train.epochs", epochs, "train.evaluate", "false",
                                   "checkpoint.every", "50 steps", "devices.count", "2", "pipe.k",
                                   "1", "autodp.r", "2", "elastic.script", script),
                  .n_samples = N_SAMPLES};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_true(count_events(s.dir, "transition.done", "") > CHANGES / 2);
    /* A slow disk may take the run's whole time for the first one. */
    assert_true(count_events(s.dir, "checkpoint.written", "") >= 2);
    assert_int_equal(count_events(s.dir, "checkpoint.failed", ""), 0);
    check_all_checkpoints(s.dir, &folders);
    fl_free(folders);
    scenario_forget(&s);
}

/* ---- frozen blocks ---- */

/* Once a checkpoint has the frozen block's files, later ones link to them; its moments come from
 * the worker that keeps them. */
static void test_checkpoints__a_frozen_block_is_written_once(void **state)
{
    (void)state;
    live_run run =
        live_start((const char *const[]){ENDLESS, "devices.count", "2", "pipe.k", "2", "autodp.r",
                                         "1", "checkpoint.every", "none", NULL});
    live_await_step(&run, 5);
    json_decref(live_ask(&run, "freeze", "{\"blocks\": 2}"));
    int64_t first = ask_checkpoint(&run), second = ask_checkpoint(&run);
    fl_checkpoint *a = NULL, *b = NULL;
    read_checkpoint(run.dir, first, &a);
    read_checkpoint(run.dir, second, &b);
    int n_linked = 0, n_moments = 0;
    assert_int_equal(a->n_files, b->n_files);
    for (int i = 0; i < b->n_files; i++) {
        const char *name = b->file[i].name;
        const fl_checkpoint_entry *before = fl_checkpoint_find(a, name);
        assert_non_null(before);
        bool same = inode_of(run.dir, first, name) == inode_of(run.dir, second, name);
        assert_true(!same || before->xxh64 == b->file[i].xxh64);
        n_linked += same;
        n_moments += same && strncmp(name, "moments", 7) == 0;
    }
    assert_true(n_linked > 0 && n_linked < b->n_files - 1);
    assert_true(n_moments > 0);
    free_checkpoint(a);
    free_checkpoint(b);
    json_decref(live_ask(&run, "thaw", "{\"blocks\": 0}"));
    int64_t thawed = ask_checkpoint(&run);
    assert_true(inode_of(run.dir, thawed, "weights-000.safetensors") !=
                inode_of(run.dir, second, "weights-000.safetensors"));
    finish(&run);
}

#define LIVE(name) cmocka_unit_test(test_checkpoints__##name)
#define TEST(name) cmocka_unit_test_setup_teardown(test_checkpoints__##name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(come_at_their_interval_and_at_the_end),
        TEST(none_means_none),
        TEST(may_lie_elsewhere),
        LIVE(are_written_on_request_and_while_paused),
        LIVE(are_written_at_any_pause),
        LIVE(go_on_after_the_newest_was_deleted),
        LIVE(inherit_no_damage),
        LIVE(wait_for_no_pipe),
        LIVE(agree_with_changes_of_the_plan),
        TEST(come_between_changes_of_the_plan),
        LIVE(a_frozen_block_is_written_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
