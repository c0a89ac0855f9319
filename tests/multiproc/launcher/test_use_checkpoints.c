/* A checkpoint is used as a model: frostline evaluate, predict and export. Would catch: a
 * checkpoint that is no model without the run around it, and one that is taken although it is not
 * the newest or not whole. */
#include "control/checkpoint/manifest/manifest.h"
#include "device/system/alloc.h"
#include "support/lines.h"
#include "support/runs/used.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static fl_checkpoint *read_manifest(const char *folder)
{
    fl_checkpoint *c = NULL;
    assert_int_equal(fl_alloc(sizeof *c, (void **)&c), FL_OK);
    if (fl_checkpoint_read(folder, c) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return c;
}

/* The folder of a checkpoint is a model wherever it lies: no file of the run is needed. */
static void test_use_checkpoints__a_checkpoint_is_a_model(void **state)
{
    (void)state;
    char folder[128];
    run_command(used_root, "cp -r run/checkpoints/step-000000012 alone", &program_result);
    assert_int_equal(program_result.exit_code, 0);
    snprintf(folder, sizeof folder, "%s/alone", used_root);
    fl_checkpoint *c = read_manifest(folder);
    assert_non_null(fl_checkpoint_find(c, "config.json"));
    assert_int_equal(fl_checkpoint_verify(c, folder, 1), FL_OK);
    fl_checkpoint_fini(c);
    fl_free(c);
    program_run(used_root, 0, "predict run >a.jsonl");
    program_run(used_root, 0, "predict alone --data data >b.jsonl");
    program_run(used_root, 0, "evaluate alone --data data --set devices.count=1");
    program_run(used_root, 0, "export alone --to exported");
    run_command(used_root,
                "cmp a.jsonl b.jsonl && cmp exported/config.json run/model/config.json && cmp "
                "alone/config.json run/model/config.json",
                &program_result);
    assert_int_equal(program_result.exit_code, 0);
    program_run(used_root, 0, "predict exported --data data >b.jsonl");
    program_run(used_root, 0,
                "run job.yaml --run-dir again --set model.init=alone --set train.max_steps=1 "
                "--set train.lr=1e-30");
    program_run(used_root, 0, "predict again >c.jsonl");
    run_command(used_root, "cmp a.jsonl b.jsonl && cmp a.jsonl c.jsonl", &program_result);
    assert_int_equal(program_result.exit_code, 0);
    run_command(used_root, "rm -r alone again exported ?.jsonl", &program_result);
}

/* frostline list and report name the newest one that is whole, and how many there are. */
static void test_use_checkpoints__a_run_shows_its_checkpoints(void **state)
{
    (void)state;
    program_run(
        used_root, 0,
        "run job.yaml --run-dir shown/a --set train.metric=none --set train.max_steps=4 --set "
        "checkpoint.every='50 steps' --set checkpoint.keep=5");
    program_run(used_root, 0, "run --resume shown/a --set train.max_steps=8");
    program_run(used_root, 0, "run --resume shown/a --set train.max_steps=12");
    program_run(used_root, 0, "run job.yaml --run-dir shown/b --set checkpoint.every=none");
    run_command(used_root, "echo x >>shown/a/checkpoints/step-000000012/manifest.json",
                &program_result);
    const int n_whole = 2, newest_step = 8;
    program_run(used_root, 0, "list shown");
    const char *a = strstr(program_result.out, "  a\n"), *b = strstr(program_result.out, "  b\n");
    assert_true(a != NULL && b != NULL);
    assert_non_null(strstr(program_result.out, "loss accuracy checkpoint    age kept  started"));
    int step = 0, age = -1, kept = 0;
    char unit[4];
    while (a > program_result.out && a[-1] != '\n') {
        a--;
    }
    assert_int_equal(sscanf(a, "finished 12/12 %*f %*f %d %d %3s %d", &step, &age, unit, &kept), 4);
    assert_int_equal(step, newest_step);
    assert_int_equal(kept, n_whole);
    assert_in_range(age, 0, 600);
    run_command(used_root, USED_PROGRAM "list shown | grep -c ' -      -    -  .*  b$'",
                &program_result);
    assert_string_equal(program_result.out, "1\n");

    program_run(used_root, 0, "list shown/a --json 2>/dev/null");
    json_t *runs = used_output(), *run = json_array_get(runs, 0);
    const json_t *newest = json_object_get(run, "checkpoint");
    assert_true(used_number(run, "checkpoints") == n_whole);
    assert_true(used_number(newest, "step") == newest_step);
    const char *path = json_string_value(json_object_get(newest, "path"));
    assert_non_null(path);
    assert_non_null(strstr(path, "/shown/a/checkpoints/step-00000"));
    assert_true(used_number(newest, "age_s") >= 0 && used_number(newest, "age_s") < 600);
    assert_int_equal(json_string_length(json_object_get(newest, "written")), 24);
    json_decref(runs);
    program_run(used_root, 0, "report shown/a");
    run_command(used_root,
                "grep -c 'The run directory holds 2. The newest one, after <b>8 steps' "
                "shown/a/report.html; rm -r shown",
                &program_result);
    assert_string_equal(program_result.out, "1\n");
}

/* Make a checkpoint what versions without config.json wrote. */
static void forget_config(const char *folder)
{
    fl_checkpoint *c = read_manifest(folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    int i = (int)(fl_checkpoint_find(c, "config.json") - c->file);
    c->file[i] = c->file[--c->n_files];
    assert_int_equal(unlinkat(fd, "config.json", 0), 0);
    assert_int_equal(fl_checkpoint_write(c, fd), FL_OK);
    close(fd);
    fl_checkpoint_fini(c);
    fl_free(c);
}

static void test_use_checkpoints__a_checkpoint_without_config_json_still_counts(void **state)
{
    (void)state;
    char folder[128];
    run_command(used_root, "cp -r run old && rm -r old/model", &program_result);
    assert_int_equal(program_result.exit_code, 0);
    snprintf(folder, sizeof folder, "%s/old/checkpoints/step-000000012", used_root);
    forget_config(folder);
    program_run(used_root, 0, "evaluate old/checkpoints/step-000000012");
    program_run(used_root, 0, "run --resume old --set train.epochs=3");
    program_run(used_root, 0, "ledger old");
    run_command(used_root, "rm -r old", &program_result);
}

#define NEWEST "$(ls -d open/checkpoints/*/manifest.json | tail -n 1 | xargs dirname)"

/* The last output of the program must name the checkpoint, on standard error, and the same in JSON.
 */
static void check_choice(const char *command, const char *why)
{
    program_run(used_root, 0, "%s", command);
    if (strstr(program_result.err, why) == NULL ||
        strstr(program_result.err, "; using open/checkpoints/step-") == NULL) {
        fail_msg("%s: %s", command, program_result.err);
    }
}

/* The run deletes the checkpoint after it was chosen, before the job is read. */
static void check_deleted_in_use(void)
{
    run_command(used_root,
                "mkfifo fifo; kill -STOP $(cat pid); mkdir aside; " USED_PROGRAM
                "evaluate open fifo >using.txt 2>&1 & exec 9>fifo; mv open/checkpoints/step-* "
                "aside; cat job.yaml >&9; exec 9>&-; wait $!; code=$?; cat using.txt; " USED_PROGRAM
                "evaluate open; mv aside/* open/checkpoints/; rm -r aside fifo using.txt; kill "
                "-CONT $(cat pid); exit $code",
                &program_result);
    if (program_result.exit_code != 0) {
        fail_msg("%s%s", program_result.out, program_result.err);
    }
    assert_non_null(
        strstr(program_result.err, "open: this run still trains and has no checkpoint yet"));
}

/* A run that still trains, then one that was killed, is used from its newest checkpoint whose
 * weights are whole; damaged moments do not matter, and a damaged checkpoint is named. */
static void test_use_checkpoints__a_run_without_a_model_is_used_from_its_checkpoints(void **state)
{
    (void)state;
    run_command(used_root,
                "{ " USED_PROGRAM "run job.yaml --run-dir open --set train.epochs=100000 --set "
                "train.evaluate=false --set train.metric=none --set checkpoint.every='20 steps' "
                ">open.txt 2>&1 & } ; echo "
                "$! >pid; while [ $(ls open/checkpoints/*/manifest.json 2>/dev/null | wc -l) -lt 2 "
                "]; do kill -0 $(cat pid) || exit 1; sleep 0.05; done",
                &program_result);
    assert_int_equal(program_result.exit_code, 0);
    check_choice("evaluate open", "the run still trains; using ");
    check_choice("predict open --out a.jsonl", "the run still trains; using ");
    check_choice("export open --to exported", "the run still trains; using ");
    check_deleted_in_use();
    run_command(used_root,
                "kill -9 $(cat pid); for i in $(seq 400); do " USED_PROGRAM
                "list open 2>&1 | grep -q ^lost && break; sleep 0.05; done; rm " NEWEST
                "/moments-001*",
                &program_result);
    assert_int_equal(program_result.exit_code, 0);
    check_choice("evaluate open", "the run was lost; using ");
    check_choice("run job.yaml --run-dir next --set train.max_steps=1 --set model.init=open",
                 "model.init: the run was lost; using ");
    program_run(used_root, 0, "evaluate open --json");
    json_t *object = used_output();
    const char *weights = json_string_value(json_object_get(object, "weights"));
    assert_non_null(weights);
    assert_non_null(strstr(program_result.err, weights));
    json_decref(object);

    run_command(used_root,
                "printf x | dd of=" NEWEST "/weights-002.safetensors bs=1 seek=700 "
                "conv=notrunc",
                &program_result);
    check_choice("evaluate open", "weights-002.safetensors: damaged: its hash is ");
    run_command(used_root, "echo evaluate " NEWEST, &program_result);
    program_result.out[strcspn(program_result.out, "\n")] = '\0';
    char command[USED_COMMAND];
    snprintf(command, sizeof command, "%.900s", program_result.out);
    program_run(used_root, 2, "%s", command);
    assert_non_null(strstr(program_result.err, "weights-002.safetensors: damaged: its hash is "));
    run_command(used_root, "truncate -s 30 open/checkpoints/*/config.json", &program_result);
    program_run(used_root, 2, "validate job.yaml --set model.init=open");
    assert_non_null(strstr(program_result.err, "model.init: the checkpoint after "));
    program_run(used_root, 2, "export open --to half");
    assert_non_null(
        strstr(program_result.err, "config.json: damaged: 30 bytes, the manifest has "));
    assert_non_null(strstr(program_result.err, "this run has left no model and no checkpoint"));
    run_command(used_root, "rm -r open open.txt pid exported a.jsonl next; ls half",
                &program_result);
    assert_string_equal(program_result.out, "");
}

/* A run that was made longer and interrupted is used as far as it got, not as it was before. */
static void test_use_checkpoints__a_checkpoint_is_newer_than_the_model_before_it(void **state)
{
    (void)state;
    run_command(used_root,
                "cp -r run open && cp -r run/model old && " USED_PROGRAM
                "run --resume open --set train.epochs=3 >open.txt && sed -i '$d' "
                "open/events.jsonl && rm -r open/model && mv old open/model",
                &program_result);
    assert_int_equal(program_result.exit_code, 0);
    check_choice("evaluate open", "the run was lost; using open/checkpoints/step-000000018");
    run_command(used_root, "rm -r open/checkpoints", &program_result);
    program_run(used_root, 0, "evaluate open");
    assert_non_null(strstr(program_result.err, "the run was lost; using open/model"));
    run_command(used_root, "rm -r open open.txt", &program_result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_use_checkpoints__a_checkpoint_is_a_model),
        cmocka_unit_test(test_use_checkpoints__a_run_shows_its_checkpoints),
        cmocka_unit_test(test_use_checkpoints__a_checkpoint_without_config_json_still_counts),
        cmocka_unit_test(test_use_checkpoints__a_run_without_a_model_is_used_from_its_checkpoints),
        cmocka_unit_test(test_use_checkpoints__a_checkpoint_is_newer_than_the_model_before_it),
    };
    return cmocka_run_group_tests(tests, used_set_up, used_tear_down);
}
