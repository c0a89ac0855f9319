/* frostline agent: this host in a run that another one leads. */
#include "launcher/cli/agent_join.h"
#include "launcher/run/hosts.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static fl_status read_options(const fl_args *args, char name[FL_HOST_TEXT], fl_curve_keys *keys)
{
    const char *join = fl_args_value(args, "--join"), *key = fl_args_value(args, "--key");
    const char *given = fl_args_value(args, "--name");
    if (join == NULL || key == NULL) {
        return fl_fail(FL_EINVAL, "frostline agent: %s is missing; see frostline agent --help",
                       join == NULL ? "--join ADDRESS" : "--key FILE");
    }
    if (strncmp(join, "tcp://", 6) != 0) {
        return fl_fail(FL_EINVAL, "--join: found '%.80s', allowed: tcp://ADDRESS:PORT", join);
    }
    if (given == NULL && gethostname(name, FL_HOST_TEXT) != 0) {
        return fl_fail(FL_EINVAL, "--name: this host has no name of its own; give one");
    }
    if (given != NULL && strlen(given) >= FL_HOST_TEXT) {
        return fl_fail(FL_EINVAL, "--name: found a name of %zu bytes, allowed: 1 .. %d",
                       strlen(given), FL_HOST_TEXT - 1);
    }
    if (given != NULL) {
        memcpy(name, given, strlen(given) + 1);
    }
    name[FL_HOST_TEXT - 1] = '\0';
    fl_status status = fl_hosts_read_key(key, keys);
    return status == FL_OK ? FL_OK : fl_fail(status, "--key: %s", fl_errmsg());
}

static int exit_of(fl_status status, const fl_relay_end *end)
{
    return status == FL_OK && end->drained                          ? FL_EXIT_DRAINED
           : status == FL_EFAILED && end->exit_code != 0            ? end->exit_code
           : status == FL_ESTOPPED && end->signal_number == SIGTERM ? FL_EXIT_TERMINATED
                                                                    : fl_exit_of(status);
}

static int run_agent(const fl_args *args)
{
    char name[FL_HOST_TEXT];
    fl_curve_keys keys;
    fl_relay_end end = {.exit_code = 0};
    int64_t grace_ms = 0;
    fl_status status = read_options(args, name, &keys);
    if (status == FL_OK) {
        status = fl_agent_read_grace(args, &grace_ms);
    }
    if (status == FL_OK) {
        status = fl_agent_join(fl_args_value(args, "--join"), &keys, name, grace_ms, &end);
    }
    explicit_bzero(&keys, sizeof keys);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return exit_of(status, &end);
}

const fl_cli_command fl_cli_command_agent = {
    .name = "agent",
    .summary = "Join a run on several hosts with the devices of this one.",
    .details = "Starts the workers of this host for a run that `frostline run` has\n"
               "started on another one, and ends when the run is over or the other host is\n"
               "lost. The run directory must be on a file system that all hosts share.\n"
               "SIGTERM has the run go on without this host: the agent ends with exit code 6\n"
               "once the other hosts have all that its workers owned. A second one ends it\n"
               "at once.\n",
    .options = {{"--join", 0, "ADDRESS", "where the run listens: tcp://ADDRESS:PORT"},
                {"--key", 0, "FILE", "the run's keys: hosts.key in its run directory"},
                {"--name", 0, "NAME", "this host in the file of hosts; default: the hostname"},
                {"--grace", 0, "SECONDS", "after SIGTERM, to leave the run; default: 25"}},
    .run = run_agent,
};
