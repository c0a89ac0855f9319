/* What the program says of a job: about its lines, and about what they name. Would catch: a message
 * that points to no line, a plugin or a file that crashes or stops the program. */
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Of a job that names no other data. */
#define FASHION " --set data.path='" FL_TEST_FASHION "'"

/* Checks that need the data set, the model and the machine point at the job's lines too. */
static void test_cli_jobs__validate_points_at_the_job_for_what_other_folders_find(void **state)
{
    (void)state;
    cli_need_data();
    cli_validate("name: small\nmodel: {blocks: 2, dim: 32}\n", 0,
                 "job.yaml: good\n"
                 "  model  vit, 6 layers in 2 blocks, 27978 parameters\n"
                 "  data   idx, 12000 samples to train on, 2000 to test on\n",
                 "");
    cli_validate("name: few\nmodel: {blocks: 2, dim: 32}\ndata: {samples: 2000}\n", 0,
                 "job.yaml: good\n"
                 "  model  vit, 6 layers in 2 blocks, 27978 parameters\n"
                 "  data   idx, 2000 samples (of 12000) to train on, 2000 to test on\n",
                 "");
    cli_validate("data:\n  path: ./nowhere\n", 2, "",
                 "job.yaml:2:9: data.path: ./nowhere: neither train-images-idx3-ubyte nor "
                 "train-images-idx3-ubyte.gz found\n");
    cli_validate(
        "model: {patch: 5}\n", 2, "",
        "job.yaml:1:16: model.patch: found 5, allowed: a divisor of the height and the width "
        "of the images that the model sees, 28 x 28 pixels\n");
    cli_save("job.yaml", "devices: {count: 9}\nmodel: {blocks: 2, dim: 32}\npipe:\n  k: 9\n");
    cli_run("validate job.yaml" FASHION);
    assert_int_equal(cli_result.exit_code, 2);
    assert_int_equal(strncmp(cli_result.err, "job.yaml:4:6: pipe.k: ", 22), 0);
    cli_save("job.yaml", "devices:\n  memory: 1MiB\n");
    cli_run("validate job.yaml" FASHION);
    assert_int_equal(cli_result.exit_code, 2);
    assert_int_equal(strncmp(cli_result.err, "job.yaml:2:11: devices.memory: ", 31), 0);
}

/* A setting after the end of the run is a warning, not an error: a run shortened for a trial
 * starts.
 */
static void test_cli_jobs__validate_warns_of_what_comes_after_the_end(void **state)
{
    (void)state;
    cli_need_data();
    cli_save("job.yaml", "model: {blocks: 4, dim: 32}\n"
                         "train: {max_steps: 20}\n"
                         "freeze: {policy: gradnorm, start: 20 steps}\n"
                         "elastic: {script: [{step: 19, k: 1}, {step: 20, k: 2}]}\n"
                         "trace: {steps: 5, start: 20}\n");
    cli_run("validate job.yaml" FASHION);
    assert_int_equal(cli_result.exit_code, 0);
    assert_non_null(strstr(cli_result.err,
                           "job.yaml:3:35: freeze.start: comes after the last of 20 "
                           "steps: nothing will freeze\n"));
    assert_non_null(strstr(cli_result.err,
                           "job.yaml:4:38: elastic.script: entry 2: step 20 is not one "
                           "of the run's 20\n"));
    assert_non_null(strstr(cli_result.err, "job.yaml:5:26: trace.start: step 20 is not one of the "
                                           "run's 20: nothing will be traced\n"));
    /* The decision after step 20 needs some steps to take effect: at most 64. */
    cli_run("validate job.yaml" FASHION " --set train.max_steps=21");
    assert_int_equal(cli_result.exit_code, 0);
    assert_non_null(strstr(cli_result.err,
                           "job.yaml:3:35: freeze.start: the first decision is made "
                           "after 20 steps and would take effect "));
    assert_non_null(strstr(cli_result.err, " steps later, not before the end of the run after 21: "
                                           "nothing will freeze\n"));
    cli_run("validate job.yaml" FASHION " --set train.max_steps=85");
    assert_int_equal(cli_result.exit_code, 0);
    assert_string_equal(cli_result.err, "");
    cli_run("validate job.yaml" FASHION " --set train.max_steps=85 --set train.evaluate_every=1");
    assert_string_equal(cli_result.err, "");
    cli_run("validate job.yaml" FASHION " --set train.max_steps=85 --set train.evaluate_every=10");
    assert_non_null(strstr(cli_result.err,
                           "train.evaluate_every: 10 epochs is longer than the run of 85 "
                           "steps: the run evaluates only at its end\n"));
    cli_run("validate job.yaml" FASHION
            " --set train.max_steps=85 --set 'train.evaluate_every=10 steps' "
            "--set train.evaluate=false");
    assert_non_null(strstr(cli_result.err, "train.evaluate_every: 10 steps has no effect with "
                                           "train.evaluate false\n"));
    cli_save("job.yaml", "model: {blocks: 4, dim: 32}\nfreeze: {policy: gradnorm, keep: 4}\n");
    cli_run("validate job.yaml" FASHION);
    assert_int_equal(cli_result.exit_code, 2);
    assert_string_equal(cli_result.err,
                        "job.yaml:2:34: freeze.keep: found 4, allowed: at most 3 of the model's 4 "
                        "blocks with freeze.policy gradnorm, which otherwise could freeze none\n");
}

/* A data set smaller than the job assumes was found in an evaluation, and validate counted samples
 * that train nothing. */
static void test_cli_jobs__validate_counts_the_samples_of_each_split(void **state)
{
    (void)state;
    cli_save("good.yaml", "name: good\n");
    cli_run("validate good.yaml" FASHION " --set data.validation=13%");
    assert_string_equal(cli_result.err, "");
    assert_non_null(strstr(cli_result.out,
                           " 10440 samples (of 12000) to train on, 1560 to validate on, "
                           "2000 to test on\n"));
    cli_run("validate good.yaml" FASHION " --set train.evaluate_samples=2000");
    assert_int_equal(cli_result.exit_code, 0);
    cli_run("validate good.yaml" FASHION " --set train.evaluate_samples=2001");
    assert_string_equal(cli_result.err,
                        "--set train.evaluate_samples=2001: train.evaluate_samples: "
                        "2001, but there are 2000 test samples; allowed: all, or 1 "
                        ".. 2000\n");
    assert_int_equal(cli_result.exit_code, 2);
    cli_run("validate good.yaml" FASHION
            " --set data.validation=13% --set train.evaluate_samples=1561");
    assert_non_null(
        strstr(cli_result.err, "1561, but there are 1560 validation samples; allowed: "));
    cli_run("validate good.yaml" FASHION " --set data.samples=3000 --set data.validation=100%");
    assert_string_equal(cli_result.err,
                        "--set data.validation=100%: data.validation: found 100%, which leaves no "
                        "training sample of 3000; allowed: none, or 1 .. 2999 samples\n");
    cli_run("validate good.yaml" FASHION " --set data.samples=1000 --set data.validation=0.01%");
    assert_non_null(strstr(cli_result.err, "found 0.01%, which is less than one sample of 1000; "));
    cli_run("validate good.yaml" FASHION " --set data.samples=3000 --set data.validation=2999");
    assert_string_equal(cli_result.err,
                        "good.yaml: train.batch: 128, but an epoch has 1 sample: "
                        "data.validation takes the other 2999 of 3000; allowed: 1 .. "
                        "1\n");
    assert_int_equal(cli_result.exit_code, 2);
}

#define PLUGIN FL_BINARY_DIR "/tests/plugin_"

static void test_cli_jobs__a_plugin_brings_a_model_and_its_failures_are_told(void **state)
{
    (void)state;
    cli_need_data();
    cli_validate("model: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 0,
                 "job.yaml: good\n"
                 "  model  toy, 3 layers in 1 block, 12762 parameters\n"
                 "  data   idx, 12000 samples to train on, 2000 to test on\n",
                 "");
    cli_validate("name: fails\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN
                 "toy.so: the plugin does not like this job\n");
    cli_validate("name: crashes\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 3, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: its create function was killed by "
                 "signal SIGSEGV\n");
    cli_validate("name: overflows\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 3, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: its create function was killed by "
                 "signal SIGSEGV\n");
    cli_validate("name: fails-silently\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: its create function failed with "
                 "FL_EINVAL (bad input) and gave no message\n");
    cli_validate("name: no-model\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN "toy.so made no model\n");
    cli_validate("name: no-loss\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN
                 "toy.so: model 'toy' has no loss: call fl_model_set_loss\n");
    cli_validate("model: {kind: plugin, plugin: " PLUGIN "empty.so}\n", 2, "",
                 "job.yaml:1:31: model.plugin: " PLUGIN
                 "empty.so does not export frostline_plugin\n");
    cli_validate("model: {kind: plugin, plugin: " PLUGIN "table.so}\n", 2, "",
                 "job.yaml:1:31: model.plugin: " PLUGIN
                 "table.so: frostline_plugin is no plugin: define it with FL_PLUGIN\n");
    cli_validate("name: half-data\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
                 "job.yaml:2:31: model.plugin: " PLUGIN
                 "toy.so: the data set's table has no count\n");
    cli_validate(
        "model: {kind: plugin, plugin: nowhere.so}\n", 2, "",
        "job.yaml:1:31: model.plugin: ./nowhere.so: cannot open shared object file: No such "
        "file or directory\n");
    cli_validate("model: {kind: plugin, plugin: job.yaml}\n", 2, "",
                 "job.yaml:1:31: model.plugin: ./job.yaml: file too short\n");
}

/* Would catch: a plugin of another version that is called and crashes, or trains on arguments that
 * it misreads. All three would abort. */
static void test_cli_jobs__a_plugin_of_another_version_is_refused(void **state)
{
    (void)state;
    cli_need_data();
    cli_validate("model: {kind: plugin, plugin: " PLUGIN "old.so}\n", 2, "",
                 "job.yaml:1:31: model.plugin: " PLUGIN
                 "old.so: built for version 1 of Frostline's C API, this program has version 8: "
                 "compile it with this version's headers\n");
    cli_validate("model: {kind: plugin, plugin: " PLUGIN "newer.so}\n", 2, "",
                 "job.yaml:1:31: model.plugin: " PLUGIN
                 "newer.so: built for version 77 of Frostline's C API, this program has version 8: "
                 "compile it with this version's headers\n");
    cli_validate(
        "model: {kind: plugin, plugin: " PLUGIN "changed.so}\n", 2, "",
        "job.yaml:1:31: model.plugin: " PLUGIN
        "changed.so: built with other headers of version 8 of Frostline's C API: compile it "
        "with those of this program\n");
}

/* Would catch: a SIGBUS from a shared object that was copied in part. */
static void test_cli_jobs__a_plugin_that_is_cut_off_is_refused(void **state)
{
    (void)state;
    static const int bytes[] = {40, 70, 500, 4096};
    char command[4096];
    cli_need_data();
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command, "head -c %d '" PLUGIN "toy.so' > cut.so", bytes[i]);
        run_command(cli_folder, command, &cli_result);
        cli_save("job.yaml", "model: {kind: plugin, plugin: cut.so}\n");
        cli_run("validate job.yaml" FASHION);
        assert_int_equal(cli_result.exit_code, 2);
        assert_non_null(strstr(cli_result.err, "job.yaml:1:31: model.plugin: ./cut.so: "));
    }
    assert_non_null(strstr(cli_result.err, " bytes found, "));
}

/* The head of an ELF file tells the loader where to write. */
static void test_cli_jobs__a_plugin_of_garbage_ends_with_its_name(void **state)
{
    (void)state;
    cli_need_data();
    cli_save("job.yaml", "model: {kind: plugin, plugin: garbage.so}\n");
    for (int i = 1; i <= 8; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "cp " PLUGIN "toy.so garbage.so && n=$(stat -c %%s garbage.so) && "
                 "tr '\\0' '\\%d' </dev/zero | dd of=garbage.so bs=512 seek=%d "
                 "count=$((n / 512 - %d)) iflag=fullblock conv=notrunc",
                 300 + i, i, i);
        run_command(cli_folder, command, &cli_result);
        assert_int_equal(cli_result.exit_code, 0);
        cli_run("validate job.yaml" FASHION);
        if ((cli_result.exit_code != 2 && cli_result.exit_code != 3) ||
            strstr(cli_result.err, "model.plugin: ") == NULL ||
            strstr(cli_result.err, "garbage.so") == NULL) {
            fail_msg("%d: exit code %d, %s", i, cli_result.exit_code, cli_result.err);
        }
    }
}

/* Would catch: a reader that waits for ever for a writer of a named pipe. */
static void test_cli_jobs__a_pipe_in_the_place_of_a_file_is_refused(void **state)
{
    (void)state;
    cli_need_data();
    run_command(cli_folder, "mkdir piped && mkfifo piped/job.yaml piped/ledger.bin piped/profile",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    run_command(cli_folder, "timeout 20 " FL_BINARY_DIR "/frostline ledger piped", &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_string_equal(cli_result.err, "piped/ledger.bin: something that is not a file found\n");
    run_command(cli_folder, "timeout 20 " FL_BINARY_DIR "/frostline run --replay piped",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_string_equal(cli_result.err, "--replay: piped/job.yaml is not a regular file\n");
    cli_save("job.yaml", "model: {kind: plugin, plugin: " PLUGIN "toy.so}\n");
    run_command(cli_folder,
                "timeout 20 " FL_BINARY_DIR "/frostline plan job.yaml --profile piped/profile",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_string_equal(cli_result.err, "--profile: piped/profile: not a regular file\n");
}

/* Would catch: a reader that reads a device to its end, which it does not have. */
static void test_cli_jobs__a_device_in_the_place_of_a_file_is_refused(void **state)
{
    (void)state;
    static const char *const commands[][2] = {
        {"report endless", "endless: "},
        {"export endless", "endless: "},
        {"run --replay endless", "--replay: endless/events.jsonl: not a regular file"},
        {"run --resume endless", "--resume: endless"},
        {"list .", ""},
    };
    run_command(cli_folder,
                "mkdir endless && ln -s /dev/zero endless/events.jsonl && "
                "ln -s /dev/zero endless/steps.jsonl && echo 'name: x' >endless/job.yaml",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[512];
        snprintf(command, sizeof command, "timeout 20 " FL_BINARY_DIR "/frostline %s",
                 commands[i][0]);
        run_command(cli_folder, command, &cli_result);
        if (cli_result.exit_code != (commands[i][1][0] == '\0' ? 0 : 2) ||
            strstr(cli_result.err, commands[i][1]) == NULL) {
            fail_msg("%s: exit code %d, %s", commands[i][0], cli_result.exit_code, cli_result.err);
        }
    }
}

/* Would catch: a program that a signal ends before it can tell what it could not write. */
static void test_cli_jobs__a_limit_of_file_sizes_is_told(void **state)
{
    (void)state;
    cli_need_data();
    cli_save("job.yaml", "model: {kind: plugin, plugin: " PLUGIN "toy.so}\n"
                         "pipe: {profile: kept.yaml}\ndevices: {count: 1}\ntrain: {max_steps: 2}\n"
                         "run: {save_model: false}\n");
    run_command(cli_folder,
                "prlimit --fsize=300 " FL_BINARY_DIR "/frostline run job.yaml --run-dir limited",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "\njob.yaml: File too large\n"));
    run_command(cli_folder, "rm -rf limited", &cli_result);
}

/* Would catch: a message that names the job's run.dir when --run-dir is wrong. */
static void test_cli_jobs__a_run_directory_is_blamed_on_whom_named_it(void **state)
{
    (void)state;
    static const char job[] = "model: {kind: plugin, plugin: " PLUGIN "toy.so}\n"
                              "pipe: {profile: none}\ndevices: {count: 1}\n";
    cli_save("job.yaml", job);
    cli_run("run job.yaml --run-dir /proc/none");
    assert_int_equal(cli_result.exit_code, 2);
    /* On a machine where other runs train, a line of warning comes first. */
    assert_non_null(
        strstr(cli_result.err, "--run-dir: cannot make /proc/none: No such file or directory\n"));
    assert_null(strstr(cli_result.err, "run.dir:"));
    cli_run("run job.yaml --set run.dir=/proc/none");
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "run.dir: cannot make /proc/none: No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli_jobs__validate_points_at_the_job_for_what_other_folders_find),
        cmocka_unit_test(test_cli_jobs__validate_warns_of_what_comes_after_the_end),
        cmocka_unit_test(test_cli_jobs__a_plugin_brings_a_model_and_its_failures_are_told),
        cmocka_unit_test(test_cli_jobs__a_plugin_of_another_version_is_refused),
        cmocka_unit_test(test_cli_jobs__a_plugin_that_is_cut_off_is_refused),
        cmocka_unit_test(test_cli_jobs__a_plugin_of_garbage_ends_with_its_name),
        cmocka_unit_test(test_cli_jobs__a_pipe_in_the_place_of_a_file_is_refused),
        cmocka_unit_test(test_cli_jobs__a_device_in_the_place_of_a_file_is_refused),
        cmocka_unit_test(test_cli_jobs__a_limit_of_file_sizes_is_told),
        cmocka_unit_test(test_cli_jobs__a_run_directory_is_blamed_on_whom_named_it),
        cmocka_unit_test(test_cli_jobs__validate_counts_the_samples_of_each_split),
    };
    return cmocka_run_group_tests(tests, cli_make_folder, cli_remove_folder);
}
