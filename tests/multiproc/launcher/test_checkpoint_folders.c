/* The folders of checkpoints: which run one belongs to, and what is in it that is no checkpoint.
 * Would catch: a run that removes or overwrites checkpoints of another; a folder that blocks a run
 * for ever; a place named in the job that has no effect. */
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline"
#define FILES "find . -type f ! -path ./before -exec sha1sum {} + | sort"

static output refused;

/* The command ends with exit code 2 and this text, and no file has changed. */
static void must_refuse(const char *command, const char *text)
{
    cli_must_run(FILES " >before");
    run_command(cli_folder, command, &refused);
    if (refused.exit_code != 2 || strstr(refused.err, text) == NULL) {
        fail_msg("%s: exit code %d: %s", command, refused.exit_code, refused.err);
    }
    cli_must_run(FILES " | diff before - && rm before");
}

static int make_job(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 100);
    cli_must_run("cat >job.yaml <<'END'\n"
                 "name: small\n"
                 "model: {blocks: 1, dim: 8, heads: 1, patch: 7}\n"
                 "data: {path: data}\n"
                 "train: {batch: 10, epochs: 2, evaluate: false, seed: 1}\n"
                 "devices: {count: 1}\n"
                 "pipe: {tune: false, profile: none}\n"
                 "checkpoint: {every: 10 steps}\n"
                 "END\n");
    return 0;
}

/* ---- whose it is ---- */

static void test_folders__of_another_run_are_refused(void **state)
{
    (void)state;
    cli_must_run("mkdir a b && " PROGRAM
                 " run job.yaml --run-dir a/first --set checkpoint.dir=$PWD/S");
    must_refuse(PROGRAM " run job.yaml --run-dir b/first --set checkpoint.dir=$PWD/S",
                "checkpoint.dir: ");
    assert_non_null(strstr(refused.err, "/S/first has the checkpoints of the run "));
    assert_non_null(strstr(refused.err, "/a/first; name another folder"));
    cli_must_run(PROGRAM " run --resume a/first --set train.epochs=3");
    cli_must_run(
        "mkdir -p d && cp -r a/first/checkpoints/. d/checkpoints && rm d/checkpoints/owner");
    must_refuse(PROGRAM " run job.yaml --run-dir d",
                "d/checkpoints has the checkpoints of the run");
    cli_must_run("rm -r a b d S");
}

/* Would catch: an empty directory of a run for each start that failed, and the loss of a directory
 * that was there before. */
static void test_folders__leave_no_run_directory_if_they_are_refused(void **state)
{
    (void)state;
    must_refuse(PROGRAM " run job.yaml --set checkpoint.dir=/dev/null/S",
                "checkpoint.dir: cannot make /dev/null/S");
    cli_must_run("rmdir runs"); /* it is empty */
    must_refuse(PROGRAM " run job.yaml --run-dir new/first --set checkpoint.dir=/dev/null/S",
                "checkpoint.dir: cannot make /dev/null/S");
    cli_must_run("rmdir new && mkdir first");
    must_refuse(PROGRAM " run job.yaml --run-dir first --set checkpoint.dir=/dev/null/S",
                "checkpoint.dir: cannot make /dev/null/S");
    cli_must_run("rmdir first");
}

/* A copy of the run directory has a link to the same folder; the run itself may move. */
static void test_folders__follow_a_run_that_moves_and_no_copy(void **state)
{
    (void)state;
    cli_must_run("mkdir a && " PROGRAM
                 " run job.yaml --run-dir a/first --set checkpoint.dir=$PWD/S");
    cli_must_run("cp -r a/first a/copy");
    must_refuse(PROGRAM " run --resume a/copy --set train.epochs=3",
                "has the checkpoints of the run ");
    cli_must_run("rm -r a/copy && mv a/first a/moved");
    cli_must_run(PROGRAM " run --resume a/moved --set train.epochs=3");
    cli_must_run("grep -q /a/moved S/first/owner && rm -r a S");
}

/* Two that start at the same moment: one of them trains. */
static void test_folders__go_to_one_of_two_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        cli_must_run(
            "mkdir a b\n" PROGRAM " run job.yaml --run-dir a/first --set checkpoint.dir=$PWD/S"
            " >a/log 2>&1 & " PROGRAM " run job.yaml --run-dir b/first"
            " --set checkpoint.dir=$PWD/S >b/log 2>&1; second=$?\n"
            "wait $!; first=$?\n"
            "[ $((first + second)) = 2 ] || { cat a/log b/log >&2; exit 1; }\n"
            "grep -q 'S/first is in use by\\|S/first has the checkpoints' a/log b/log || exit 1\n"
            "[ -e S/first/step-000000020/manifest.json ] && rm -r a b S");
    }
}

static void test_folders__that_stay_empty_are_removed(void **state)
{
    (void)state;
    cli_must_run(PROGRAM " run job.yaml --run-dir a --set checkpoint.dir=$PWD/S"
                         " --set checkpoint.every=none");
    cli_must_run("[ ! -e S/a ] && [ ! -L a/checkpoints ] && rm -r a S");
}

/* ---- another place ---- */

static void test_folders__may_move(void **state)
{
    (void)state;
    cli_must_run(PROGRAM " run job.yaml --run-dir first");
    must_refuse(PROGRAM " run --resume first --set train.epochs=3 --set checkpoint.dir=$PWD/T",
                "to continue it with checkpoints elsewhere, move that folder to ");
    cli_must_run("mkdir T && mv first/checkpoints T/first");
    must_refuse(PROGRAM " run --resume first --set train.epochs=3", "found no checkpoint in ");
    must_refuse(PROGRAM " run --resume first --set train.epochs=3 --set checkpoint.dir=$PWD/U",
                "/U/first: no such folder");
    cli_must_run(PROGRAM " run --resume first --set train.epochs=3 --set checkpoint.dir=$PWD/T");
    cli_must_run("[ -L first/checkpoints ] && [ -e T/first/step-000000030/manifest.json ]");
    cli_must_run("mv T U");
    must_refuse(PROGRAM " run --resume first --set train.epochs=4",
                "/T/first, which is not there; if that folder was moved to DIR/NAME");
    cli_must_run(PROGRAM " run --resume first --set train.epochs=4 --set checkpoint.dir=$PWD/U");
    cli_must_run("[ -e U/first/step-000000040/manifest.json ] && rm -r first U");
}

/* ---- what is in it beside checkpoints ---- */

/* What is no file of a checkpoint stays, is named, and blocks nothing. */
static void test_folders__keep_what_is_foreign(void **state)
{
    (void)state;
    cli_must_run(PROGRAM
                 " run job.yaml --run-dir x && cd x/checkpoints &&"
                 " cp -r step-000000020 step-000000025 &&"
                 " truncate -s 100 step-000000025/manifest.json && mkdir step-000000025/mine &&"
                 " mkdir -p step-000000015/notes && mkdir ../../elsewhere &&"
                 " echo text >../../elsewhere/manifest.json &&"
                 " ln -s ../../elsewhere step-000000888");
    cli_must_run(PROGRAM " run --resume x --set train.epochs=3 2>err");
    cli_must_run("grep 'step-000000025: mine is no file of a checkpoint: it stays' err &&"
                 " grep 'step-000000015: notes is no file of a checkpoint: it stays' err &&"
                 " grep 'step-000000888 is not a folder of this run: it stays' err");
    cli_must_run("[ -d x/checkpoints/step-000000015/notes ] && [ -e elsewhere/manifest.json ] &&"
                 " [ -L x/checkpoints/step-000000888 ] &&"
                 " [ -e x/checkpoints/step-000000030/manifest.json ] && rm -r x elsewhere");
}

#define TEST(name) cmocka_unit_test(test_folders__##name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(of_another_run_are_refused),
        TEST(leave_no_run_directory_if_they_are_refused),
        TEST(follow_a_run_that_moves_and_no_copy),
        TEST(go_to_one_of_two_runs),
        TEST(that_stay_empty_are_removed),
        TEST(may_move),
        TEST(keep_what_is_foreign),
    };
    return cmocka_run_group_tests(tests, make_job, cli_remove_folder);
}
