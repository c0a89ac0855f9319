/* The program as its users meet it: exit codes, and what goes to which stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "launcher/cli/ctl/ctl_show.h"
#include "launcher/main/commands.h"
#include "support/shell.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FASHION "/usr/share/datasets/fashion-mnist"
#define SEE(command) "; see frostline " command " --help\n"

static char *folder; /* of this test program, where commands run */
static output result;

static void frostline(const char *arguments)
{
    char command[4096];
    snprintf(command, sizeof command, FL_BINARY_DIR "/frostline %s", arguments);
    run_command(folder, command, &result);
}

static void save(const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* One command line that is refused: nothing on standard output, this on standard error, and 2. */
typedef struct refused {
    const char *arguments;
    const char *err;
} refused;

static const refused refusals[] = {
    {"", "frostline: a command is missing; see frostline --help\n"},
    {"rnu x", "frostline: unknown command 'rnu', nearest is run; see frostline --help\n"},
    {"Validate",
     "frostline: unknown command 'Validate', nearest is validate; see frostline --help\n"},
    {"frobnicate", "frostline: unknown command 'frobnicate'; see frostline --help\n"},
    {"--verbose", "frostline: unknown command '--verbose'; see frostline --help\n"},
    {"$(printf '\\033[31m')", "frostline: unknown command '\\x1B[31m'; see frostline --help\n"},
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
    save("bad.yaml", "train:\n  epoch: 3\n");
    save("good.yaml", "name: good\n");
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        frostline(refusals[i].arguments);
        if (result.exit_code != 2 || result.out[0] != '\0' ||
            strcmp(result.err, refusals[i].err) != 0) {
            fail_msg("frostline %s\nexpected 2 and %s\ngot %d, standard output '%s', and %s",
                     refusals[i].arguments, refusals[i].err, result.exit_code, result.out,
                     result.err);
        }
    }
}

/* A folder in place of the trace was answered with an error of the JSON parser. */
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
    run_command(folder,
                "mkdir -p empty one two && echo '{}' >one/trace-1-2.json && "
                "touch two/trace-1-2.json two/trace-3-4.json two/trace.txt && "
                "echo no >text.json",
                &result);
    assert_int_equal(result.exit_code, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        frostline(cases[i].arguments);
        assert_string_equal(result.err, cases[i].err);
        assert_string_equal(result.out, "");
        assert_int_equal(result.exit_code, 2);
    }
    frostline("trace-report two");
    assert_non_null(strstr(result.err, "two: a folder with 2 traces found; name one of them: "));
    assert_non_null(strstr(result.err, "trace-3-4.json"));
    assert_int_equal(result.exit_code, 2);
}

static void test_cli__export_writes_files_whole_or_not_at_all(void **state)
{
    (void)state;
    static const refused cases[] = {
        {"export", "frostline export: RUN is missing" SEE("export")},
        {"export nothing",
         "nothing: not a run directory, nor the name of one of the 0 runs in runs\n"},
        {"export curves --format xlsx", "--format: found xlsx, allowed: tensorboard or csv\n"},
        {"export curves --out a-file", "--out: a-file is not a folder\n"},
        {"export curves --out no/where", "no/where: No such file or directory\n"},
    };
    run_command(folder,
                "mkdir -p curves runs && touch a-file && "
                "echo '{\"event\":\"run.started\",\"job\":\"j\"}' >curves/events.jsonl && "
                "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":2}' >curves/steps.jsonl",
                &result);
    assert_int_equal(result.exit_code, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        frostline(cases[i].arguments);
        assert_string_equal(result.err, cases[i].err);
        assert_string_equal(result.out, "");
        assert_int_equal(result.exit_code, 2);
    }
    frostline("export curves");
    assert_string_equal(strrchr(result.out, '/'), "/events.out.tfevents.frostline\n"
                                                  "1 step, 0 evaluations\n");
    frostline("export curves --format csv --out tables");
    assert_string_equal(result.out,
                        "tables/steps.csv\ntables/evaluations.csv\n1 step, 0 evaluations\n");
    run_command(folder, "ls -A curves tables", &result); /* nothing half-written is left */
    assert_string_equal(result.out, "curves:\nevents.jsonl\nevents.out.tfevents.frostline\n"
                                    "steps.jsonl\n\ntables:\nevaluations.csv\nsteps.csv\n");
    run_command(folder, "rm -rf runs", &result);
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
        frostline(same[i][0]);
        assert_int_equal(result.exit_code, 0);
        assert_string_equal(result.err, "");
        assert_int_equal(strncmp(result.out, "usage: frostline ", 17), 0);
        char *first = strdup(result.out);
        frostline(same[i][1]);
        assert_int_equal(result.exit_code, 0);
        assert_string_equal(result.out, first);
        free(first);
    }
    for (int i = 0; fl_commands[i] != NULL; i++) { /* none wraps on a terminal */
        char command[64];
        assert_null(fl_commands[i]->options[FL_CLI_OPTIONS_MAX - 1].name); /* the empty one */
        snprintf(command, sizeof command, "help %s", fl_commands[i]->name);
        frostline(command);
        assert_int_equal(result.exit_code, 0);
        for (const char *line = result.out; *line != 0; line += strcspn(line, "\n") + 1) {
            if (strcspn(line, "\n") > 80) {
                fail_msg("frostline %s: %s", command, line);
            }
        }
    }
    frostline("--version");
    assert_int_equal(result.exit_code, 0);
    assert_string_equal(result.out, "frostline " FL_VERSION "\n");
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
        frostline(commands[i]);
        assert_int_equal(result.exit_code, 0);
        assert_string_equal(result.err, "");
        assert_plain(result.out);
    }
    frostline("validate \"$(printf 'no\\033]0;x\\007.yaml')\"");
    assert_int_equal(result.exit_code, 2);
    assert_plain(result.err);
    unsetenv("LC_ALL");
}

/* Where the terminal can show it, and only there. */
static void test_cli__schedule_draws_unicode_on_a_terminal_that_can(void **state)
{
    (void)state;
    char command[4096];
    run_command(NULL, "script -qec true /dev/null", &result);
    if (result.exit_code != 0) {
        skip(); /* util-linux makes the terminal, where there is a /dev/pts */
    }
    snprintf(command, sizeof command, "script -qec '%s/frostline schedule -k 2 -m 2' /dev/null",
             FL_BINARY_DIR);
    setenv("LC_ALL", "C.UTF-8", 1);
    run_command(folder, command, &result);
    assert_int_equal(result.exit_code, 0);
    assert_non_null(strstr(result.out, "\xC2\xB7"));
    setenv("LC_ALL", "C", 1);
    run_command(folder, command, &result);
    assert_int_equal(result.exit_code, 0);
    assert_null(strstr(result.out, "\xC2\xB7"));
    assert_non_null(strstr(result.out, "F0 F1 .  B0 .  B1"));
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
        frostline(arguments);
        assert_int_equal(result.exit_code, 0);
        if (i == 0) {
            snprintf(first, sizeof first, "%s", result.out);
        }
        assert_string_equal(result.out, first);
    }
}

static void test_cli__output_that_cannot_be_written_is_a_failure(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    frostline("schema --yaml >/dev/full");
    assert_int_equal(result.exit_code, 3);
    assert_string_equal(result.err, "frostline: standard output could not be written\n");
}

static void need_data(void)
{
    if (access(FASHION "/train-images-idx3-ubyte.gz", R_OK) != 0) {
        skip();
    }
}

static void validate(const char *job, int exit_code, const char *out, const char *err)
{
    save("job.yaml", job);
    frostline("validate job.yaml");
    if (result.exit_code != exit_code || strcmp(result.out, out) != 0 ||
        strcmp(result.err, err) != 0) {
        fail_msg("for\n%sexpected %d, '%s', '%s'\ngot %d, '%s', '%s'", job, exit_code, out, err,
                 result.exit_code, result.out, result.err);
    }
}

/* Checks that need the data set, the model and the machine point at the job's lines too. */
static void test_cli__validate_points_at_the_job_for_what_other_folders_find(void **state)
{
    (void)state;
    need_data();
    validate("name: small\nmodel: {blocks: 2, dim: 32}\n", 0,
             "job.yaml: good\n"
             "  model  vit, 6 layers in 2 blocks, 27978 parameters\n"
             "  data   idx, 60000 samples to train on, 10000 to test on\n",
             "");
    validate("name: few\nmodel: {blocks: 2, dim: 32}\ndata: {samples: 2000}\n", 0,
             "job.yaml: good\n"
             "  model  vit, 6 layers in 2 blocks, 27978 parameters\n"
             "  data   idx, 2000 samples (of 60000) to train on, 10000 to test on\n",
             "");
    validate("data:\n  path: ./nowhere\n", 2, "",
             "job.yaml:2:9: data.path: ./nowhere: neither train-images-idx3-ubyte nor "
             "train-images-idx3-ubyte.gz found\n");
    validate("model: {patch: 5}\n", 2, "",
             "job.yaml:1:16: model.patch: found 5, allowed: a divisor of the height and the width "
             "of the images that the model sees, 28 x 28 pixels\n");
    save("job.yaml", "devices: {count: 9}\nmodel: {blocks: 2, dim: 32}\npipe:\n  k: 9\n");
    frostline("validate job.yaml");
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(strncmp(result.err, "job.yaml:4:6: pipe.k: ", 22), 0);
    save("job.yaml", "devices:\n  memory: 1MiB\n");
    frostline("validate job.yaml");
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(strncmp(result.err, "job.yaml:2:11: devices.memory: ", 31), 0);
}

/* A setting after the end of the run is a warning, not an error: a run shortened for a trial
 * starts.
 */
static void test_cli__validate_warns_of_what_comes_after_the_end(void **state)
{
    (void)state;
    need_data();
    save("job.yaml", "model: {blocks: 4, dim: 32}\n"
                     "train: {max_steps: 20}\n"
                     "freeze: {policy: gradnorm, start: 20 steps}\n"
                     "elastic: {script: [{step: 19, k: 1}, {step: 20, k: 2}]}\n"
                     "trace: {steps: 5, start: 20}\n");
    frostline("validate job.yaml");
    assert_int_equal(result.exit_code, 0);
    assert_non_null(strstr(result.err, "job.yaml:3:35: freeze.start: comes after the last of 20 "
                                       "steps: nothing will freeze\n"));
    assert_non_null(strstr(result.err, "job.yaml:4:19: elastic.script: entry 2: step 20 is not one "
                                       "of the run's 20\n"));
    assert_non_null(strstr(result.err, "job.yaml:5:26: trace.start: step 20 is not one of the "
                                       "run's 20: nothing will be traced\n"));
    /* The decision after step 20 needs some steps to take effect: at most 64. */
    frostline("validate job.yaml --set train.max_steps=21");
    assert_int_equal(result.exit_code, 0);
    assert_non_null(strstr(result.err, "job.yaml:3:35: freeze.start: the first decision is made "
                                       "after 20 steps and would take effect "));
    assert_non_null(strstr(result.err, " steps later, not before the end of the run after 21: "
                                       "nothing will freeze\n"));
    frostline("validate job.yaml --set train.max_steps=85");
    assert_int_equal(result.exit_code, 0);
    assert_string_equal(result.err, "");
    frostline("validate job.yaml --set train.max_steps=85 --set train.evaluate_every=1");
    assert_string_equal(result.err, "");
    frostline("validate job.yaml --set train.max_steps=85 --set train.evaluate_every=10");
    assert_non_null(strstr(result.err,
                           "train.evaluate_every: 10 epochs is longer than the run of 85 "
                           "steps: the run evaluates only at its end\n"));
    frostline("validate job.yaml --set train.max_steps=85 --set 'train.evaluate_every=10 steps' "
              "--set train.evaluate=false");
    assert_non_null(strstr(result.err, "train.evaluate_every: 10 steps has no effect with "
                                       "train.evaluate false\n"));
    save("job.yaml", "model: {blocks: 4, dim: 32}\nfreeze: {policy: gradnorm, keep: 4}\n");
    frostline("validate job.yaml");
    assert_int_equal(result.exit_code, 2);
    assert_string_equal(result.err,
                        "job.yaml:2:34: freeze.keep: found 4, allowed: at most 3 of the model's 4 "
                        "blocks with freeze.policy gradnorm, which otherwise could freeze none\n");
}

#define PLUGIN FL_BINARY_DIR "/tests/plugin_"

static void test_cli__a_plugin_brings_a_model_and_its_failures_are_told(void **state)
{
    (void)state;
    need_data();
    validate("model: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 0,
             "job.yaml: good\n"
             "  model  toy, 3 layers in 1 block, 12762 parameters\n"
             "  data   idx, 60000 samples to train on, 10000 to test on\n",
             "");
    validate("name: fails\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
             "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: the plugin does not like this job\n");
    validate("name: crashes\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 3, "",
             "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: its create function was killed by "
             "signal SIGSEGV\n");
    validate("name: overflows\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 3, "",
             "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: its create function was killed by "
             "signal SIGSEGV\n");
    validate("name: fails-silently\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
             "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: its create function failed with "
             "FL_EINVAL (bad input) and gave no message\n");
    validate("name: no-model\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
             "job.yaml:2:31: model.plugin: " PLUGIN "toy.so made no model\n");
    validate("name: no-loss\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
             "job.yaml:2:31: model.plugin: " PLUGIN
             "toy.so: model 'toy' has no loss: call fl_model_set_loss\n");
    validate("model: {kind: plugin, plugin: " PLUGIN "empty.so}\n", 2, "",
             "job.yaml:1:31: model.plugin: " PLUGIN "empty.so does not export frostline_plugin\n");
    validate("model: {kind: plugin, plugin: " PLUGIN "table.so}\n", 2, "",
             "job.yaml:1:31: model.plugin: " PLUGIN
             "table.so: frostline_plugin is no plugin: define it with FL_PLUGIN\n");
    validate("name: half-data\nmodel: {kind: plugin, plugin: " PLUGIN "toy.so}\n", 2, "",
             "job.yaml:2:31: model.plugin: " PLUGIN "toy.so: the data set's table has no count\n");
    validate("model: {kind: plugin, plugin: nowhere.so}\n", 2, "",
             "job.yaml:1:31: model.plugin: ./nowhere.so: cannot open shared object file: No such "
             "file or directory\n");
    validate("model: {kind: plugin, plugin: job.yaml}\n", 2, "",
             "job.yaml:1:31: model.plugin: ./job.yaml: file too short\n");
}

/* Would catch: a plugin of another version that is called and crashes, or trains on arguments that
 * it misreads. All three would abort. */
static void test_cli__a_plugin_of_another_version_is_refused(void **state)
{
    (void)state;
    need_data();
    validate("model: {kind: plugin, plugin: " PLUGIN "old.so}\n", 2, "",
             "job.yaml:1:31: model.plugin: " PLUGIN
             "old.so: built for version 1 of Frostline's C API, this program has version 8: "
             "compile it with this version's headers\n");
    validate("model: {kind: plugin, plugin: " PLUGIN "newer.so}\n", 2, "",
             "job.yaml:1:31: model.plugin: " PLUGIN
             "newer.so: built for version 77 of Frostline's C API, this program has version 8: "
             "compile it with this version's headers\n");
    validate("model: {kind: plugin, plugin: " PLUGIN "changed.so}\n", 2, "",
             "job.yaml:1:31: model.plugin: " PLUGIN
             "changed.so: built with other headers of version 8 of Frostline's C API: compile it "
             "with those of this program\n");
}

/* Would catch: a SIGBUS from a shared object that was copied in part. */
static void test_cli__a_plugin_that_is_cut_off_is_refused(void **state)
{
    (void)state;
    static const int bytes[] = {40, 70, 500, 4096};
    char command[4096];
    need_data();
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command, "head -c %d '" PLUGIN "toy.so' > cut.so", bytes[i]);
        run_command(folder, command, &result);
        save("job.yaml", "model: {kind: plugin, plugin: cut.so}\n");
        frostline("validate job.yaml");
        assert_int_equal(result.exit_code, 2);
        assert_non_null(strstr(result.err, "job.yaml:1:31: model.plugin: ./cut.so: "));
    }
    assert_non_null(strstr(result.err, " bytes found, "));
}

/* The head of an ELF file tells the loader where to write. */
static void test_cli__a_plugin_of_garbage_ends_with_its_name(void **state)
{
    (void)state;
    need_data();
    save("job.yaml", "model: {kind: plugin, plugin: garbage.so}\n");
    for (int i = 1; i <= 8; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "cp " PLUGIN "toy.so garbage.so && n=$(stat -c %%s garbage.so) && "
                 "tr '\\0' '\\%d' </dev/zero | dd of=garbage.so bs=512 seek=%d "
                 "count=$((n / 512 - %d)) iflag=fullblock conv=notrunc",
                 300 + i, i, i);
        run_command(folder, command, &result);
        assert_int_equal(result.exit_code, 0);
        frostline("validate job.yaml");
        if ((result.exit_code != 2 && result.exit_code != 3) ||
            strstr(result.err, "model.plugin: ") == NULL ||
            strstr(result.err, "garbage.so") == NULL) {
            fail_msg("%d: exit code %d, %s", i, result.exit_code, result.err);
        }
    }
}

/* Would catch: a reader that waits for ever for a writer of a named pipe. */
static void test_cli__a_pipe_in_the_place_of_a_file_is_refused(void **state)
{
    (void)state;
    need_data();
    run_command(folder, "mkdir piped && mkfifo piped/job.yaml piped/ledger.bin piped/profile",
                &result);
    assert_int_equal(result.exit_code, 0);
    run_command(folder, "timeout 20 " FL_BINARY_DIR "/frostline ledger piped", &result);
    assert_int_equal(result.exit_code, 2);
    assert_string_equal(result.err, "piped/ledger.bin: something that is not a file found\n");
    run_command(folder, "timeout 20 " FL_BINARY_DIR "/frostline run --replay piped", &result);
    assert_int_equal(result.exit_code, 2);
    assert_string_equal(result.err, "--replay: piped/job.yaml is not a regular file\n");
    save("job.yaml", "model: {kind: plugin, plugin: " PLUGIN "toy.so}\n");
    run_command(folder,
                "timeout 20 " FL_BINARY_DIR "/frostline plan job.yaml --profile piped/profile",
                &result);
    assert_int_equal(result.exit_code, 2);
    assert_string_equal(result.err, "--profile: piped/profile: not a regular file\n");
}

/* Would catch: a reader that reads a device to its end, which it does not have. */
static void test_cli__a_device_in_the_place_of_a_file_is_refused(void **state)
{
    (void)state;
    static const char *const commands[][2] = {
        {"report endless", "endless: "},
        {"export endless", "endless: "},
        {"run --replay endless", "--replay: endless/events.jsonl: not a regular file"},
        {"run --resume endless", "--resume: endless"},
        {"list .", ""},
    };
    run_command(folder,
                "mkdir endless && ln -s /dev/zero endless/events.jsonl && "
                "ln -s /dev/zero endless/steps.jsonl && echo 'name: x' >endless/job.yaml",
                &result);
    assert_int_equal(result.exit_code, 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[512];
        snprintf(command, sizeof command, "timeout 20 " FL_BINARY_DIR "/frostline %s",
                 commands[i][0]);
        run_command(folder, command, &result);
        if (result.exit_code != (commands[i][1][0] == '\0' ? 0 : 2) ||
            strstr(result.err, commands[i][1]) == NULL) {
            fail_msg("%s: exit code %d, %s", commands[i][0], result.exit_code, result.err);
        }
    }
}

/* Would catch: a program that a signal ends before it can tell what it could not write. */
static void test_cli__a_limit_of_file_sizes_is_told(void **state)
{
    (void)state;
    need_data();
    save("job.yaml", "model: {kind: plugin, plugin: " PLUGIN "toy.so}\n"
                     "pipe: {profile: kept.yaml}\ndevices: {count: 1}\ntrain: {max_steps: 2}\n"
                     "run: {save_model: false}\n");
    run_command(folder,
                "prlimit --fsize=300 " FL_BINARY_DIR "/frostline run job.yaml --run-dir limited",
                &result);
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.err, "\njob.yaml: File too large\n"));
    run_command(folder, "rm -rf limited", &result);
}

/* Would catch: a message that names the job's run.dir when --run-dir is wrong. */
static void test_cli__a_run_directory_is_blamed_on_whom_named_it(void **state)
{
    (void)state;
    static const char job[] = "model: {kind: plugin, plugin: " PLUGIN "toy.so}\n"
                              "pipe: {profile: none}\ndevices: {count: 1}\n";
    save("job.yaml", job);
    frostline("run job.yaml --run-dir /proc/none");
    assert_int_equal(result.exit_code, 2);
    /* On a machine where other runs train, a line of warning comes first. */
    assert_non_null(
        strstr(result.err, "--run-dir: cannot make /proc/none: No such file or directory\n"));
    assert_null(strstr(result.err, "run.dir:"));
    frostline("run job.yaml --set run.dir=/proc/none");
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.err, "run.dir: cannot make /proc/none: No such file"));
}

/* Would catch: the message "no run directory" for the directory of a run that has ended. */
static void test_cli__ctl_tells_an_ended_run_from_none(void **state)
{
    (void)state;
    static const char event[] = "{\"time\": 0, \"wall\": \"2026-01-31T09:30:00.000Z\", "
                                "\"event\": \"run.finished\", \"generation\": 1, \"steps\": 3}\n";
    run_command(folder, "mkdir -p runs/done runs/theirs", &result);
    save("runs/done/events.jsonl", event);
    frostline("ctl done status");
    assert_int_equal(result.exit_code, 2);
    assert_string_equal(result.err, "done: the run is over (finished)\n");
    frostline("ctl nothing status");
    assert_string_equal(result.err, "nothing: not a run directory, nor the name of one of the 0 "
                                    "live runs in runs\n");
    run_command(folder, "chmod 0 runs/theirs", &result);
    if (geteuid() != 0) { /* root may read everything */
        frostline("ctl theirs status");
        assert_string_equal(result.err,
                            "runs/theirs: permission denied: the run belongs to another user\n");
    }
    run_command(folder, "chmod 700 runs/theirs && rm runs/done/events.jsonl", &result);
    save("runs/done/job.yaml", "name: done\n");
    frostline("ctl runs/done status");
    assert_string_equal(result.err, "runs/done: the run's events.jsonl is missing\n");
    frostline("report runs/done");
    assert_string_equal(result.err, "runs/done: the run's events.jsonl is missing\n");
    run_command(folder, "rm -r runs", &result);
}

/* Every command accepts the name of a run, and its message names this when it is given the parent
 * directory of runs. */
static void test_cli__a_run_goes_by_its_name_everywhere(void **state)
{
    (void)state;
    run_command(folder,
                "mkdir -p runs/p1 runs/p2 && for run in p1 p2; do "
                "echo '{\"event\":\"run.started\",\"job\":\"j\"}' >runs/$run/events.jsonl && "
                "echo '{\"step\":0,\"loss\":2,\"f\":0,\"k\":1,\"r\":1,\"m\":1}' "
                ">runs/$run/steps.jsonl; done; cp -r runs/p1 near",
                &result);
    assert_int_equal(result.exit_code, 0);
    frostline("diff p1 p2");
    assert_string_equal(result.err, "");
    assert_string_equal(result.out, "equal to the last bit: 1 step\n");
    frostline("diff near p2");
    assert_string_equal(result.out, "equal to the last bit: 1 step\n");
    frostline("ledger p1");
    assert_non_null(strstr(result.err, "/runs/p1/ledger.bin: No such file or directory\n"));
    frostline("run --replay p1");
    assert_non_null(strstr(result.err, "/runs/p1/job.yaml: cannot be opened: No such file"));
    frostline("ctl p1");
    assert_string_equal(result.err,
                        "frostline ctl: a command is missing; see frostline ctl --help\n");
    static const char *const commands[] = {"ledger runs", "report runs", "diff runs p1",
                                           "run --replay runs", "ctl runs status"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        frostline(commands[i]);
        assert_non_null(
            strstr(result.err, "runs: a directory of 2 runs; name one of them, as in runs/p"));
        assert_int_equal(result.exit_code, 2);
    }
    frostline("list runs/p1"); /* was an empty table */
    assert_string_equal(result.err, "runs/p1: a run directory; list its parent directory for all "
                                    "of its runs\n");
    assert_non_null(strstr(result.out, "  p1\n"));
    run_command(folder, "rm -r runs near", &result);
}

static void test_cli__a_key_is_never_overwritten(void **state)
{
    (void)state;
    save("mine", "secret");
    frostline("key mine");
    assert_string_equal(result.err, "mine: exists already; a key is never overwritten\n");
    assert_int_equal(result.exit_code, 2);
    run_command(folder, "cat mine", &result);
    assert_string_equal(result.out, "secret");
}

/* A data set smaller than the job assumes was found in an evaluation, and validate counted samples
 * that train nothing. */
static void test_cli__validate_counts_the_samples_of_each_split(void **state)
{
    (void)state;
    save("good.yaml", "name: good\n");
    frostline("validate good.yaml --set data.validation=13%");
    assert_string_equal(result.err, "");
    assert_non_null(strstr(result.out,
                           " 52200 samples (of 60000) to train on, 7800 to validate on, "
                           "10000 to test on\n"));
    frostline("validate good.yaml --set train.evaluate_samples=10000");
    assert_int_equal(result.exit_code, 0);
    frostline("validate good.yaml --set train.evaluate_samples=10001");
    assert_string_equal(result.err, "--set train.evaluate_samples=10001: train.evaluate_samples: "
                                    "10001, but there are 10000 test samples; allowed: all, or 1 "
                                    ".. 10000\n");
    assert_int_equal(result.exit_code, 2);
    frostline("validate good.yaml --set data.validation=13% --set train.evaluate_samples=7801");
    assert_non_null(strstr(result.err, "7801, but there are 7800 validation samples; allowed: "));
    frostline("validate good.yaml --set data.samples=3000 --set data.validation=100%");
    assert_string_equal(result.err,
                        "--set data.validation=100%: data.validation: found 100%, which leaves no "
                        "training sample of 3000; allowed: none, or 1 .. 2999 samples\n");
    frostline("validate good.yaml --set data.samples=1000 --set data.validation=0.01%");
    assert_non_null(strstr(result.err, "found 0.01%, which is less than one sample of 1000; "));
    frostline("validate good.yaml --set data.samples=3000 --set data.validation=2999");
    assert_string_equal(result.err, "good.yaml: train.batch: 128, but an epoch has 1 sample: "
                                    "data.validation takes the other 2999 of 3000; allowed: 1 .. "
                                    "1\n");
    assert_int_equal(result.exit_code, 2);
}

/* "-1" was an option of nobody. */
static void test_cli__a_negative_number_is_an_argument(void **state)
{
    (void)state;
    run_command(folder, "mkdir -p runs", &result);
    frostline("ctl freeze -1");
    assert_string_equal(result.err, "no live run in runs; name a run directory\n");
    frostline("ctl nosuch status");
    assert_non_null(strstr(result.err, "nosuch: not a run directory"));
    run_command(folder, "rmdir runs", &result);
    frostline("ctl nosuch status");
    assert_string_equal(result.err,
                        "nosuch: not a run directory, and there is no live run in runs\n");
    run_command(folder, "mkdir runs", &result);
    frostline("run -1");
    assert_string_equal(result.err, "frostline run: unknown option '-1'" SEE("run"));
    run_command(folder, "rmdir runs", &result);
}

/* Every worker's threads were a dash. */
static void test_cli__ctl_flight_shows_operations(void **state)
{
    (void)state;
    json_t *reply = json_loads(
        "{\"waits\": \"nobody waits\", \"workers\": [{\"rank\": 1, \"threads\": [{\"thread\": "
        "\"main\", \"inside\": [{\"operation\": \"forward\", \"generation\": 1, \"step\": 12, "
        "\"micro_batch\": 3}], \"recent\": [{\"operation\": \"recv\", \"generation\": 1, \"step\": "
        "12, \"peer\": 0, \"left_s_ago\": 0.5}]}]}]}",
        0, NULL);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(reply);
    fl_ctl_show(reply, out);
    fclose(out);
    assert_string_equal(text, "waits              nobody waits\n"
                              "workers\n"
                              "  worker 1, thread main\n"
                              "    inside  forward           step 12  micro_batch 3\n"
                              "    done    recv              step 12  peer 0  left_s_ago 0.5\n");
    free(text);
    json_decref(reply);
}

/* A run that skipped steps looked like any other. */
static void test_cli__list_and_report_show_skipped_steps(void **state)
{
    (void)state;
    run_command(folder,
                "mkdir -p runs/p1 && echo '{\"event\":\"run.started\",\"job\":\"j\",\"steps\":2}' "
                ">runs/p1/events.jsonl && echo '{\"event\":\"run.finished\",\"steps\":2,"
                "\"skipped_steps\":1}' >>runs/p1/events.jsonl && "
                "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":null,\"skipped\":true}' "
                ">runs/p1/steps.jsonl && echo '{\"step\":1,\"epoch\":0,\"ms\":1,\"loss\":2}' "
                ">>runs/p1/steps.jsonl",
                &result);
    frostline("list");
    assert_non_null(strstr(result.out, "  p1 (1 step skipped)\n"));
    frostline("report p1");
    run_command(folder, "grep -c '<dt>Skipped steps</dt><dd>1<small>' runs/p1/report.html",
                &result);
    assert_string_equal(result.out, "1\n");
    run_command(folder, "rm -r runs", &result);
}

static void test_cli__setup_says_what_it_found(void **state)
{
    (void)state;
    run_command(folder, FL_SOURCE_DIR "/setup --dry-run", &result);
    if (result.exit_code == 0) {
        assert_string_equal(result.out, "setup: nothing is missing\n");
    } else {
        assert_non_null(strstr(result.out, "setup: these packages are missing:\n"));
    }
}

static int make_folder(void **state)
{
    (void)state;
    folder = fresh_folder(FL_BINARY_DIR);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    run_command(NULL, command, &result);
    free(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli__what_is_wrong_goes_to_standard_error_with_2),
        cmocka_unit_test(test_cli__trace_report_says_what_it_takes),
        cmocka_unit_test(test_cli__export_writes_files_whole_or_not_at_all),
        cmocka_unit_test(test_cli__help_goes_to_standard_output_with_0),
        cmocka_unit_test(test_cli__no_control_characters_in_a_pipe),
        cmocka_unit_test(test_cli__schedule_draws_unicode_on_a_terminal_that_can),
        cmocka_unit_test(test_cli__options_may_be_written_in_each_way),
        cmocka_unit_test(test_cli__output_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(test_cli__validate_points_at_the_job_for_what_other_folders_find),
        cmocka_unit_test(test_cli__validate_warns_of_what_comes_after_the_end),
        cmocka_unit_test(test_cli__a_plugin_brings_a_model_and_its_failures_are_told),
        cmocka_unit_test(test_cli__a_plugin_of_another_version_is_refused),
        cmocka_unit_test(test_cli__a_plugin_that_is_cut_off_is_refused),
        cmocka_unit_test(test_cli__a_plugin_of_garbage_ends_with_its_name),
        cmocka_unit_test(test_cli__a_pipe_in_the_place_of_a_file_is_refused),
        cmocka_unit_test(test_cli__a_device_in_the_place_of_a_file_is_refused),
        cmocka_unit_test(test_cli__a_limit_of_file_sizes_is_told),
        cmocka_unit_test(test_cli__a_run_directory_is_blamed_on_whom_named_it),
        cmocka_unit_test(test_cli__ctl_tells_an_ended_run_from_none),
        cmocka_unit_test(test_cli__a_run_goes_by_its_name_everywhere),
        cmocka_unit_test(test_cli__a_key_is_never_overwritten),
        cmocka_unit_test(test_cli__validate_counts_the_samples_of_each_split),
        cmocka_unit_test(test_cli__a_negative_number_is_an_argument),
        cmocka_unit_test(test_cli__setup_says_what_it_found),
        cmocka_unit_test(test_cli__ctl_flight_shows_operations),
        cmocka_unit_test(test_cli__list_and_report_show_skipped_steps),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
