/* frostline agent: this host in a run that another one leads. */
#include "control/agent/relay.h"
#include "launcher/cli/cli.h"
#include "launcher/run/hosts.h"
#include "launcher/run/joined.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { JOIN_MS = 60000 };

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

static int run_agent(const fl_args *args)
{
    char name[FL_HOST_TEXT];
    fl_curve_keys keys;
    int exit_code = 0, signal_number = 0;
    fl_status status = read_options(args, name, &keys);
    if (status == FL_OK) {
        const fl_relay_options relay = {.endpoint = fl_args_value(args, "--join"),
                                        .keys = &keys,
                                        .name = name,
                                        .join_ms = JOIN_MS,
                                        .serve = fl_joined_serve,
                                        .context = &keys};
        status = fl_relay_run(&relay, &exit_code, &signal_number);
    }
    explicit_bzero(&keys, sizeof keys);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return status == FL_EFAILED && exit_code != 0              ? exit_code
           : status == FL_ESTOPPED && signal_number == SIGTERM ? FL_EXIT_TERMINATED
                                                               : fl_exit_of(status);
}

const fl_cli_command fl_cli_command_agent = {
    .name = "agent",
    .summary = "Join a run on several hosts with the devices of this one.",
    .details = "Starts the workers of this host for a run that `frostline run --hosts` has\n"
               "started on another one, and ends when the run is over or the other host is\n"
               "lost. The run directory must be on a file system that all hosts share.\n",
    .options = {{"--join", 0, "ADDRESS", "where the run listens: tcp://ADDRESS:PORT"},
                {"--key", 0, "FILE", "the run's keys: hosts.key in its run directory"},
                {"--name", 0, "NAME", "this host in the file of hosts; default: the hostname"}},
    .run = run_agent,
};
