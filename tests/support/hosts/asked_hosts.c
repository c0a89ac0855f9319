#include "support/hosts/asked_hosts.h"

#include "support/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

int make_asked_hosts(void **state)
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

void expect_of_host(const char *options, size_t host, const char *check, const char *verdict,
                    const char *text)
{
    char command[900];
    snprintf(command, sizeof command, DOCTOR_ASK "%s >answer.json; cat answer.json", options);
    run_command(cli_folder, command, &cli_result);
    json_t *all = json_loads(cli_result.out, 0, NULL);
    if (!has_line(all, host, check, verdict, text)) {
        char *found = json_dumps(json_array_get(json_object_get(all, "hosts"), host), 0);
        print_message("%s%s\n", found == NULL ? cli_result.out : found, cli_result.err);
        fail_msg("host %zu has no '%s' of %s with the verdict %s", host, text, check, verdict);
    }
    json_decref(all);
}

void expect_runs_of_host(const char *options, size_t host, const char *verdict, const char *text)
{
    expect_of_host(options, host, "runs", verdict, text);
}
