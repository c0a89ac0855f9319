/* A second run finds and uses the costs that the first one measured, and reports where they come
 * from. */
#include "launcher/run/run.h"

#include "support/data/toy.h"
#include "support/shell.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static output said;
static char *folder;

/* frostline plan on a small model, with the profile in `folder`; returns its exit code. */
static int plan(const char *more)
{
    char command[2048];
    snprintf(command, sizeof command,
             "XDG_CACHE_HOME='%s/cache' '%s/frostline' plan '%s/configs/quickstart.yaml' "
             "--set data.path='" FL_TEST_FASHION "' "
             "--set model.blocks=1 --set model.dim=8 --set train.batch=4 --set devices.count=1 "
             "--set freeze.policy=none %s",
             folder, FL_BINARY_DIR, FL_SOURCE_DIR, more);
    run_command(folder, command, &said);
    return said.exit_code;
}

static void sh(const char *command)
{
    static output ignored;
    run_command(folder, command, &ignored);
    assert_int_equal(ignored.exit_code, 0);
}

/* "costs: ..." of the last plan. */
static bool says(const char *text)
{
    return strstr(said.out, text) != NULL;
}

static void test_costs__are_measured_once(void **state)
{
    (void)state;
    assert_int_equal(plan(""), 0);
    assert_true(says("costs: measured now, kept in "));
    assert_int_equal(plan(""), 0);
    assert_true(says("costs: measured 20") && says(", from "));
    /* Another model has costs of its own. */
    assert_int_equal(plan("--set model.dim=16"), 0);
    assert_true(says("costs: measured now, kept in "));
}

static void test_costs__are_not_kept_where_nobody_wants_them(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plan("--set pipe.profile=none"), 0);
        assert_true(says("costs: measured now\n"));
    }
}

static void test_costs__stay_in_the_file_that_the_job_names(void **state)
{
    (void)state;
    assert_int_equal(plan("--set pipe.profile=mine.yaml"), 0);
    assert_true(says("costs: measured now, kept in mine.yaml\n"));
    assert_int_equal(plan("--set pipe.profile=mine.yaml"), 0);
    assert_true(says(", from mine.yaml\n"));
    /* As another machine's. */
    sh("sed 's/^device: .*/device: \"abacus\"/' mine.yaml > theirs.yaml");
    assert_int_equal(plan("--profile theirs.yaml"), 0);
    assert_true(says(", from theirs.yaml\n"));
    assert_int_equal(plan("--set pipe.profile=theirs.yaml"), 0);
    assert_true(says("costs: measured now, kept in theirs.yaml\n"));
    assert_non_null(strstr(said.err, "theirs.yaml: of another device: 'abacus', not "));
}

static void test_costs__that_are_broken_are_measured_anew(void **state)
{
    (void)state;
    assert_int_equal(plan("--set pipe.profile=mine.yaml"), 0);
    sh("sed -i 's/fwd_us: [0-9.e-]*/fwd_us: -3/' mine.yaml");
    assert_int_equal(plan("--profile mine.yaml"), 2);
    assert_non_null(strstr(said.err, "--profile: mine.yaml:"));
    assert_non_null(strstr(said.err, "fwd_us: found '-3', allowed: "));
    assert_int_equal(plan("--set pipe.profile=mine.yaml"), 0);
    assert_non_null(strstr(said.err, "the costs are measured again"));
    assert_true(says("costs: measured now, kept in mine.yaml\n"));
    assert_int_equal(plan("--set pipe.profile=mine.yaml"), 0);
    assert_true(says(", from mine.yaml\n"));
    assert_string_equal(said.err, "");
}

/* Would catch: a decision that goes by how fast this run's cache happened to answer, so that a run
 * with the same seed and the same profile decides differently. */
static void test_costs__of_reads_from_the_cache_are_the_profile_s(void **state)
{
    (void)state;
    static char command[2048];
    assert_int_equal(plan("--set pipe.profile=mine.yaml"), 0);
    sh("sed -i 's/read_call_us: .*/read_call_us: 123.5/; "
       "s/read_us_per_byte: .*/read_us_per_byte: 0.25/' mine.yaml");
    snprintf(command, sizeof command,
             "'%s/frostline' run '%s/configs/quickstart.yaml' --run-dir run "
             "--set data.path='" FL_TEST_FASHION "' "
             "--set model.blocks=1 --set model.dim=8 --set train.batch=4 --set devices.count=1 "
             "--set freeze.policy=none --set data.samples=8 --set train.max_steps=2 "
             "--set train.evaluate=false --set cache.policy=on --set pipe.profile=mine.yaml",
             FL_BINARY_DIR, FL_SOURCE_DIR);
    run_command(folder, command, &said);
    assert_int_equal(said.exit_code, 0);
    sh("grep '\"cache.opened\"' run/events.jsonl | "
       "grep -q '\"read_call_us\": *123.5, *\"read_us_per_byte\": *0.25'");
}

static void test_costs__leave_other_files_alone(void **state)
{
    (void)state;
    sh("echo 'my thesis' > thesis.txt");
    assert_int_equal(plan("--set pipe.profile=thesis.txt"), 0);
    assert_non_null(strstr(said.err, "thesis.txt is no profile; it is left as it is"));
    sh("test \"$(cat thesis.txt)\" = 'my thesis'");
    assert_int_equal(plan("--profile nowhere.yaml"), 2);
    assert_non_null(strstr(said.err, "--profile: nowhere.yaml: No such file or directory"));
}

/* Nothing fits with F = 0, and something does when most is frozen. */
static void test_plan__shows_what_fits_when_blocks_are_frozen(void **state)
{
    (void)state;
    const char *small = "--set model.blocks=6 --set model.dim=64 --set devices.memory=1700KiB "
                        "--set train.optimizer=adamw --set pipe.m=4";
    char more[512];
    snprintf(more, sizeof more, "%s --frozen 6", small);
    assert_int_equal(plan(more), 0);
    assert_true(says("0 of 6 blocks frozen\nnothing fits: devices.memory: stage 0 "));
    assert_true(says("6 of 6 blocks frozen\n     K "));
    snprintf(more, sizeof more, "%s --frozen 6 --json", small);
    assert_int_equal(plan(more), 0);
    json_t *all = json_loads(said.out, 0, NULL);
    assert_int_equal(json_array_size(all), 2);
    assert_non_null(json_object_get(json_array_get(all, 0), "why_not"));
    assert_null(json_object_get(json_array_get(all, 0), "candidates"));
    assert_non_null(json_object_get(json_array_get(all, 1), "candidates"));
    json_decref(all);
    assert_int_equal(plan(small), 2);
    assert_non_null(strstr(said.err, "devices.memory: stage 0 "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs__are_measured_once),
        cmocka_unit_test(test_costs__are_not_kept_where_nobody_wants_them),
        cmocka_unit_test(test_costs__stay_in_the_file_that_the_job_names),
        cmocka_unit_test(test_costs__that_are_broken_are_measured_anew),
        cmocka_unit_test(test_costs__of_reads_from_the_cache_are_the_profile_s),
        cmocka_unit_test(test_costs__leave_other_files_alone),
        cmocka_unit_test(test_plan__shows_what_fits_when_blocks_are_frozen),
    };
    folder = fresh_folder(FL_BINARY_DIR);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sh("rm -rf cache run ./*.yaml thesis.txt && rmdir \"$PWD\"");
    free(folder);
    return failed;
}
