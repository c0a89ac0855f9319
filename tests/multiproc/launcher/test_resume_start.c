/* What a start of `frostline run --resume` leaves that fails, or is killed, before all workers are
 * ready: the run directory as it was; and what it does while another process has the run. */
#include "support/cli.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline"
#define UNTIL(condition) "until " condition "; do kill -0 $pid || exit 1; sleep 0.02; done; "
#define LIST(state) PROGRAM " list . --json | grep -q '\"state\": \"" state "\"'"

/* x: finished; y: stopped at a step. ssh reaches no host: bin/ssh is what ssh does instead. */
static int make_runs(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 200);
    cli_must_run("mkdir bin; cat >job.yaml <<'END'\n"
                 "name: small\n"
                 "model: {blocks: 2, dim: 8, heads: 1, patch: 7}\n"
                 "data: {path: data}\n"
                 "train: {batch: 10, epochs: 1, evaluate: false, seed: 1, hash_weights: 5}\n"
                 "devices: {count: 2}\n"
                 "pipe: {tune: false, profile: none}\n"
                 "checkpoint: {every: 5 steps}\n"
                 "END\n"
                 "cat >hosts.yaml <<'END'\n"
                 "hosts:\n"
                 "  - {name: a, devices: 1, address: 127.0.0.1}\n"
                 "  - {name: b, devices: 1, address: 127.0.0.2}\n"
                 "links:\n"
                 "  between_hosts: {latency_us: 50, bandwidth: 1GiB}\n"
                 "END\n");
    cli_must_run(PROGRAM " run job.yaml --run-dir runs/x >log 2>&1");
    cli_must_run(
        PROGRAM
        " run job.yaml --run-dir runs/y --set train.epochs=100000 >log 2>&1 & pid=$!; " UNTIL(
            "[ -e runs/y/checkpoints/best ] || ls runs/y/checkpoints/*/manifest.json"
            " >dev 2>&1") PROGRAM " ctl runs/y stop >log 2>&1; wait $pid; [ $? = 130 ]");
    cli_must_run("cp -a runs before");
    return 0;
}

/* Logs of workers have what was tried. */
static void expect_unchanged(const char *run)
{
    char command[300];
    snprintf(command, sizeof command,
             "diff -r -x 'worker-*.log' -x hosts.key -x 'waiting.*' -x '*.part' before/%s runs/%s",
             run, run);
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 0) {
        fail_msg("%s has changed: %s", run, cli_result.out);
    }
}

static void write_ssh(const char *does)
{
    char command[200];
    snprintf(command, sizeof command, "printf '#!/bin/sh\\n%s\\n' >bin/ssh; chmod 755 bin/ssh",
             does);
    cli_must_run(command);
}

#define RESUME(run)                                                                                \
    "PATH=$PWD/bin:$PATH " PROGRAM " run --resume runs/" run                                       \
    " --set train.epochs=200000 --set train.lr=0.5 --hosts hosts.yaml --ssh"

/* Would catch: a setting of a start that has failed, which the next start meets; a ledger, events
 * or a trained model that it costs. */
static void test_resume__a_start_that_fails_leaves_the_directory_as_it_was(void **state)
{
    (void)state;
    static const char *const runs[] = {"x", "y"};
    write_ssh("exit 255");
    for (int i = 0; i < 2; i++) {
        run_command(cli_folder, i == 0 ? RESUME("x") : RESUME("y"), &cli_result);
        if (cli_result.exit_code != 3 ||
            strstr(cli_result.err, "ssh, which was to start its agent") == NULL) {
            fail_msg("exit code %d: %s", cli_result.exit_code, cli_result.err);
        }
        expect_unchanged(runs[i]);
    }
    cli_must_run("[ ! -e runs/x/job.yaml.part ] && [ ! -e runs/x/hosts.key ]");
    run_command(cli_folder, PROGRAM " run --resume runs/x", &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "the run has finished all of its 20 steps"));
}

/* Would catch: a run that `frostline list` shows as lost because a start was killed that has not
 * begun to train; a start that it shows as the end that the run had before. */
static void test_resume__a_start_that_is_killed_leaves_the_directory_as_it_was(void **state)
{
    (void)state;
    write_ssh("echo >>called; exec sleep 600");
    cli_must_run(
        "rm -f called; " RESUME("x") " >log 2>&1 & pid=$!; " UNTIL("[ -e called ]")

            "cd runs; code=0; " LIST("starting") " || code=1; kill -9 $pid; wait $pid; exit $code");
    expect_unchanged("x");
    cli_must_run("cd runs; " LIST("finished"));
    cli_must_run("rm -f called; " RESUME("y") " >log 2>&1 & pid=$!; " UNTIL(
        "[ -e called ]") "kill -9 $pid; wait $pid; true");
    expect_unchanged("y");
    cli_must_run("cd runs; " LIST("stopped") " && ! " LIST("lost"));
    cli_must_run(PROGRAM
                 " run --resume runs/x --set train.epochs=2 --set devices.count=2 >log 2>&1; "
                 "[ ! -e runs/x/job.yaml.part ] && grep -q 'epochs: 2$' runs/x/job.yaml && "
                 "grep -q '\"run.resumed\"' runs/x/events.jsonl && " PROGRAM " ledger runs/x");
}

/* Hold the run as the process that has trained it, and ends it. */
static int hold_run(const char *name)
{
    char path[400], command[200];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/runs/%s/job.yaml", cli_folder, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_SETLK, &whole), 0);
    snprintf(command, sizeof command,
             "f=runs/%s/events.jsonl; [ ! -e $f ] || "
             "sed -i 's/\"controller_pid\": [0-9]*/\"controller_pid\": %d/' $f",
             name, (int)getpid());
    cli_must_run(command);
    return fd;
}

#define WAITS(does) "grep -q 'waits up to 60 s for the process that " does " the run' "

/* Would catch: a run that a scheduler starts again a moment too early, and never again after exit
 * code 2. */
static void test_resume__waits_for_a_process_that_ends_the_run(void **state)
{
    (void)state;
    cli_must_run("rm -rf runs/x; cp -a before/x runs/x");
    int fd = hold_run("x");
    cli_must_run(PROGRAM " run --resume runs/x --set train.epochs=2 >held.log 2>&1 & pid=$!; "
                         "echo $pid >pid; " UNTIL(WAITS("ends") "held.log") "true");
    close(fd);
    cli_must_run("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done; "
                 "grep -q 'epochs: 2$' runs/x/job.yaml && " PROGRAM " ledger runs/x");
}

/* Its directory goes with it, and the run begins. */
static void test_resume__continue_waits_for_a_start_that_ends(void **state)
{
    (void)state;
    cli_must_run("mkdir runs/z; cp job.yaml runs/z");
    int fd = hold_run("z");
    cli_must_run(PROGRAM " run job.yaml --run-dir runs/z --continue >continued.log 2>&1 & pid=$!; "
                         "echo $pid >pid; " UNTIL(WAITS("starts") "continued.log") "rm -r runs/z");
    close(fd);
    cli_must_run("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done; " PROGRAM
                 " ledger runs/z");
}

/* Keys let anybody join the run that has them, and the head that made these was killed. Would
 * catch: keys that stay in a folder which was moved, and a part of them that no later start gets
 * past. */
static void test_resume__keys_of_a_killed_head_are_removed(void **state)
{
    (void)state;
    cli_must_run("rm -rf runs/x runs/y; cp -a before/x runs/x; touch runs/x/hosts.key; " PROGRAM
                 " run --resume runs/x --set train.epochs=2 >log 2>&1; [ ! -e runs/x/hosts.key ]");
    write_ssh("exit 255");
    cli_must_run("cp -a before/y runs/y; touch runs/y/hosts.key.part runs/y/hosts.key; " RESUME(
        "y") " >log 2>&1; [ $? = 3 ] && [ ! -e runs/y/hosts.key ] && [ ! -e "
             "runs/y/hosts.key.part ]");
    cli_must_run("mkdir w; cp job.yaml w; touch w/hosts.key; " PROGRAM
                 " run job.yaml --run-dir w --continue >log 2>&1 && [ -e w-1/job.yaml ] && "
                 "[ ! -e w-1/hosts.key ]");
}

/* Would catch: an end by which a scheduler never starts the run again. */
static void test_resume__a_run_that_trains_is_to_be_tried_again(void **state)
{
    (void)state;
    cli_must_run("rm -rf runs/y; cp -a before/y runs/y; sed -i '/run.stop/d' runs/y/events.jsonl");
    int fd = hold_run("y");
    static const char *const commands[] = {PROGRAM " run --resume runs/y",
                                           PROGRAM " run job.yaml --run-dir runs/y --continue"};
    for (int i = 0; i < 2; i++) {
        run_command(cli_folder, commands[i], &cli_result);
        assert_int_equal(cli_result.exit_code, 3);
        assert_non_null(strstr(cli_result.err, "--resume: runs/y: the run "));
        assert_null(strstr(cli_result.err, "waits up to"));
    }
    close(fd);
    cli_must_run("rm -rf runs/y; cp -a before/y runs/y");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume__a_start_that_fails_leaves_the_directory_as_it_was),
        cmocka_unit_test(test_resume__a_start_that_is_killed_leaves_the_directory_as_it_was),
        cmocka_unit_test(test_resume__waits_for_a_process_that_ends_the_run),
        cmocka_unit_test(test_resume__continue_waits_for_a_start_that_ends),
        cmocka_unit_test(test_resume__keys_of_a_killed_head_are_removed),
        cmocka_unit_test(test_resume__a_run_that_trains_is_to_be_tried_again),
    };
    return cmocka_run_group_tests(tests, make_runs, cli_remove_folder);
}
