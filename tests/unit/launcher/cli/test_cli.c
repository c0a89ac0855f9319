/* The program as its users meet it: exit codes, and what goes to which stream. */
#include "launcher/main/commands.h"
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

#define SEE(command) "; see frostline " command " --help\n"

/* One command line that is refused: nothing on standard output, this on standard error, and 2. */
typedef struct refused {
    const char *arguments;
    const char *err;
} refused;

static const refused refusals[] = {
    {"", "frostline: a command is missing; see frostline --help\n"},
    {"foo", "frostline: unknown command 'foo'; see frostline --help\n"},
    {"rnu x", "frostline: unknown command 'rnu', nearest is run; see frostline --help\n"},
    {"Validate",
     "frostline: unknown command 'Validate', nearest is validate; see frostline --help\n"},
    {"frobnicate", "frostline: unknown command 'frobnicate'; see frostline --help\n"},
    {"--verbose", "frostline: unknown command '--verbose'; see frostline --help\n"},
    {"$(printf '\\033[31m')", "frostline: unknown command '\\033[31m'; see frostline --help\n"},
    {"run", "frostline run: JOB.yaml is missing" SEE("run")},
    {"run a b", "frostline run: unexpected 'b'" SEE("run")},
    {"run a --run-dri b",
     "frostline run: unknown option '--run-dri', nearest is --run-dir" SEE("run")},
    {"run a -x", "frostline run: unknown option '-x'" SEE("run")},
    {"run a --set", "frostline run: option --set needs a value PATH=VALUE\n"},
    {"run -- --set", "--set: cannot be opened: No such file or directory\n"},
    {"schedule -k 2 -m 2 --json=1", "frostline schedule: option --json takes no value\n"},
    {"schedule -m 2", "frostline schedule: option -k is missing\n"},
    {"schedule -k 2", "frostline schedule: option -m is missing\n"},
    {"schedule -k 0 -m 2",
     "frostline schedule: -k: found '0', allowed: an integer from 1 to 128 (stages)\n"},
    {"schedule -k 2 -m auto",
     "frostline schedule: -m: found 'auto', allowed: an integer from 1 to 4096 (micro-batches)\n"},
    {"schedule -k 2 -m 2 --schedule gpip",
     "frostline schedule: --schedule: found 'gpip', allowed: gpipe or 1f1b; nearest is gpipe\n"},
    {"schedule -k 2 -m 2 --backward 5",
     "frostline schedule: --backward: found '5', allowed: 1 to 4 ticks\n"},
    {"schedule extra -k 2 -m 2", "frostline schedule: unexpected 'extra'" SEE("schedule")},
    {"help frob", "frostline: unknown command 'frob'; see frostline --help\n"},
    {"schema train.lrr", "frostline schema: 'train.lrr': unknown field, nearest is train.lr\n"},
    {"schema train",
     "frostline schema: 'train': a section, set one of its fields: epochs, batch, accumulate, "
     "precision, "
     "optimizer, lr, layer_decay, weight_decay, beta1, beta2, epsilon, momentum, warmup, decay, "
     "clip, seed, max_steps, evaluate, evaluate_every, evaluate_samples, metric, stop_after, "
     "stop_margin, on_nonfinite, "
     "hash_weights\n"},
    {"schema --yaml --markdown",
     "frostline schema: give only one of FIELD, --yaml and --markdown\n"},
    {"run no.yaml", "no.yaml: cannot be opened: No such file or directory\n"},
    {"validate no.yaml", "no.yaml: cannot be opened: No such file or directory\n"},
    {"run bad.yaml", "bad.yaml:2:3: train.epoch: unknown field, nearest is train.epochs\n"},
    {"validate good.yaml --set pipe.k=many", "--set pipe.k=many: pipe.k: found 'many', allowed: "
                                             "auto, or an integer from 1 to 128 (stages)\n"},
    {"ledger nowhere", "nowhere: not a run directory, nor the name of one of the 0 runs in runs\n"},
    {"ctl watch x", "frostline ctl: watch does not take 'x'; see frostline ctl watch --help\n"},
    {"ctl stauts",
     "frostline ctl: unknown command 'stauts', nearest is status; see frostline ctl --help\n"},
    {"ctl frobnicate", "frostline ctl: unknown command 'frobnicate'; see frostline ctl --help\n"},
    {"run", "frostline run: JOB.yaml is missing; see frostline run --help\n"},
    {"list nowhere", "no runs here: there is no folder nowhere\n"},
    {"run --replay nowhere",
     "nowhere: not a run directory, nor the name of one of the 0 runs in runs\n"},
    {"diff nowhere", "frostline diff: two runs are needed; see frostline diff --help\n"},
    {"diff nowhere nowhere",
     "nowhere: not a run directory, nor the name of one of the 0 runs in runs\n"},
    {"validate good.yaml --set model.kind=gpt",
     "--set model.kind=gpt: model.kind: found 'gpt', allowed: vit, plugin, hf or gpt2; nearest is "
     "gpt2\n"},
};

static void test_cli__what_is_wrong_goes_to_standard_error_with_2(void **state)
{
    (void)state;
    cli_save("bad.yaml", "train:\n  epoch: 3\n");
    cli_save("good.yaml", "name: good\n");
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        cli_run(refusals[i].arguments);
        if (cli_result.exit_code != 2 || cli_result.out[0] != '\0' ||
            strcmp(cli_result.err, refusals[i].err) != 0) {
            fail_msg("frostline %s\nexpected 2 and %s\ngot %d, standard output '%s', and %s",
                     refusals[i].arguments, refusals[i].err, cli_result.exit_code, cli_result.out,
                     cli_result.err);
        }
    }
}

/* A cli_folder in place of the trace was answered with an error of the JSON parser. */
static void test_cli__trace_report_says_what_it_takes(void **state)
{
    (void)state;
    static const refused cases[] = {
        {"trace-report empty",
         "empty: a folder without a trace found, a trace-A-B.json or a run directory with one "
         "expected; trace.steps in the job or frostline ctl trace takes one\n"},
        {"trace-report nothing",
         "nothing: no such file, and no run of this name in runs; a trace-A-B.json or a run with "
         "one expected\n"},
        {"trace-report text.json", "text.json:1:2: '[' or '{' expected near 'no'; a trace-A-B.json "
                                   "of a run directory expected\n"},
        {"trace-report one", "one/trace-1-2.json: no \"frostline\": it is not a trace of this "
                             "program\n"},
    };
    run_command(cli_folder,
                "mkdir -p empty one two && echo '{}' >one/trace-1-2.json && "
                "touch two/trace-1-2.json two/trace-3-4.json two/trace.txt && "
                "echo no >text.json",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_run(cases[i].arguments);
        assert_string_equal(cli_result.err, cases[i].err);
        assert_string_equal(cli_result.out, "");
        assert_int_equal(cli_result.exit_code, 2);
    }
    cli_run("trace-report two");
    assert_non_null(
        strstr(cli_result.err, "two: a folder with 2 traces found; name one of them: "));
    assert_non_null(strstr(cli_result.err, "trace-3-4.json"));
    assert_int_equal(cli_result.exit_code, 2);
}

static void test_cli__export_writes_files_whole_or_not_at_all(void **state)
{
    (void)state;
    static const refused cases[] = {
        {"export", "frostline export: RUN is missing" SEE("export")},
        {"export nothing",
         "nothing: not a run directory, nor the name of one of the 0 runs in runs\n"},
        {"export curves --format xlsx", "--format: found xlsx, allowed: tensorboard or csv\n"},
        {"export curves --out a-file",
         "--out: a-file is a file; allowed: a folder, or a new name\n"},
        {"export curves --out no/where", "--out: no/where: No such file or directory\n"},
    };
    run_command(cli_folder,
                "mkdir -p curves runs && touch a-file && "
                "echo '{\"event\":\"run.started\",\"job\":\"j\"}' >curves/events.jsonl && "
                "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":2}' >curves/steps.jsonl",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_run(cases[i].arguments);
        assert_string_equal(cli_result.err, cases[i].err);
        assert_string_equal(cli_result.out, "");
        assert_int_equal(cli_result.exit_code, 2);
    }
    cli_run("export curves");
    assert_string_equal(strrchr(cli_result.out, '/'), "/events.out.tfevents.frostline\n"
                                                      "1 step, 0 evaluations\n");
    cli_run("export curves --format csv --out tables");
    assert_string_equal(cli_result.out,
                        "tables/steps.csv\ntables/evaluations.csv\n1 step, 0 evaluations\n");
    run_command(cli_folder, "ls -A curves tables", &cli_result); /* nothing half-written is left */
    assert_string_equal(cli_result.out, "curves:\nevents.jsonl\nevents.out.tfevents.frostline\n"
                                        "steps.jsonl\n\ntables:\nevaluations.csv\nsteps.csv\n");
    run_command(cli_folder, "rm -rf runs", &cli_result);
}

/* The page was renamed over what had the name: as root, "--out /dev/null" destroyed the device. */
static void test_cli__a_file_that_is_named_replaces_no_device_pipe_or_link(void **state)
{
    (void)state;
    static const refused cases[] = {
        {"report odd --out pipe", "--out: pipe is a pipe, which is left"},
        {"report odd --out link", "--out: link is a symbolic link, which is left"},
        {"report odd --out odd", "--out: odd is a folder, which is left"},
        {"report odd --out -", "--out: found -; allowed: the path of a file"},
        {"export odd --format csv --out t", "cannot write: t/steps.csv is a symbolic link, which"},
        {"pages p", "frostline pages: cannot write: p/man/man1/frostline.1 is a pipe, which is"},
        {"key pipe", "pipe: exists already"},
        {"key link", "link: exists already"},
    };
    run_command(cli_folder,
                "mkdir -p odd t p/man/man1 runs && mkfifo pipe p/man/man1/frostline.1 && "
                "ln -s none link && ln -s none t/steps.csv && "
                "echo '{\"event\":\"run.started\",\"job\":\"j\"}' >odd/events.jsonl && "
                "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":2}' >odd/steps.jsonl && "
                "find odd t p pipe* link* | sort >before",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_run(cases[i].arguments);
        if (cli_result.exit_code != 2 || strstr(cli_result.err, cases[i].err) == NULL) {
            fail_msg("frostline %s: %d, %s", cases[i].arguments, cli_result.exit_code,
                     cli_result.err);
        }
    }
    run_command(
        cli_folder,
        "test -p pipe && test -L link && test -L t/steps.csv && "
        "find odd t p pipe* link* | sort | diff before - && rm -rf odd t p runs pipe link before",
        &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
}

static void test_cli__help_goes_to_standard_output_with_0(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"--help", "help"},
        {"-h", "help"},
        {"run --help", "help run"},
        {"run x y z -h", "help run"},
        {"schedule --help", "help schedule"},
        {"help --help", "help help"},
        {"validate --help", "help validate"},
        {"ledger -h", "help ledger"},
        {"schema --help", "help schema"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        cli_run(same[i][0]);
        assert_int_equal(cli_result.exit_code, 0);
        assert_string_equal(cli_result.err, "");
        assert_int_equal(strncmp(cli_result.out, "usage: frostline ", 17), 0);
        char *first = strdup(cli_result.out);
        cli_run(same[i][1]);
        assert_int_equal(cli_result.exit_code, 0);
        assert_string_equal(cli_result.out, first);
        free(first);
    }
    for (int i = 0; fl_commands[i] != NULL; i++) { /* none wraps on a terminal */
        char command[64];
        assert_null(fl_commands[i]->options[FL_CLI_OPTIONS_MAX - 1].name); /* the empty one */
        snprintf(command, sizeof command, "help %s", fl_commands[i]->name);
        cli_run(command);
        assert_int_equal(cli_result.exit_code, 0);
        for (const char *line = cli_result.out; *line != 0; line += strcspn(line, "\n") + 1) {
            if (strcspn(line, "\n") > 80) {
                fail_msg("frostline %s: %s", command, line);
            }
        }
    }
    cli_run("--version");
    assert_int_equal(cli_result.exit_code, 0);
    assert_string_equal(cli_result.out, "frostline " FL_VERSION "\n");
}

static void assert_plain(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c >= 0x7F || ((unsigned char)*c < 0x20 && *c != '\n')) {
            fail_msg("byte 0x%02X in\n%s", (unsigned)(unsigned char)*c, text);
        }
    }
}

/* In a pipe, even in a UTF-8 locale: would catch colours, and lines drawn for a terminal. */
static void test_cli__no_control_characters_in_a_pipe(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "--help",
        "schedule -k 3 -m 4 --backward 2",
        "schedule -k 3 -m 4 --json",
        "schema",
        "schema --yaml",
        "schema --markdown",
    };
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("TERM", "xterm-256color", 1);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cli_run(commands[i]);
        assert_int_equal(cli_result.exit_code, 0);
        assert_string_equal(cli_result.err, "");
        assert_plain(cli_result.out);
    }
    cli_run("validate \"$(printf 'no\\033]0;x\\007.yaml')\"");
    assert_int_equal(cli_result.exit_code, 2);
    assert_plain(cli_result.err);
    unsetenv("LC_ALL");
}

/* Where the terminal can show it, and only there. */
static void test_cli__schedule_draws_unicode_on_a_terminal_that_can(void **state)
{
    (void)state;
    char command[4096];
    run_command(NULL, "script -qec true /dev/null", &cli_result);
    if (cli_result.exit_code != 0) {
        skip(); /* util-linux makes the terminal, where there is a /dev/pts */
    }
    snprintf(command, sizeof command, "script -qec '%s/frostline schedule -k 2 -m 2' /dev/null",
             FL_BINARY_DIR);
    setenv("LC_ALL", "C.UTF-8", 1);
    run_command(cli_folder, command, &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    assert_non_null(strstr(cli_result.out, "\xC2\xB7"));
    setenv("LC_ALL", "C", 1);
    run_command(cli_folder, command, &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    assert_null(strstr(cli_result.out, "\xC2\xB7"));
    assert_non_null(strstr(cli_result.out, "F0 F1 .  B0 .  B1"));
    unsetenv("LC_ALL");
}

static void test_cli__options_may_be_written_in_each_way(void **state)
{
    (void)state;
    static const char *const same[] = {
        "-k 3 -m 4 --schedule gpipe",
        "-k3 -m4 --schedule=gpipe",
        "--stages 3 --micro-batches=4 --schedule gpipe",
        "-k=3 -m=4 --schedule gpipe",
        "-k 9 -k 3 -m 4 --schedule 1f1b --schedule gpipe", /* the last one counts */
    };
    char first[OUTPUT_MAX] = "";
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "schedule %s", same[i]);
        cli_run(arguments);
        assert_int_equal(cli_result.exit_code, 0);
        if (i == 0) {
            snprintf(first, sizeof first, "%s", cli_result.out);
        }
        assert_string_equal(cli_result.out, first);
    }
}

static void test_cli__output_that_cannot_be_written_is_a_failure(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    cli_run("schema --yaml >/dev/full");
    assert_int_equal(cli_result.exit_code, 3);
    assert_string_equal(cli_result.err, "frostline: standard output could not be written\n");
}

static void test_cli__a_key_is_never_overwritten(void **state)
{
    (void)state;
    cli_save("mine", "secret");
    cli_run("key mine");
    assert_string_equal(cli_result.err, "mine: exists already; a key is never overwritten\n");
    assert_int_equal(cli_result.exit_code, 2);
    run_command(cli_folder, "cat mine", &cli_result);
    assert_string_equal(cli_result.out, "secret");
}

/* "-1" was an option of nobody. */
static void test_cli__a_negative_number_is_an_argument(void **state)
{
    (void)state;
    run_command(cli_folder, "mkdir -p runs", &cli_result);
    cli_run("ctl freeze -1");
    assert_string_equal(cli_result.err, "no live run in runs; name a run directory\n");
    cli_run("ctl nosuch status");
    assert_non_null(strstr(cli_result.err, "nosuch: not a run directory"));
    run_command(cli_folder, "rmdir runs", &cli_result);
    cli_run("ctl nosuch status");
    assert_string_equal(cli_result.err,
                        "nosuch: not a run directory, and there is no live run in runs\n");
    run_command(cli_folder, "mkdir runs", &cli_result);
    cli_run("run -1");
    assert_string_equal(cli_result.err, "frostline run: unknown option '-1'" SEE("run"));
    run_command(cli_folder, "rmdir runs", &cli_result);
}

static void test_cli__setup_says_what_it_found(void **state)
{
    (void)state;
    run_command(cli_folder, FL_SOURCE_DIR "/setup --dry-run", &cli_result);
    if (cli_result.exit_code == 0) {
        assert_string_equal(cli_result.out, "setup: nothing is missing\n");
    } else {
        assert_non_null(strstr(cli_result.out, "setup: these packages are missing:\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli__what_is_wrong_goes_to_standard_error_with_2),
        cmocka_unit_test(test_cli__trace_report_says_what_it_takes),
        cmocka_unit_test(test_cli__export_writes_files_whole_or_not_at_all),
        cmocka_unit_test(test_cli__a_file_that_is_named_replaces_no_device_pipe_or_link),
        cmocka_unit_test(test_cli__help_goes_to_standard_output_with_0),
        cmocka_unit_test(test_cli__no_control_characters_in_a_pipe),
        cmocka_unit_test(test_cli__schedule_draws_unicode_on_a_terminal_that_can),
        cmocka_unit_test(test_cli__options_may_be_written_in_each_way),
        cmocka_unit_test(test_cli__output_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(test_cli__a_key_is_never_overwritten),
        cmocka_unit_test(test_cli__a_negative_number_is_an_argument),
        cmocka_unit_test(test_cli__setup_says_what_it_found),
    };
    return cmocka_run_group_tests(tests, cli_make_folder, cli_remove_folder);
}
