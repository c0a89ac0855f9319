/* `frostline doctor JOB.yaml --hosts` looks at the job's run.dir on the other hosts, whether all
 * hosts share it, and whether they have the job's data. Here ssh is a script that runs the command
 * on this machine, in a folder of its own. Would catch: a folder that is looked at where ssh
 * begins; a host with another version that counts as one that ssh does not reach; and a host with
 * another folder by that path, or a copy, that counts as one that shares it. */
#include "support/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline"
#define ASK "PATH=$PWD/bin:$PATH " PROGRAM " doctor job.yaml --hosts hosts.yaml --json "

/* No links are measured: host a is not this machine. Host b has this version; host c has one that
 * does not know the option. */
static int make_hosts(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 200);
    cli_must_run(
        "mkdir bin there; cat >job.yaml <<'END'\n"
        "name: small\n"
        "model: {blocks: 2, dim: 8, heads: 1, patch: 7}\n"
        "data: {path: data}\n"
        "train: {batch: 10, epochs: 1}\n"
        "devices: {count: 3}\n"
        "pipe: {profile: none}\n"
        "END\n"
        "cat >hosts.yaml <<'END'\n"
        "hosts:\n"
        "  - {name: a, devices: 1, address: 192.0.2.1}\n"
        "  - {name: b, devices: 1, address: 192.0.2.2}\n"
        "  - {name: c, devices: 1, address: 192.0.2.3}\n"
        "END\n"
        "cat >bin/ssh <<'END'\n"
        "#!/bin/sh\n"
        "cd there\n"
        "eval \"$LOGIN\"\n"
        "case \"$3 $4\" in\n"
        "192.0.2.3*--runs*) echo 'frostline doctor: unknown option \"--runs\"; see frostline "
        "doctor --help' >&2; exit 2 ;;\n"
        "esac\n"
        "[ \"$3\" = 192.0.2.3 ] || [ -z \"$BEFORE\" ] || exec unshare -m $SPACES sh -c \"$BEFORE; "
        "$4\"\n"
        "exec sh -c \"$4\"\n"
        "END\n"
        "chmod 755 bin/ssh");
    return 0;
}

/* Whether a line of this check and this host has the verdict and the text. */
static bool has_line(const json_t *all, size_t host, const char *wanted, const char *verdict,
                     const char *text)
{
    const json_t *checks =
        json_object_get(json_array_get(json_object_get(all, "hosts"), host), "checks");
    const json_t *check;
    size_t i;
    json_array_foreach(checks, i, check)
    {
        const char *name = json_string_value(json_object_get(check, "check"));
        const char *found = json_string_value(json_object_get(check, "found"));
        const char *how = json_string_value(json_object_get(check, "verdict"));
        if (strcmp(name, wanted) == 0 && strcmp(how, verdict) == 0 && strstr(found, text) != NULL) {
            return true;
        }
    }
    return false;
}

static void expect_of(const char *options, size_t host, const char *check, const char *verdict,
                      const char *text)
{
    char command[900];
    snprintf(command, sizeof command, ASK "%s >answer.json; cat answer.json", options);
    run_command(cli_folder, command, &cli_result);
    json_t *all = json_loads(cli_result.out, 0, NULL);
    if (!has_line(all, host, check, verdict, text)) {
        char *found = json_dumps(json_array_get(json_object_get(all, "hosts"), host), 0);
        print_message("%s%s\n", found == NULL ? cli_result.out : found, cli_result.err);
        fail_msg("host %zu has no '%s' of %s with the verdict %s", host, text, check, verdict);
    }
    json_decref(all);
}

static void expect_line(const char *options, size_t host, const char *verdict, const char *text)
{
    expect_of(options, host, "runs", verdict, text);
}

static void test_doctor_hosts__looks_at_the_folder_of_the_job(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/some/runs can be written", cli_folder); /* meanwhile, it is */
    expect_line("--set run.dir=some/runs", 1, "ok", path);
    snprintf(path, sizeof path, "%s/my 'runs' can be written", cli_folder);
    expect_line("--runs \"my 'runs'\"", 1, "ok", path);
    expect_line("--set run.dir=/proc/no/runs", 1, "error", "/proc");
}

/* ---- whether the hosts share it ---- */

static void test_doctor_hosts__share_the_folder_and_nothing_is_left(void **state)
{
    (void)state;
    char text[400];
    snprintf(text, sizeof text, "%s/new/runs: hosts a and b see what the other", cli_folder);
    expect_of("--set run.dir=new/runs", 1, "shared", "ok", text);
    cli_must_run("! ls -d new 2>/dev/null && mkdir -p kept/runs");
    expect_of("--set run.dir=kept/runs", 1, "shared", "ok", "kept/runs: hosts a and b");
    cli_must_run("rmdir kept/runs kept"); /* it was there, and is empty */
}

/* Of hosts that are to share nothing, and of a version that does not know how. */
static void test_doctor_hosts__need_not_share_it(void **state)
{
    (void)state;
    expect_line("--set run.dir=new --set run.shared=false", 2, "warning", "does not check");
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
        expect_of("--set run.dir=shared/runs", 1, "shared", "error", o->found);
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
    expect_line("--set run.dir=link", 0, "error", "/link: a symbolic link to nowhere, which does");
    assert_null(strstr(cli_result.out, "\"shared\""));
    cli_must_run("rm link");
}

/* Would catch: files that are left by a doctor that a signal ends. */
static void test_doctor_hosts__leave_nothing_after_a_signal(void **state)
{
    (void)state;
    setenv("BEFORE", "ls $S >../seen; kill -TERM $PPID; exec sleep 60", 1);
    name_folder("new/runs");
    run_command(cli_folder, "( " ASK "--set run.dir=new/runs )", &cli_result);
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
                    "( PATH=$PWD/bin:$PATH exec " PROGRAM
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
    run_command(cli_folder, "( " ASK "--set run.dir=new/runs )", &cli_result);
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
    expect_of("", 1, "job", "ok", "host b has the model, the data and the weights that host a has");
    expect_of("--set run.shared=false", 2, "job", "ok", "host c has the model, the data");
    setenv("LOGIN", "echo hello", 1);
    expect_of("", 1, "job", "ok", "host b has the model, the data");
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
    expect_of("", 1, "job", "error", "host b: data.path: data");
    assert_non_null(strstr(cli_result.out, "put the same files there, by the same paths"));
    snprintf(begins, sizeof begins, "its relative paths begin in %s there", cli_folder);
    assert_non_null(strstr(cli_result.out, begins));
    setenv("BEFORE", "mount --bind ../fewer ../data", 1);
    expect_of("--set run.shared=false", 1, "job", "error", "/data: found other data, of fingerpri");
    assert_non_null(strstr(cli_result.out, "with 100 and 20 samples, the head has "));
    setenv("BEFORE", "mount -t tmpfs none ../..", 1); /* without the head's working directory */
    run_command(cli_folder,
                "mkdir sub sub/there && cp -r bin data job.yaml hosts.yaml sub && cd sub && " ASK
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
    expect_of("", 1, "job", "error", "host b (192.0.2.2) does not say whether it has the job's");
    assert_non_null(strstr(cli_result.out, "exit code 3: \\\"out of memory\\\""));
    unsetenv("LOGIN");
    cli_run("doctor --compare </dev/null");
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.out, "the standard input is no question"));
    cli_run("doctor --compare job.yaml");
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "--compare allows no other option"));
}

/* ---- a host that drops what goes over its loopback interface ---- */

#define DROP "ip link set lo up && tc qdisc add dev lo root blackhole"

/* Would catch: a doctor that waits for minutes for its own connection to 127.0.0.1, so that its
 * host counts as one on which ssh finds no frostline; and a host that is refused although its one
 * worker trains. */
static void test_doctor_hosts__find_a_host_that_filters_loopback(void **state)
{
    (void)state;
    if (system("unshare -m -n sh -c '" DROP "' 2>/dev/null") != 0) {
        print_message("skipped: no right to make network name spaces, or no tc\n");
        skip();
    }
    setenv("SPACES", "-n", 1);
    setenv("BEFORE", DROP, 1);
    expect_of("", 1, "sockets", "warning", "connections to 127.0.0.1 do not get through: connect");
    cli_must_run("sed -i '/name: b/s/devices: 1/devices: 2/' hosts.yaml");
    expect_of("--set devices.count=4", 1, "sockets", "error", "; the 2 workers of host b need it");
    assert_non_null(strstr(cli_result.out, "must accept what goes over the interface lo"));
    cli_must_run("sed -i '/name: b/s/devices: 2/devices: 1/' hosts.yaml");
    unsetenv("BEFORE");
    unsetenv("SPACES");
}

#define FILTER                                                                                     \
    "ip link set lo up && ip addr add 192.0.2.2/32 dev lo && ip rule add pref 100 lookup local "   \
    "&& "                                                                                          \
    "ip rule del pref 0 && ip rule add pref 5 iif lo to 192.0.2.2 blackhole"

/* Would catch: a doctor that tries 127.0.0.1 alone, where workers use the host's address. */
static void test_doctor_hosts__try_the_address_of_each_host(void **state)
{
    (void)state;
    if (system("unshare -m -n sh -c '" FILTER "' 2>/dev/null") != 0) {
        print_message("skipped: no right to make network name spaces\n");
        skip();
    }
    setenv("SPACES", "-n", 1);
    setenv("BEFORE", FILTER, 1);
    expect_of("", 1, "job", "ok", "host b has the model");
    assert_null(strstr(cli_result.out, "loopback is filtered")); /* it has one worker */
    cli_must_run("sed -i '/name: b/s/devices: 1/devices: 2/' hosts.yaml");
    expect_of("--set devices.count=4", 1, "sockets", "ok", "TCP over 127.0.0.1");
    expect_of("--set devices.count=4", 1, "sockets", "error",
              "host b: workers 1 .. 2 cannot reach each other: loopback is filtered: 192.0.2.2");
    cli_must_run("sed -i '/name: b/s/devices: 2/devices: 1/' hosts.yaml");
    unsetenv("BEFORE");
    unsetenv("SPACES");
}

/* ---- other hosts ---- */

/* They share no files: the agent of b begins in the head's folder, which it has, too. */
static void test_doctor_hosts__looks_at_the_folder_of_a_host_of_its_own(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/own can be made", cli_folder);
    expect_line("--set run.dir=own --set run.shared=false", 1, "ok", path);
}

static void test_doctor_hosts__asks_another_version_without_the_folder(void **state)
{
    (void)state;
    char path[400];
    expect_line("--set run.dir=some/runs", 2, "warning",
                "host c: version " FL_VERSION " does not check the run directory");
    snprintf(path, sizeof path, "%s/there/runs can be made", cli_folder);
    expect_line("--set run.dir=some/runs", 2, "ok", path);
}

/* Would catch: hosts that count as broken, or as another program, because their shell prints a line
 * when ssh begins; and a message that hides why there is no result. */
static void test_doctor_hosts__skip_what_a_shell_prints(void **state)
{
    (void)state;
    setenv("LOGIN", "echo 'hello from {b}'; printf '%s' '> '", 1);
    expect_of("--set run.dir=new", 1, "same", "ok", "the version of this host");
    expect_line("--set run.dir=new", 2, "warning", "does not check the run directory");
    setenv("LOGIN", "echo hello; echo 'exec: frostline: not found' >&2; exit 127", 1);
    expect_of("", 1, "ssh", "error", "exit code 127: \"exec: frostline: not found\"");
    setenv("LOGIN", "echo 'This account is not available.'; exit 1", 1);
    expect_of("", 1, "ssh", "error", "exit code 1: \"This account is not available.\"");
    setenv("LOGIN", "echo hello; exit 0", 1);
    expect_of("", 1, "answer", "error", "host b (192.0.2.2): no result of frostline doctor");
    unsetenv("LOGIN");
}

/* Would catch: a line that names no cause, so that the host is looked at and not this one. */
static void test_doctor_hosts__tell_why_no_ssh_was_started(void **state)
{
    (void)state;
    run_command(cli_folder, "PATH=/nowhere " PROGRAM " doctor --hosts hosts.yaml", &cli_result);
    assert_non_null(strstr(cli_result.out, "host b (192.0.2.2): ssh ended with exit code 127: "
                                           "\"ssh cannot be started: No such file or directory\""));
    run_command(
        cli_folder,
        "{ echo hosts:; for i in $(seq 100); do echo \"  - {name: h$i, devices: 1, address: "
        "192.0.2.$i}\"; done; } >many.yaml; ulimit -n 100; PATH=/nowhere " PROGRAM
        " doctor --hosts many.yaml",
        &cli_result);
    assert_non_null(strstr(cli_result.out, "host h100 (192.0.2.100): it was not asked: Too many "
                                           "open files"));
}

/* As ControlPersist does it: a process that ssh leaves behind has its output. Would catch: a host
 * that has answered at once, and counts as one without an answer after a minute. */
static void test_doctor_hosts__an_answer_counts_while_the_output_is_open(void **state)
{
    (void)state;
    setenv("LOGIN", "sleep 600 & echo $! >>../behind", 1);
    expect_of("", 1, "same", "ok", "the version of this host");
    expect_of("", 1, "job", "ok", "host b has the model, the data");
    setenv("LOGIN", "sleep 600 & echo $! >>../behind; echo hello; exit 0", 1);
    expect_of("", 1, "answer", "error", "no result of frostline doctor --json; ssh ended with");
    setenv("LOGIN", "sh -c \"$4\"; exec sleep 600", 1);
    expect_of("", 1, "same", "ok", "the version of this host");
    expect_of("", 1, "ssh", "warning", "ssh had not ended 2 s after its answer, and was killed");
    unsetenv("LOGIN");
    cli_must_run("kill $(cat behind)");
}

/* Would catch: hosts of a bad job that are left out because its pipe is read again for them. */
static void test_doctor_hosts__hosts_of_a_bad_job_from_a_pipe(void **state)
{
    (void)state;
    run_command(cli_folder,
                "{ cat job.yaml hosts.yaml; echo 'unknown: 1'; } | PATH=$PWD/bin:$PATH " PROGRAM
                " doctor /dev/stdin --json",
                &cli_result);
    json_t *all = json_loads(cli_result.out, 0, NULL);
    size_t n = json_array_size(json_object_get(all, "hosts"));
    json_decref(all);
    if (n != 3 || strstr(cli_result.out, "unknown field") == NULL) {
        fail_msg("%zu hosts: %s%s", n, cli_result.out, cli_result.err);
    }
}

/* Would catch: a folder in which no run will write, checked in place of the job's; a missing line
 * on whether the hosts share it; and a folder that is made up where the job does not tell. */
static void test_doctor_hosts__a_bad_job_still_names_its_folder(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/some/runs can be ", cli_folder);
    static const char bad[] = "--set run.dir=some/runs --set train.batch=none";
    expect_of(bad, 0, "job", "error", "train.batch");
    expect_line(bad, 0, "ok", path);
    expect_line(bad, 1, "ok", path);
    expect_of(bad, 1, "shared", "ok", "hosts a and b see what the other");
    cli_must_run("cp job.yaml good.yaml && echo 'run: {dir: some/runs}' >>job.yaml");
    expect_line("--set train.batch=none", 1, "ok", path);
    cli_must_run("mv good.yaml job.yaml");
    expect_line("--set run.shared=7", 0, "warning", "not checked: the field run of the job");
    expect_line("--set run.shared=7", 1, "warning", "not checked: the field run of the job");
    assert_null(strstr(cli_result.out, "/runs can be"));
    assert_null(strstr(cli_result.out, "\"shared\""));
    expect_line("--set run.shared=7 --runs some/runs", 1, "ok", path);
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
        cmocka_unit_test(test_doctor_hosts__find_a_host_that_filters_loopback),
        cmocka_unit_test(test_doctor_hosts__try_the_address_of_each_host),
        cmocka_unit_test(test_doctor_hosts__looks_at_the_folder_of_a_host_of_its_own),
        cmocka_unit_test(test_doctor_hosts__asks_another_version_without_the_folder),
        cmocka_unit_test(test_doctor_hosts__skip_what_a_shell_prints),
        cmocka_unit_test(test_doctor_hosts__tell_why_no_ssh_was_started),
        cmocka_unit_test(test_doctor_hosts__an_answer_counts_while_the_output_is_open),
        cmocka_unit_test(test_doctor_hosts__hosts_of_a_bad_job_from_a_pipe),
        cmocka_unit_test(test_doctor_hosts__a_bad_job_still_names_its_folder),
    };
    return cmocka_run_group_tests(tests, make_hosts, cli_remove_folder);
}
