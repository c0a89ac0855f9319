/* frostline agent: this host in a run that another one leads. */
#include "device/plain_name.h"
#include "launcher/cli/early_signals.h"
#include "launcher/cli/hosts/agent_join.h"
#include "launcher/job/text.h"
#include "launcher/run/hosts/host_address.h"
#include "launcher/run/hosts/host_names.h"
#include "launcher/run/hosts/hosts.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One of the file of hosts, whose rule this is. */
static fl_status read_name(const char *given, char name[FL_HOST_TEXT])
{
    char own[FL_HOST_TEXT] = "", shown[FL_SHOWN_MAX];
    const char *text = given == NULL ? own : given;
    if (given == NULL) {
        (void)gethostname(own, sizeof own - 1); /* "": it has none, or a longer one */
    }
    if (!fl_name_is_plain(text, FL_HOST_TEXT - 1)) {
        return fl_fail(FL_EINVAL, "--name: found %s%s, allowed: %s1 to %d " FL_PLAIN_NAME_RULE,
                       fl_shown(text, strlen(text), shown),
                       given == NULL ? ", the name of this host" : "",
                       given == NULL ? "--name with " : "", FL_HOST_TEXT - 1);
    }
    memcpy(name, text, strlen(text) + 1);
    return FL_OK;
}

static fl_status read_options(const fl_args *args, char name[FL_HOST_TEXT], fl_curve_keys *keys)
{
    const char *join = fl_args_value(args, "--join"), *key = fl_args_value(args, "--key");
    if (join == NULL || key == NULL) {
        return fl_fail(FL_EINVAL, "frostline agent: %s is missing; see frostline agent --help",
                       join == NULL ? "--join ADDRESS" : "--key FILE");
    }
    if (strncmp(join, "tcp://", 6) != 0) {
        return fl_fail(FL_EINVAL, "--join: found '%.80s', allowed: tcp://ADDRESS:PORT", join);
    }
    FL_TRY(read_name(fl_args_value(args, "--name"), name));
    fl_status status = fl_hosts_read_key(key, keys);
    return status == FL_OK ? FL_OK : fl_fail(status, "--key: %s", fl_errmsg());
}

/* The name of the head may have an address only once the head is there. */
static fl_status await_head(const fl_args *args, int64_t *wait_ms)
{
    char name[256];
    const char *const names[] = {name};
    const char *join = fl_args_value(args, "--join") + strlen("tcp://");
    const char *colon = strrchr(join, ':');
    FL_TRY(fl_agent_read_wait(args, wait_ms));
    if (!fl_args_has(args, "--wait") || colon == NULL || colon == join ||
        colon - join >= (ptrdiff_t)sizeof name) {
        return FL_OK;
    }
    snprintf(name, sizeof name, "%.*s", (int)(colon - join), join);
    fl_status status = fl_host_names_await(names, 1, *wait_ms);
    return status == FL_OK ? FL_OK : fl_within(status, "--join");
}

/* Of this host. By default the one from which it reaches the head. */
static fl_status read_address(const fl_args *args, char address[FL_ADDRESS_TEXT])
{
    const char *given = fl_args_value(args, "--address");
    if (given == NULL) {
        fl_host_address_toward(fl_args_value(args, "--join"), address);
        return FL_OK;
    }
    fl_status status = fl_host_address(given, address);
    return status == FL_OK ? FL_OK : fl_within(status, "--address");
}

static fl_status read_devices(const fl_args *args, int *n)
{
    const char *text = fl_args_value(args, "--devices");
    char *end = NULL;
    long value = text == NULL ? 1 : strtol(text, &end, 10);
    if (text != NULL &&
        (end == text || *end != '\0' || text[0] == ' ' || value < 1 || value > FL_MAX_WORKERS)) {
        return fl_fail(FL_EINVAL, "--devices: found '%.40s', allowed: 1 to %d", text,
                       FL_MAX_WORKERS);
    }
    *n = (int)value;
    return FL_OK;
}

static int exit_of(fl_status status, const fl_relay_end *end)
{
    return status == FL_OK && end->drained                          ? FL_EXIT_DRAINED
           : status == FL_OK && end->stopped                        ? FL_EXIT_TERMINATED
           : status == FL_EFAILED && end->exit_code != 0            ? end->exit_code
           : status == FL_ESTOPPED && end->signal_number == SIGTERM ? FL_EXIT_TERMINATED
                                                                    : fl_exit_of(status);
}

static fl_status join_run(const fl_args *args, fl_curve_keys *keys, fl_relay_end *end)
{
    char name[FL_HOST_TEXT], address[FL_ADDRESS_TEXT] = "";
    int64_t grace_ms = 0;
    fl_agent_host host = {.name = name, .address = address};
    FL_TRY(read_options(args, name, keys));
    FL_TRY(read_devices(args, &host.n_devices));
    FL_TRY(fl_agent_read_grace(args, &grace_ms));
    fl_early_signals_take(); /* the name may have no address for long */
    FL_TRY(await_head(args, &host.wait_ms));
    FL_TRY(read_address(args, address));
    host.address_chosen = fl_args_has(args, "--address");
    return fl_agent_join(fl_args_value(args, "--join"), keys, &host, grace_ms, end);
}

static int run_agent(const fl_args *args)
{
    fl_curve_keys keys;
    fl_relay_end end = {.exit_code = 0};
    fl_status status = join_run(args, &keys, &end);
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
               "lost. The run directory must be on a file system that all hosts share, unless\n"
               "the job says run.shared: false.\n"
               "SIGTERM has the run go on without this host: the agent ends with exit code 6\n"
               "once the other hosts have all that its workers owned. A second one ends it\n"
               "at once.\n"
               "A host that was lost or drained joins again by the same command; so does a\n"
               "new one while the run has ranks left (devices.max).\n",
    .options = {{"--join", 0, "ADDRESS", "where the run listens: tcp://ADDRESS:PORT"},
                {"--key", 0, "FILE", "the run's hosts.key; -: standard input"},
                {"--name", 0, "NAME", "this host in the file of hosts; default: the hostname"},
                {"--address", 0, "ADDRESS",
                 "of this host; default: the one the head knows or sees"},
                {"--devices", 0, "N", "of a new host: how many it offers; default: 1"},
                {"--grace", 0, "SECONDS", "after SIGTERM, to leave the run; default: 25"},
                {"--wait", 0, "SECONDS", "for the head and its name's address; default: 60"}},
    .run = run_agent,
};
