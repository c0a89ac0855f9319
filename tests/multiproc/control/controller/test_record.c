/* Runs whose files cannot be written: they train on, say at once what is missing, and never pass
 * for runs with a complete record. */
#include "autodp/ledger.h"
#include "launcher/run/run.h"
#include "launcher/run/runs/runs.h"
#include "support/data/toy.h"
#include "support/nap.h"
#include "support/runs/fake/fake_checks.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static fl_ledger_result result_of(const fake_run *run)
{
    char path[4200];
    fl_ledger_proof proof;
    snprintf(path, sizeof path, "%s/ledger.bin", run->dir);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    fl_ledger_result result = fl_ledger_judge(&proof);
    fl_ledger_proof_fini(&proof);
    return result;
}

static void test_record__is_complete_on_a_good_disk(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    fl_run_entry entry;
    fake_outcome outcome = play(&run);
    assert_int_equal(outcome.status, FL_OK);
    assert_int_equal(result_of(&run), FL_LEDGER_COMPLETE);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_FINISHED);
    assert_false(entry.record_incomplete);
    fake_clean(&run);
}

/* 1,000 steps, and files of at most 64 KiB: the ledger and steps.jsonl do not fit. Would catch: a
 * run that reports success with an incomplete record; a proof that covers only half of a run. */
static void test_record__tells_what_a_full_disk_cost(void **state)
{
    (void)state;
    static const char *const events[] = {"record.incomplete", "record.incomplete", "run.finished"};
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    fl_run_entry entry;
    run.n_samples = 5000;
    run.step_us = 0;
    run.file_limit = 64 * 1024;
    fake_outcome outcome = play(&run);
    assert_int_equal(outcome.status, FL_EFAILED);
    assert_contains(outcome.message, "the run trained to its end, but its record is incomplete: ");
    assert_contains(outcome.message, "steps.jsonl lacks ");
    assert_contains(outcome.message, "(File too large)");
    assert_contains(outcome.message, "ledger.bin lacks every step from step ");
    assert_int_equal(outcome.result.steps, 1000);
    check_events_file(&run, events, 3);
    assert_file_contains(&run, "stderr.txt", "the record of this run is incomplete: ledger.bin");
    assert_file_contains(&run, "summary.txt", "record         INCOMPLETE: steps.jsonl lacks ");
    assert_file_contains(&run, "summary.txt", "it proves nothing about the whole run");
    assert_int_equal(result_of(&run), FL_LEDGER_INCOMPLETE);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_FINISHED);
    assert_true(entry.record_incomplete);
    fake_clean(&run);
}

/* Would catch: exit code 2, "no process was started", after a run whose directory was removed. */
static void test_record__notices_that_its_files_were_removed(void **state)
{
    (void)state;
    char path[4200];
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    run.n_samples = 5000;
    run.step_us = 2000;
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    snprintf(path, sizeof path, "%s/ledger.bin", run.dir);
    assert_int_equal(unlink(path), 0);
    assert_true(
        fake_await_line(&run, "stderr.txt", "ledger.bin was removed while the run trained"));
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_int_equal(outcome.status, FL_EFAILED);
    assert_contains(outcome.message, "ledger.bin was removed while the run trained");
    assert_int_equal(outcome.result.steps, 1000);
    fake_clean(&run);
}

/* A run directory may be moved while its run trains: its files are open. */
static void test_record__survives_a_moved_directory(void **state)
{
    (void)state;
    char moved[4200];
    fake_run run = fake_run_of(FAKE_NOTHING, -1, 0);
    run.n_samples = 500;
    fake_start(&run);
    assert_true(fake_await_steps(&run, 3));
    snprintf(moved, sizeof moved, "%s-moved", run.dir);
    assert_int_equal(rename(run.dir, moved), 0);
    snprintf(run.dir, sizeof run.dir, "%s", moved);
    fake_outcome outcome = fake_finish(&run);
    assert_int_equal(outcome.status, FL_OK);
    assert_int_equal(result_of(&run), FL_LEDGER_COMPLETE);
    fake_clean(&run);
}

/* docs/runs.md promises a summary of every run. */
static void test_record__of_a_failed_run_has_a_summary(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_EXIT, 1, 4);
    fake_start(&run);
    fake_outcome outcome = fake_finish(&run);
    assert_int_equal(outcome.status, FL_EFAILED);
    assert_file_contains(&run, "summary.txt", "\nfailed after ");
    assert_file_contains(&run, "summary.txt", "  why            worker 1");
    assert_int_equal(result_of(&run), FL_LEDGER_INCOMPLETE);
    fake_clean(&run);
}

/* A file has room for half a line: weights.jsonl was cut there, frostline diff refused the run, and
 * nothing reported it. */
enum { FILE_LIMIT = 64 * 1024 * 1024, ROOM = 40 };

static void run_with_hashes(const char *dir)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_run_result result;
    const struct rlimit limit = {FILE_LIMIT, FILE_LIMIT};
    hush();
    fl_job_defaults(&job);
    set(&job, "train.batch", 10);
    set(&job, "train.epochs", 1);
    set(&job, "train.hash_weights", 1);
    set(&job, "pipe.k", 2);
    set(&job, "autodp.r", 1);
    set(&job, "pipe.m", 2);
    set(&job, "devices.count", 2);
    must(fl_job_set(&job, "pipe.profile", "none"));
    must(fl_toy_dataset(60, &data));
    must(fl_toy_model(3, 0.1f, &model));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fl_status status = fl_run_in(model, &data, &job, dir, &result);
    bool named = strstr(fl_errmsg(), "weights.jsonl lacks hashes from step 1 on (File too large)");
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    _exit(status == FL_EFAILED && named && result.steps == 6 ? 0 : 1);
}

static void test_record__tells_of_hashes_that_were_not_written(void **state)
{
    (void)state;
    char dir[96], path[128];
    struct stat info;
    fl_run_entry entry;
    assert_int_equal(make_root(NULL), 0);
    snprintf(dir, sizeof dir, "%s/hashes", root);
    snprintf(path, sizeof path, "%s/weights.jsonl", dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), FILE_LIMIT - ROOM), 0);
    fclose(file);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run_with_hashes(dir);
    }
    check_ended_well(child);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, FILE_LIMIT - ROOM); /* no half of a line */
    assert_int_equal(fl_run_look(dir, &entry), FL_OK);
    assert_true(entry.record_incomplete);
    remove_root(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record__is_complete_on_a_good_disk),
        cmocka_unit_test(test_record__tells_what_a_full_disk_cost),
        cmocka_unit_test(test_record__notices_that_its_files_were_removed),
        cmocka_unit_test(test_record__survives_a_moved_directory),
        cmocka_unit_test(test_record__of_a_failed_run_has_a_summary),
        cmocka_unit_test(test_record__tells_of_hashes_that_were_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
