/* `frostline doctor --hosts` asks hosts that filter loopback, have another version, or print lines
 * before their answer. Would catch: such a host that counts as one that ssh does not reach. */
#include "support/cli.h"
#include "support/hosts/asked_hosts.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a host that drops what goes over its loopback interface ---- */

#define DROP "ip link set lo up && tc qdisc add dev lo root blackhole"

/* Would catch: a doctor that waits for minutes for its own connection to 127.0.0.1, so that its
 * host counts as one on which ssh finds no frostline; and a host that is refused although its one
 * worker trains. */
static void test_doctor_answers__find_a_host_that_filters_loopback(void **state)
{
    (void)state;
    if (system("unshare -m -n sh -c '" DROP "' 2>/dev/null") != 0) {
        print_message("skipped: no right to make network name spaces, or no tc\n");
        skip();
    }
    setenv("SPACES", "-n", 1);
    setenv("BEFORE", DROP, 1);
    expect_of_host("", 1, "sockets", "warning",
                   "connections to 127.0.0.1 do not get through: connect");
    cli_must_run("sed -i '/name: b/s/devices: 1/devices: 2/' hosts.yaml");
    expect_of_host("--set devices.count=4", 1, "sockets", "error",
                   "; the 2 workers of host b need it");
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
static void test_doctor_answers__try_the_address_of_each_host(void **state)
{
    (void)state;
    if (system("unshare -m -n sh -c '" FILTER "' 2>/dev/null") != 0) {
        print_message("skipped: no right to make network name spaces\n");
        skip();
    }
    setenv("SPACES", "-n", 1);
    setenv("BEFORE", FILTER, 1);
    expect_of_host("", 1, "job", "ok", "host b has the model");
    assert_null(strstr(cli_result.out, "loopback is filtered")); /* it has one worker */
    cli_must_run("sed -i '/name: b/s/devices: 1/devices: 2/' hosts.yaml");
    expect_of_host("--set devices.count=4", 1, "sockets", "ok", "TCP over 127.0.0.1");
    expect_of_host(
        "--set devices.count=4", 1, "sockets", "error",
        "host b: workers 1 .. 2 cannot reach each other: loopback is filtered: 192.0.2.2");
    cli_must_run("sed -i '/name: b/s/devices: 2/devices: 1/' hosts.yaml");
    unsetenv("BEFORE");
    unsetenv("SPACES");
}

/* ---- other hosts ---- */

/* They share no files: the agent of b begins in the head's folder, which it has, too. */
static void test_doctor_answers__looks_at_the_folder_of_a_host_of_its_own(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/own can be made", cli_folder);
    expect_runs_of_host("--set run.dir=own --set run.shared=false", 1, "ok", path);
}

static void test_doctor_answers__asks_another_version_without_the_folder(void **state)
{
    (void)state;
    char path[400];
    expect_runs_of_host("--set run.dir=some/runs", 2, "warning",
                        "host c: version " FL_VERSION " does not check the run directory");
    snprintf(path, sizeof path, "%s/there/runs can be made", cli_folder);
    expect_runs_of_host("--set run.dir=some/runs", 2, "ok", path);
}

/* Would catch: hosts that count as broken, or as another program, because their shell prints a line
 * when ssh begins; and a message that hides why there is no result. */
static void test_doctor_answers__skip_what_a_shell_prints(void **state)
{
    (void)state;
    setenv("LOGIN", "echo 'hello from {b}'; printf '%s' '> '", 1);
    expect_of_host("--set run.dir=new", 1, "same", "ok", "the version of this host");
    expect_runs_of_host("--set run.dir=new", 2, "warning", "does not check the run directory");
    setenv("LOGIN", "echo hello; echo 'exec: frostline: not found' >&2; exit 127", 1);
    expect_of_host("", 1, "ssh", "error", "exit code 127: \"exec: frostline: not found\"");
    setenv("LOGIN", "echo 'This account is not available.'; exit 1", 1);
    expect_of_host("", 1, "ssh", "error", "exit code 1: \"This account is not available.\"");
    setenv("LOGIN", "echo hello; exit 0", 1);
    expect_of_host("", 1, "answer", "error", "host b (192.0.2.2): no result of frostline doctor");
    unsetenv("LOGIN");
}

/* Would catch: a line that names no cause, so that the host is looked at and not this one. */
static void test_doctor_answers__tell_why_no_ssh_was_started(void **state)
{
    (void)state;
    run_command(cli_folder, "PATH=/nowhere " DOCTOR_PROGRAM " doctor --hosts hosts.yaml",
                &cli_result);
    assert_non_null(strstr(cli_result.out, "host b (192.0.2.2): ssh ended with exit code 127: "
                                           "\"ssh cannot be started: No such file or directory\""));
    run_command(
        cli_folder,
        "{ echo hosts:; for i in $(seq 100); do echo \"  - {name: h$i, devices: 1, address: "
        "192.0.2.$i}\"; done; } >many.yaml; ulimit -n 100; PATH=/nowhere " DOCTOR_PROGRAM
        " doctor --hosts many.yaml",
        &cli_result);
    assert_non_null(strstr(cli_result.out, "host h100 (192.0.2.100): it was not asked: Too many "
                                           "open files"));
}

/* As ControlPersist does it: a process that ssh leaves behind has its output. Would catch: a host
 * that has answered at once, and counts as one without an answer after a minute. */
static void test_doctor_answers__an_answer_counts_while_the_output_is_open(void **state)
{
    (void)state;
    setenv("LOGIN", "sleep 600 & echo $! >>../behind", 1);
    expect_of_host("", 1, "same", "ok", "the version of this host");
    expect_of_host("", 1, "job", "ok", "host b has the model, the data");
    setenv("LOGIN", "sleep 600 & echo $! >>../behind; echo hello; exit 0", 1);
    expect_of_host("", 1, "answer", "error",
                   "no result of frostline doctor --json; ssh ended with");
    setenv("LOGIN", "sh -c \"$4\"; exec sleep 600", 1);
    expect_of_host("", 1, "same", "ok", "the version of this host");
    expect_of_host("", 1, "ssh", "warning",
                   "ssh had not ended 2 s after its answer, and was killed");
    unsetenv("LOGIN");
    cli_must_run("kill $(cat behind)");
}

/* Would catch: hosts of a bad job that are left out because its pipe is read again for them. */
static void test_doctor_answers__hosts_of_a_bad_job_from_a_pipe(void **state)
{
    (void)state;
    run_command(
        cli_folder,
        "{ cat job.yaml hosts.yaml; echo 'unknown: 1'; } | PATH=$PWD/bin:$PATH " DOCTOR_PROGRAM
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
static void test_doctor_answers__a_bad_job_still_names_its_folder(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/some/runs can be ", cli_folder);
    static const char bad[] = "--set run.dir=some/runs --set train.batch=none";
    expect_of_host(bad, 0, "job", "error", "train.batch");
    expect_runs_of_host(bad, 0, "ok", path);
    expect_runs_of_host(bad, 1, "ok", path);
    expect_of_host(bad, 1, "shared", "ok", "hosts a and b see what the other");
    cli_must_run("cp job.yaml good.yaml && echo 'run: {dir: some/runs}' >>job.yaml");
    expect_runs_of_host("--set train.batch=none", 1, "ok", path);
    cli_must_run("mv good.yaml job.yaml");
    expect_runs_of_host("--set run.shared=7", 0, "warning",
                        "not checked: the field run of the job");
    expect_runs_of_host("--set run.shared=7", 1, "warning",
                        "not checked: the field run of the job");
    assert_null(strstr(cli_result.out, "/runs can be"));
    assert_null(strstr(cli_result.out, "\"shared\""));
    expect_runs_of_host("--set run.shared=7 --runs some/runs", 1, "ok", path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_answers__find_a_host_that_filters_loopback),
        cmocka_unit_test(test_doctor_answers__try_the_address_of_each_host),
        cmocka_unit_test(test_doctor_answers__looks_at_the_folder_of_a_host_of_its_own),
        cmocka_unit_test(test_doctor_answers__asks_another_version_without_the_folder),
        cmocka_unit_test(test_doctor_answers__skip_what_a_shell_prints),
        cmocka_unit_test(test_doctor_answers__tell_why_no_ssh_was_started),
        cmocka_unit_test(test_doctor_answers__an_answer_counts_while_the_output_is_open),
        cmocka_unit_test(test_doctor_answers__hosts_of_a_bad_job_from_a_pipe),
        cmocka_unit_test(test_doctor_answers__a_bad_job_still_names_its_folder),
    };
    return cmocka_run_group_tests(tests, make_asked_hosts, cli_remove_folder);
}
