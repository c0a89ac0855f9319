/* `frostline doctor JOB.yaml --hosts` looks at the job's run.dir on the other hosts, whether all
 * hosts share it, and whether they have the job's data. Would catch: a folder that is looked at
 * where ssh begins, and a host with another folder by that path, or a copy, that counts as one that
 * shares it. */
#include "support/cli.h"
#include "support/hosts/asked_hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_doctor_hosts__looks_at_the_folder_of_the_job(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/some/runs can be written", cli_folder); /* meanwhile, it is */
    expect_runs_of_host("--set run.dir=some/runs", 1, "ok", path);
    snprintf(path, sizeof path, "%s/my 'runs' can be written", cli_folder);
    expect_runs_of_host("--runs \"my 'runs'\"", 1, "ok", path);
    expect_runs_of_host("--set run.dir=/proc/no/runs", 1, "error", "/proc");
}

/* ---- whether the hosts share it ---- */

static void test_doctor_hosts__share_the_folder_and_nothing_is_left(void **state)
{
    (void)state;
    char text[400];
    snprintf(text, sizeof text, "%s/new/runs: hosts a and b see what the other", cli_folder);
    expect_of_host("--set run.dir=new/runs", 1, "shared", "ok", text);
    cli_must_run("! ls -d new 2>/dev/null && mkdir -p kept/runs");
    expect_of_host("--set run.dir=kept/runs", 1, "shared", "ok", "kept/runs: hosts a and b");
    cli_must_run("rmdir kept/runs kept"); /* it was there, and is empty */
}

/* Of hosts that are to share nothing, and of a version that does not know how. */
static void test_doctor_hosts__need_not_share_it(void **state)
{
    (void)state;
    expect_runs_of_host("--set run.dir=new --set run.shared=false", 2, "warning", "does not check");
    assert_null(strstr(cli_result.out, "\"shared\""));
    cli_must_run("! ls -d new there/new 2>/dev/null");
}

/* $S of what host b does. */
static void name_folder(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    setenv("S", path, 1);
}

static void need_mounts(void)
{
    if (system("unshare -m true 2>/dev/null") != 0) {
        print_message("skipped: no right to make mount name spaces\n");
        skip();
    }
}

typedef struct other_folder {
    const char *before; /* which host b does, in name spaces of its own; $S is the folder */
    const char *found, *advice;
} other_folder;

static const other_folder other_folders[] = {
    /* a copy that was made before the doctor */
    {"mount -t tmpfs none $S && touch $S/joining-0123456789abcdef0123456789abcdef",
     "host b does not see what host a writes there: another directory",
     "mount the file system of "},
    {"mount --bind ../empty ..", "host b does not see what host a writes there: No such file",
     "by the same path"},
    {"mount -t tmpfs none ../upper && mkdir ../upper/u ../upper/w && mount -t overlay none -o "
     "lowerdir=$S,upperdir=$PWD/../upper/u,workdir=$PWD/../upper/w $S",
     "host a does not see what host b writes: an overlay, or a copy in one direction",
     "mount the file system itself on host b"},
    /* a copy that follows the folder, and removes what is not in it */
    {"mount --bind $S ../upper && mount -t tmpfs none $S && cp ../upper/* $S && "
     "(while [ -d /proc/$$ ]; do rm -f $S/*-seen; done) >/dev/null 2>&1 </dev/null & :",
     "host a does not see what host b writes: an overlay, or a copy in one direction",
     "run.shared: false"},
    {"mount --bind $S $S && mount -o remount,bind,ro $S",
     "host b cannot write there: Read-only file system", "on host b for writing"},
};

/* Would catch: each of these counting as shared, and what the host has written being left. */
static void test_doctor_hosts__find_a_host_that_does_not_share_it(void **state)
{
    (void)state;
    need_mounts();
    cli_must_run("mkdir empty upper");
    for (size_t i = 0; i < sizeof other_folders / sizeof *other_folders; i++) {
        const other_folder *o = &other_folders[i];
        cli_must_run("mkdir -p shared/runs");
        setenv("BEFORE", o->before, 1);
        name_folder("shared/runs");
        expect_of_host("--set run.dir=shared/runs", 1, "shared", "error", o->found);
        unsetenv("BEFORE");
        assert_non_null(strstr(cli_result.out, o->advice));
        assert_non_null(strstr(cli_result.out, "/shared/runs"));
        cli_must_run("rmdir shared/runs shared"); /* nothing is left in it */
    }
    cli_must_run("rmdir empty upper");
}

/* Would catch: two lines that differ on the same folder, and one that calls it good. */
static void test_doctor_hosts__name_a_folder_that_is_a_link_to_nothing(void **state)
{
    (void)state;
    cli_must_run("ln -s nowhere link");
    expect_runs_of_host("--set run.dir=link", 0, "error",
                        "/link: a symbolic link to nowhere, which does");
    assert_null(strstr(cli_result.out, "\"shared\""));
    cli_must_run("rm link");
}

/* Would catch: files that are left by a doctor that a signal ends. */
static void test_doctor_hosts__leave_nothing_after_a_signal(void **state)
{
    (void)state;
    setenv("BEFORE", "ls $S >../seen; kill -TERM $PPID; exec sleep 60", 1);
    name_folder("new/runs");
    run_command(cli_folder, "( " DOCTOR_ASK "--set run.dir=new/runs )", &cli_result);
    unsetenv("BEFORE");
    assert_int_equal(cli_result.exit_code, 128 + SIGTERM);
    cli_must_run("grep -q joining- seen && ! ls -d new 2>/dev/null");
}

/* Would catch: a doctor that waits on after Ctrl-C, or prints a report of what it has not looked at
 * and ends as usual, because only one of its parts minds the signal. */
static void test_doctor_hosts__end_with_a_signal_in_each_part(void **state)
{
    (void)state;
    static const char *const parts[] = {"*--proof*", "*--compare*", "*agent*"};
    void (*before)(int) = signal(SIGINT, SIG_DFL); /* a shell ignores it for what it runs behind */
    cli_must_run("sed 's/192.0.2/127.0.0/' hosts.yaml >near.yaml");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char login[200];
        snprintf(login, sizeof login,
                 "case \"$3 $4\" in 127.0.0.2%s) echo $$ >../ssh.pid; kill -INT $PPID; exec sleep "
                 "600 ;; esac",
                 parts[i]);
        setenv("LOGIN", login, 1);
        run_command(cli_folder,
                    "( PATH=$PWD/bin:$PATH exec " DOCTOR_PROGRAM
                    " doctor job.yaml --hosts near.yaml --set run.dir=new/runs )",
                    &cli_result);
        unsetenv("LOGIN");
        if (cli_result.exit_code != 128 + SIGINT || cli_result.out[0] != '\0') {
            fail_msg("%s: %d: %s%s", parts[i], cli_result.exit_code, cli_result.out,
                     cli_result.err);
        }
        cli_must_run("( ! ls -d new 2>/dev/null && for i in $(seq 600); do "
                     "grep -q '^State:.[^ZX]' /proc/$(cat ssh.pid)/status 2>/dev/null || exit 0; "
                     "sleep 0.1; done; exit 1 )"); /* it is killed, and need not be gone at once */
    }
    signal(SIGINT, before);
}

/* SIGKILL leaves the files, and the folder. Would catch: files that no command ever removes. */
static void test_doctor_hosts__a_run_removes_what_a_killed_doctor_left(void **state)
{
    (void)state;
    setenv("BEFORE", "kill -KILL $PPID; exec sleep 60", 1);
    run_command(cli_folder, "( " DOCTOR_ASK "--set run.dir=new/runs )", &cli_result);
    unsetenv("BEFORE");
    assert_int_equal(cli_result.exit_code, 128 + SIGKILL);
    cli_must_run("ls new/runs | grep -q joining- && touch -d '11 minutes ago' new/runs/*");
    cli_run("run job.yaml --set run.dir=new/runs --set devices.count=1");
    assert_int_equal(cli_result.exit_code, 0);
    cli_must_run("! ls new/runs | grep joining- && ls new/runs | grep -q small && rm -r new");
}

/* Would catch: a file outside the folder, or another one there, that is made or removed. */
static void test_doctor_hosts__a_proof_is_in_the_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"../joining-1", "joining-/../../x", "other",
                                        "joining-0123456789abcdef0123456789abcdef0123", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "doctor --json --runs . --proof '%s'", names[i]);
        cli_run(arguments);
        assert_int_equal(cli_result.exit_code, 2);
        assert_non_null(strstr(cli_result.err, "allowed: a name that begins with joining-"));
    }
    cli_run("doctor --json --proof joining-1");
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "--proof needs --runs and --json"));
}

/* ---- whether they have the job's model and data ---- */

/* Also of hosts that share nothing, and print a line when ssh begins. */
static void test_doctor_hosts__have_the_same_data(void **state)
{
    (void)state;
    expect_of_host("", 1, "job", "ok",
                   "host b has the model, the data and the weights that host a has");
    expect_of_host("--set run.shared=false", 2, "job", "ok", "host c has the model, the data");
    setenv("LOGIN", "echo hello", 1);
    expect_of_host("", 1, "job", "ok", "host b has the model, the data");
    unsetenv("LOGIN");
}

/* Would catch: a host with other data, or without, that counts as good until the run starts. */
static void test_doctor_hosts__find_a_host_with_other_data(void **state)
{
    (void)state;
    char begins[400];
    need_mounts();
    cli_make_images("fewer", 100);
    setenv("BEFORE", "mount -t tmpfs none ../data", 1);
    expect_of_host("", 1, "job", "error", "host b: data.path: data");
    assert_non_null(strstr(cli_result.out, "put the same files there, by the same paths"));
    snprintf(begins, sizeof begins, "its relative paths begin in %s there", cli_folder);
    assert_non_null(strstr(cli_result.out, begins));
    setenv("BEFORE", "mount --bind ../fewer ../data", 1);
    expect_of_host("--set run.shared=false", 1, "job", "error",
                   "/data: found other data, of fingerpri");
    assert_non_null(strstr(cli_result.out, "with 100 and 20 samples, the head has "));
    setenv("BEFORE", "mount -t tmpfs none ../..", 1); /* without the head's working directory */
    run_command(
        cli_folder,
        "mkdir sub sub/there && cp -r bin data job.yaml hosts.yaml sub && cd sub && " DOCTOR_ASK
        ">answer.json; cat answer.json",
        &cli_result);
    unsetenv("BEFORE");
    assert_non_null(strstr(cli_result.out, "host b: the head runs in "));
}

/* Would catch: a host that is called good although it has not said anything of its data. */
static void test_doctor_hosts__name_a_host_that_does_not_say(void **state)
{
    (void)state;
    setenv("LOGIN", "case \"$4\" in *--compare*) echo 'out of memory' >&2; exit 3 ;; esac", 1);
    expect_of_host("", 1, "job", "error",
                   "host b (192.0.2.2) does not say whether it has the job's");
    assert_non_null(strstr(cli_result.out, "exit code 3: \\\"out of memory\\\""));
    unsetenv("LOGIN");
    cli_run("doctor --compare </dev/null");
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.out, "the standard input is no question"));
    cli_run("doctor --compare job.yaml");
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "--compare allows no other option"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_hosts__looks_at_the_folder_of_the_job),
        cmocka_unit_test(test_doctor_hosts__share_the_folder_and_nothing_is_left),
        cmocka_unit_test(test_doctor_hosts__need_not_share_it),
        cmocka_unit_test(test_doctor_hosts__find_a_host_that_does_not_share_it),
        cmocka_unit_test(test_doctor_hosts__name_a_folder_that_is_a_link_to_nothing),
        cmocka_unit_test(test_doctor_hosts__leave_nothing_after_a_signal),
        cmocka_unit_test(test_doctor_hosts__end_with_a_signal_in_each_part),
        cmocka_unit_test(test_doctor_hosts__a_run_removes_what_a_killed_doctor_left),
        cmocka_unit_test(test_doctor_hosts__a_proof_is_in_the_folder),
        cmocka_unit_test(test_doctor_hosts__have_the_same_data),
        cmocka_unit_test(test_doctor_hosts__find_a_host_with_other_data),
        cmocka_unit_test(test_doctor_hosts__name_a_host_that_does_not_say),
    };
    return cmocka_run_group_tests(tests, make_asked_hosts, cli_remove_folder);
}
