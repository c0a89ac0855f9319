/* The paths that a user names to the program: what it reads from, and what it writes to. */
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* One command line that is refused with 2: standard error has this text. */
typedef struct refused_path {
    const char *arguments, *err;
} refused_path;

static void check_refused(const refused_path *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cli_run(cases[i].arguments);
        if (cli_result.exit_code != 2 || strstr(cli_result.err, cases[i].err) == NULL ||
            cli_result.out[0] != '\0') {
            fail_msg("frostline %s: %d, %s%s", cases[i].arguments, cli_result.exit_code,
                     cli_result.err, cli_result.out);
        }
    }
}

#define CHECK_REFUSED(cases) check_refused(cases, sizeof(cases) / sizeof *(cases))

static void shell(const char *command)
{
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 0) {
        fail_msg("%s: %d, %s%s", command, cli_result.exit_code, cli_result.out, cli_result.err);
    }
}

#define MAKE_RUN                                                                                   \
    "mkdir -p odd runs && echo '{\"event\":\"run.started\",\"job\":\"j\"}' >odd/events.jsonl && "  \
    "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":2}' >odd/steps.jsonl"

/* frostline pages '' wrote /man, /zsh and others into the root folder. The first cases fail where
 * the last one would do that. */
static void test_cli_paths__an_empty_path_is_refused(void **state)
{
    (void)state;
    static const refused_path cases[] = {
        {"key ''", "frostline key: found an empty text, allowed: FILE\n"},
        {"validate ''", "frostline validate: found an empty text, allowed: JOB.yaml\n"},
        {"report odd --out ''",
         "frostline report: option --out: found an empty path, allowed: FILE"},
        {"report odd --out=", "option --out: found an empty path, allowed: FILE"},
        {"export odd --out ''", "option --out: found an empty path, allowed: DIR"},
        {"export odd --to ''", "option --to: found an empty path, allowed: DIR"},
        {"predict odd --out ''", "option --out: found an empty path, allowed: FILE"},
        {"run good.yaml --run-dir ''", "option --run-dir: found an empty path, allowed: DIR"},
        {"pages ''", "frostline pages: found an empty text, allowed: DIR\n"},
    };
    shell(MAKE_RUN);
    CHECK_REFUSED(cases);
    shell("rm -r odd runs");
}

/* A shell expands ~ neither in quotes nor behind "=". Would catch: a run in a folder of the name ~,
 * which a careless rm then takes for another one. */
static void test_cli_paths__the_home_directory_is_refused(void **state)
{
    (void)state;
#define ALLOWED "in which ~ is not expanded; allowed: the whole path, as /home/NAME"
    static const refused_path cases[] = {
        {"run good.yaml --run-dir '~/x'",
         "frostline run: option --run-dir: found '~/x', " ALLOWED "/...\n"},
        {"run good.yaml --run-dir='~'", "option --run-dir: found '~', " ALLOWED "\n"},
        {"run good.yaml --run-dir=~/x", "option --run-dir: found '~/x', " ALLOWED},
        {"report odd --out '~/x'", "option --out: found '~/x', " ALLOWED},
        {"pages '~/x'", "frostline pages: found '~/x', " ALLOWED},
        {"validate '~/job.yaml'", "frostline validate: found '~/job.yaml', " ALLOWED},
        {"validate '~x.yaml'", "~x.yaml: cannot be opened"}, /* a name as any other */
    };
    shell(MAKE_RUN);
    CHECK_REFUSED(cases);
    shell("rm -r odd runs && [ ! -e '~' ]");
}

#define TWO_LINES "\"$(printf 'a\\nb')\""

/* Would catch: a path whose second line is taken for a message of its own. */
static void test_cli_paths__a_path_of_two_lines_is_shown_in_one(void **state)
{
    (void)state;
    static const refused_path cases[] = {
        {"run " TWO_LINES, "a\\012b: cannot be opened: No such file"},
        {"run good.yaml --hosts " TWO_LINES, "a\\012b: cannot be opened: No such file"},
        {"run good.yaml --run-dir odd/" TWO_LINES, "odd/a\\012b already holds a run; name another"},
        {"run --resume odd/" TWO_LINES, "--resume: odd/a\\012b: holds no run: there is no"},
        {"plan good.yaml --cluster " TWO_LINES, "a\\012b: cannot be opened: No such file"},
        {"plan good.yaml --cluster odd/" TWO_LINES "/job.yaml",
         "odd/a\\012b/job.yaml:1:1: cluster"},
        {"validate odd/" TWO_LINES "/job.yaml", "odd/a\\012b/job.yaml:1:1: nothing: unknown field"},
        {"list odd/" TWO_LINES "/none", "there is no folder odd/a\\012b/none\n"},
        {"report odd/" TWO_LINES, "odd/a\\012b: the run's events.jsonl is missing"},
        {"evaluate " TWO_LINES, "a\\012b: not found; allowed: a folder or file of weights"},
        {"key none/" TWO_LINES, "none/a\\012b: No such file or directory\n"},
        {"tokenize " TWO_LINES, "a\\012b: no tokenizer there: neither"},
    };
    cli_save("good.yaml", "name: good\n");
    shell("mkdir -p odd/" TWO_LINES " && echo 'nothing: 1' >odd/" TWO_LINES "/job.yaml");
    CHECK_REFUSED(cases);
    cli_run("agent --join tcp://127.0.0.1:9 --name b --wait 1 --key " TWO_LINES "'\033[31m'");
    assert_non_null(
        strstr(cli_result.err, "the head to write a\\012b\\033[31m (Ctrl-C ends it)\n"));
    assert_non_null(strstr(cli_result.err, "\n--key: a\\012b\\033[31m: no such file in 1 s; "));
    shell("rm -r odd good.yaml");
}

/* Each made a folder or a file named "-". */
static void test_cli_paths__a_dash_is_no_output(void **state)
{
    (void)state;
    static const refused_path cases[] = {
        {"pages -", "DIR: found -; allowed: the path of a folder (./- for that name)"},
        {"key -", "FILE: found -; allowed: the path of a file (./- for that name)"},
        {"export odd --out -", "--out: found -; allowed: the path of a folder"},
        {"export odd --to -", "--to: found -; allowed: the path of a folder"},
        {"report odd --out -", "--out: found -; allowed: the path of a file"},
        {"run good.yaml --run-dir -", "--run-dir: found -; allowed: the path of a folder"},
        {"run dash.yaml", "dash.yaml:1:12: run.dir: found -, allowed: the path of a folder"},
        {"run good.yaml --set run.dir=-", "--set run.dir='-': run.dir: found -, allowed: the path"},
        {"run good.yaml --set checkpoint.dir=-", "checkpoint.dir: found -, allowed: the path of a"},
        {"run good.yaml --set cache.path=-", "cache.path: found -, allowed: the path of a folder"},
        {"run good.yaml --set pipe.profile=-",
         "pipe.profile: found -, allowed: the path of a file"},
    };
    shell(MAKE_RUN " && echo 'name: good' >good.yaml && echo 'run: {dir: \"-\"}' >dash.yaml");
    CHECK_REFUSED(cases);
    shell("rm -r odd runs good.yaml dash.yaml && ! ls ./-*");
    shell(FL_BINARY_DIR "/frostline key ./- && rm ./- ./-.pub");
}

/* Each had written its first files, and a new secret key. */
static void test_cli_paths__a_target_that_is_refused_leaves_the_others_unwritten(void **state)
{
    (void)state;
    static const refused_path cases[] = {
        {"export odd --format csv --out t", "cannot write: t/evaluations.csv is a symbolic link"},
        {"pages p", "cannot write: p/fish/vendor_completions.d/frostline.fish is a folder"},
        {"pages q", "cannot write: q/zsh is a file; allowed: a folder, or a new name"},
        {"key a", "a.pub: exists already; a key is never overwritten"},
        {"key b", "b.pub: exists already; a key is never overwritten"},
    };
    shell(MAKE_RUN " && mkdir -p t p/fish/vendor_completions.d/frostline.fish q && "
                   "ln -s none t/evaluations.csv && touch q/zsh a.pub && ln -s none b.pub && "
                   "find odd t p q a* b* | grep -v before | sort >before");
    CHECK_REFUSED(cases);
    shell("find odd t p q a* b* | grep -v before | sort | diff before - && "
          "rm -r odd runs t p q a.pub b.pub before");
}

/* frostline manifest PIPE waited for ever. */
static void test_cli_paths__a_pipe_that_nothing_writes_to_is_refused(void **state)
{
    (void)state;
    cli_save("good.yaml", "name: good\n");
    shell(
        "mkfifo pipe && for c in 'manifest --hosts 2' validate 'plan good.yaml --cluster' "
        "'run good.yaml --hosts' trace-report 'ctl tcp://127.0.0.1:7 status --key pipe --server'; "
        "do timeout 60 " FL_BINARY_DIR "/frostline $c pipe 2>err.${c%% *} & p=\"$p $!\"; done; "
        "for i in $p; do wait $i; [ $? = 2 ] || exit 1; done; "
        "for f in err.*; do grep -q '^pipe: cannot be read: a pipe, and no program writes to it$' "
        "$f || { cat $f; exit 1; }; done; rm err.* pipe good.yaml");
}

static void test_cli_paths__what_has_no_end_is_refused(void **state)
{
    (void)state;
    static const refused_path cases[] = {
        {"validate /dev/zero",
         "/dev/zero: cannot be read: found a device, allowed: a file, a pipe"},
        {"manifest /dev/zero --hosts 2", "/dev/zero: cannot be read: found a device"},
        {"plan good.yaml --cluster /dev/zero", "/dev/zero: cannot be read: found a device"},
        {"trace-report /dev/zero", "/dev/zero: cannot be read: found a device"},
        {"validate runs", "runs: cannot be read: found a folder, allowed: a file, a pipe"},
    };
    shell("mkdir runs");
    cli_save("good.yaml", "name: good\n");
    CHECK_REFUSED(cases);
    shell("rm -r runs good.yaml");
}

static void test_cli_paths__a_job_may_come_from_a_pipe(void **state)
{
    (void)state;
    cli_save("bad.yaml", "train: {epoch: 1}\n");
    run_command(cli_folder, "cat bad.yaml | " FL_BINARY_DIR "/frostline validate /dev/stdin",
                &cli_result);
    assert_string_equal(cli_result.err, "/dev/stdin:1:9: train.epoch: unknown field, nearest is "
                                        "train.epochs\n");
    run_command(cli_folder,
                "mkfifo late; { sleep 0.1; cat bad.yaml >late; } & " FL_BINARY_DIR
                "/frostline validate late; c=$?; wait; rm late; exit $c",
                &cli_result);
    assert_string_equal(cli_result.err, "late:1:9: train.epoch: unknown field, nearest is "
                                        "train.epochs\n");
    run_command(cli_folder, "yes '# x' | " FL_BINARY_DIR "/frostline validate /dev/stdin",
                &cli_result);
    assert_string_equal(
        cli_result.err,
        "/dev/stdin: yaml: found more than 131072 bytes, allowed: at most as many\n");
    assert_int_equal(cli_result.exit_code, 2);
    shell("rm bad.yaml");
}

/* Would catch: "found nothing" of the second read, at a place in /dev/fd. */
static void test_cli_paths__a_task_of_an_engine_reads_no_pipe(void **state)
{
    (void)state;
    cli_save("good.yaml", "name: good\n");
    run_command(cli_folder,
                "export SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 "
                "SLURM_STEP_NUM_NODES=2 SLURM_PROCID=1 SLURM_NODEID=1 "
                "'SLURM_STEP_NODELIST=n[1-2]'; cat good.yaml | " FL_BINARY_DIR
                "/frostline run /dev/stdin",
                &cli_result);
    assert_string_equal(cli_result.err,
                        "/dev/stdin: found a pipe, allowed: a file: each task of Slurm or mpirun "
                        "reads the job itself, and more than once\n");
    assert_int_equal(cli_result.exit_code, 2);
    shell("rm good.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli_paths__an_empty_path_is_refused),
        cmocka_unit_test(test_cli_paths__the_home_directory_is_refused),
        cmocka_unit_test(test_cli_paths__a_path_of_two_lines_is_shown_in_one),
        cmocka_unit_test(test_cli_paths__a_dash_is_no_output),
        cmocka_unit_test(test_cli_paths__a_target_that_is_refused_leaves_the_others_unwritten),
        cmocka_unit_test(test_cli_paths__a_pipe_that_nothing_writes_to_is_refused),
        cmocka_unit_test(test_cli_paths__what_has_no_end_is_refused),
        cmocka_unit_test(test_cli_paths__a_job_may_come_from_a_pipe),
        cmocka_unit_test(test_cli_paths__a_task_of_an_engine_reads_no_pipe),
    };
    return cmocka_run_group_tests(tests, cli_make_folder, cli_remove_folder);
}
