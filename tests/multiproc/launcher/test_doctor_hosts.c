/* `frostline doctor JOB.yaml --hosts` looks at the job's run.dir on the other hosts. Here ssh is a
 * script that runs the command on this machine, in a folder of its own. Would catch: a folder that
 * is looked at where ssh begins, and a host with another version that counts as one that ssh does
 * not reach. */
#include "support/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
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
        "case \"$3 $4\" in\n"
        "192.0.2.3*--runs*) echo 'frostline doctor: unknown option \"--runs\"; see frostline "
        "doctor --help' >&2; exit 2 ;;\n"
        "esac\n"
        "exec sh -c \"$4\"\n"
        "END\n"
        "chmod 755 bin/ssh");
    return 0;
}

/* Whether a line `runs` of this host has the verdict and the text. */
static bool has_line(const json_t *all, size_t host, const char *verdict, const char *text)
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
        if (strcmp(name, "runs") == 0 && strcmp(how, verdict) == 0 && strstr(found, text) != NULL) {
            return true;
        }
    }
    return false;
}

static void expect_line(const char *options, size_t host, const char *verdict, const char *text)
{
    char command[600];
    snprintf(command, sizeof command, ASK "%s >answer.json; cat answer.json", options);
    run_command(cli_folder, command, &cli_result);
    json_t *all = json_loads(cli_result.out, 0, NULL);
    if (!has_line(all, host, verdict, text)) {
        fail_msg("host %zu has no '%s' with the verdict %s: %s", host, text, verdict,
                 cli_result.out);
    }
    json_decref(all);
}

static void test_doctor_hosts__looks_at_the_folder_of_the_job(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/some/runs can be made", cli_folder);
    expect_line("--set run.dir=some/runs", 1, "ok", path);
    snprintf(path, sizeof path, "%s/my 'runs' can be made", cli_folder);
    expect_line("--runs \"my 'runs'\"", 1, "ok", path);
    expect_line("--set run.dir=/proc/no/runs", 1, "error", "/proc");
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_hosts__looks_at_the_folder_of_the_job),
        cmocka_unit_test(test_doctor_hosts__looks_at_the_folder_of_a_host_of_its_own),
        cmocka_unit_test(test_doctor_hosts__asks_another_version_without_the_folder),
        cmocka_unit_test(test_doctor_hosts__hosts_of_a_bad_job_from_a_pipe),
    };
    return cmocka_run_group_tests(tests, make_hosts, cli_remove_folder);
}
