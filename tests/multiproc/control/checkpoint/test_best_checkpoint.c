/* The checkpoint of the best evaluation. Would catch: one that is lost because the disk is slow, or
 * because the next checkpoint cannot be written; one that is removed as an old one; one of another
 * step than that of the evaluation. */
#include "control/checkpoint/manifest/manifest.h"
#include "device/system/alloc.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* 100 training samples, 10 steps an epoch. */
enum { N_SAMPLES = 120, PER_EPOCH = 10, EPOCHS = 6 };
#define PLAN(k, r, m) "pipe.k", k, "autodp.r", r, "pipe.m", m
#define BASE                                                                                       \
    "train.batch", "10", "train.lr", "1e-3", "devices.count", "3", "train.epochs", "6",            \
        "data.validation", "20", "pipe.tune", "false"

/* "10 60": the steps of the whole checkpoints, ascending. */
static void list_checkpoints(const char *dir, char text[256])
{
    char path[256];
    fl_checkpoint_folder *all = NULL;
    int n = 0;
    size_t used = 0;
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    must(fl_checkpoint_list(path, &all, &n));
    for (int i = n - 1; i >= 0; i--) {
        assert_true(all[i].whole);
        used += (size_t)snprintf(text + used, 256 - used, "%s%lld", used == 0 ? "" : " ",
                                 (long long)all[i].step);
    }
    fl_free(all);
}

static void check_best(const char *dir, int step)
{
    char path[256], target[64] = "", wanted[64];
    snprintf(path, sizeof path, "%s/checkpoints/best", dir);
    assert_true(readlink(path, target, sizeof target - 1) > 0);
    snprintf(wanted, sizeof wanted, "step-%09d", step);
    assert_string_equal(target, wanted);
}

#define BEST                                                                                       \
    "train.metric", "loss", "train.stop_margin", "10", "checkpoint.every", "8 steps",              \
        "checkpoint.keep", "1"

/* Once the best checkpoint is durable. */
static void behead(fl_worker_state *w)
{
    while (faccessat(w->c->dir_fd, "checkpoints/best/manifest.json", F_OK, 0) != 0) {
        nap(1000);
    }
    kill_the_controller(w);
}

/* No evaluation is better than the first one, by the margin. Would catch: a best checkpoint that is
 * removed as an old one, one of another step than that of the evaluation, losses that depend on the
 * waiting, and a resumed run that forgets which one is the best. */
static void test_best_checkpoint__stays_however_old_it_gets(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 10, .f = 1, .k = 1, .r = 3, .m = 1},
                                             {.step = 25, .f = 0, .k = 2, .r = 1, .m = 2}};
    char found[256];
    scenario whole = {.name = "without",
                      .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                      .script = script,
                      .n_script = 2,
                      .n_samples = N_SAMPLES};
    scenario best = whole, cut = whole;
    best.name = "best";
    best.more = cut.more = JOB_SETS(BEST);
    cut.name = "cut";
    cut.at[0] = (scenario_deed){.point = "step", .step = 45, .act = behead};
    scenario_run(&whole);
    scenario_run(&best);
    list_checkpoints(best.dir, found);
    assert_string_equal(found, "10 60");
    check_best(best.dir, PER_EPOCH);
    assert_int_equal(count_events(best.dir, "checkpoint.written", "\"best\": true"), 1);
    assert_int_equal(count_events(best.dir, "checkpoint.failed", ""), 0);
    double *a = losses_of(&whole, EPOCHS * PER_EPOCH), *b = losses_of(&best, EPOCHS * PER_EPOCH);
    assert_memory_equal(a, b, EPOCHS * PER_EPOCH * sizeof *a);
    scenario_start(&cut);
    expect_beheaded(&cut);
    scenario_forget(&cut);
    cut.at[0] = (scenario_deed){0};
    cut.resumes = true;
    scenario_run(&cut);
    list_checkpoints(cut.dir, found);
    assert_string_equal(found, "10 60");
    check_best(cut.dir, PER_EPOCH);
    free(a);
    free(b);
}

/* ---- a slow disk at the end of the run ---- */

/* Shared by the workers of a run: the disk of the slow one takes its first part when the other one
 * has its last part on the disk, or has failed to write it. */
typedef struct slow_disk {
    int rank;
    bool other_is_full; /* when the run ends */
    _Atomic bool is_free;
} slow_disk;

static slow_disk *disk;

static void write_slowly(const char *point, fl_worker_state *w)
{
    static bool first = true;
    static _Atomic bool has_written = false; /* its first part, on another thread */
    const struct rlimit page = {.rlim_cur = 512, .rlim_max = RLIM_INFINITY};
    if (w->rank == disk->rank && first && strcmp(point, "part") == 0) {
        first = false;
        while (!atomic_load(&disk->is_free)) {
            nap(1000);
        }
    } else if (strcmp(point, "part") == 0) {
        atomic_store(&has_written, true);
    } else if (w->rank != disk->rank && strcmp(point, "end") == 0 && disk->other_is_full) {
        while (!atomic_load(&has_written)) {
            nap(1000);
        }
        setrlimit(RLIMIT_FSIZE, &page);
    } else if (w->rank != disk->rank && strcmp(point, "saved") == 0) {
        atomic_store(&disk->is_free, true);
    }
}

static void make_slow(int rank, bool other_is_full)
{
    atomic_store(&disk->is_free, false);
    disk->rank = rank;
    disk->other_is_full = other_is_full;
}

/* Two epochs of two workers, each evaluated. */
#define TWO_EPOCHS                                                                                 \
    "devices.count", "2", "train.epochs", "2", "checkpoint.every", "10min", "train.metric", "loss"

/* The run trains on and ends while a worker still writes its part of the best checkpoint, and the
 * other one has written the last. */
static void test_best_checkpoint__is_written_although_the_run_has_ended(void **state)
{
    (void)state;
    static const char *const names[] = {"slow-0", "slow-1"};
    char found[256];
    for (int rank = 0; rank < 2; rank++) {
        scenario s = {.name = names[rank],
                      .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                      .more = JOB_SETS(TWO_EPOCHS, "train.stop_margin", "10"),
                      .n_samples = N_SAMPLES,
                      .at_point = write_slowly};
        make_slow(rank, false);
        scenario_run(&s);
        list_checkpoints(s.dir, found);
        assert_string_equal(found, "10 20");
        check_best(s.dir, PER_EPOCH);
        assert_int_equal(count_events(s.dir, "checkpoint.written", "\"best\": true"), 1);
        assert_int_equal(count_events(s.dir, "checkpoint.failed", ""), 0);
    }
}

static double loss_of(const json_t *evaluations, size_t i)
{
    return json_real_value(json_object_get(json_array_get(evaluations, i), "validation_loss"));
}

/* The last evaluation is better, and known when the checkpoint of the first one is complete. */
static void test_best_checkpoint__is_the_best_that_could_be_written(void **state)
{
    (void)state;
    char found[256];
    scenario s = {.name = "full",
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                  .more = JOB_SETS(TWO_EPOCHS, "run.save_model", "false"),
                  .n_samples = N_SAMPLES,
                  .at_point = write_slowly};
    make_slow(1, true);
    scenario_run(&s);
    json_t *all = lines_with(s.dir, "events.jsonl", "\"evaluation\"");
    assert_int_equal(length(all), 2);
    assert_true(loss_of(all, 1) < loss_of(all, 0));
    list_checkpoints(s.dir, found);
    assert_string_equal(found, "10");
    check_best(s.dir, PER_EPOCH);
    assert_int_equal(count_events(s.dir, "checkpoint.failed", "worker 0"), 1);
    json_decref(all);
}

static int set_up(void **state)
{
    disk = shared_memory(sizeof *disk);
    return make_root(state);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_best_checkpoint__##name, set_up, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(stays_however_old_it_gets),
        TEST(is_written_although_the_run_has_ended),
        TEST(is_the_best_that_could_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
