/* frostline agent: this host in a run that another one leads. */
#include "control/link/keys/zap_auth.h"
#include "device/system/machine_name.h"
#include "device/text/plain_name.h"
#include "launcher/cli/hosts/agent_join.h"
#include "launcher/job/text/address.h"
#include "launcher/job/text/text.h"
#include "launcher/run/hosts/host_address.h"
#include "launcher/run/hosts/host_names.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/hosts/key_read.h"
#include "launcher/run/hosts/key_wait.h"
#include "launcher/run/hosts/own_address.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAD_MAX = 256,
    SHARED_MS = 10000, /* for a new file on a network file system to be seen here */
};

typedef struct agent_options {
    char name[FL_HOST_TEXT], address[FL_ADDRESS_TEXT]; /* of this host; address "": not given */
    char head[HEAD_MAX];                               /* its address, or its name */
    int64_t grace_ms;
    fl_agent_host host;
} agent_options;

/* One of the file of hosts, whose rule this is. */
static fl_status read_name(const char *given, char name[FL_HOST_TEXT])
{
    char own[FL_HOSTNAME_BYTES], shown[FL_SHOWN_MAX];
    const char *text = given == NULL ? fl_hostname(own) : given;
    if (!fl_name_is_plain(text, FL_HOST_TEXT - 1)) {
        return fl_fail(FL_EINVAL, "--name: found %s%s, allowed: %s1 to %d " FL_PLAIN_NAME_RULE,
                       fl_shown(text, strlen(text), shown),
                       given == NULL ? ", the name of this host" : "",
                       given == NULL ? "--name with " : "", FL_HOST_TEXT - 1);
    }
    memcpy(name, text, strlen(text) + 1);
    return FL_OK;
}

static fl_status refuse_join(const char *join)
{
    return fl_fail(
        FL_EINVAL,
        "--join: found '%.80s', allowed: tcp://ADDRESS:PORT, with the head's address, and "
        "PORT from 1 to 65534",
        join);
}

/* Where the head is: its address, or a name, which may have no address yet. */
static fl_status read_join(const fl_args *args, char head[HEAD_MAX])
{
    const char *join = fl_args_value(args, "--join");
    char text[HEAD_MAX];
    if (join == NULL || fl_args_value(args, "--key") == NULL) {
        return fl_fail(FL_EINVAL, "frostline agent: %s is missing; see frostline agent --help",
                       join == NULL ? "--join ADDRESS" : "--key FILE");
    }
    if (!fl_zap_auth_endpoint(join, 0, text, sizeof text)) {
        return refuse_join(join);
    }
    snprintf(head, HEAD_MAX, "%s", text + strlen("tcp://"));
    *strrchr(head, ':') = '\0';
    fl_status status = fl_address_check(head, FL_ADDRESS_OR_NAME);
    return status == FL_OK ? FL_OK : fl_within(status, "--join");
}

/* Of this host, at which its workers listen; "": not given. */
static fl_status read_address(const fl_args *args, const char *head, char address[FL_ADDRESS_TEXT])
{
    const char *given = fl_args_value(args, "--address");
    if (given == NULL) {
        return FL_OK;
    }
    fl_status status = fl_own_address_resolve(given, address);
    if (status == FL_OK) {
        bool near = fl_host_address_is_loopback(head) || fl_host_address_is_loopback(address);
        status =
            fl_own_address_check(given, address, near); /* find_address knows more of the head */
    }
    return status == FL_OK ? FL_OK : fl_within(status, "--address");
}

/* Once the head has an address. By default, this host has the one from which it reaches the head. A
 * loopback address leads to this host from this machine alone, where the head has one, too. */
static fl_status find_address(const fl_args *args, const char *head, char address[FL_ADDRESS_TEXT])
{
    char there[FL_ADDRESS_TEXT];
    if (address[0] == '\0') {
        fl_host_address_toward(fl_args_value(args, "--join"), address);
        return FL_OK;
    }
    bool is_far = fl_host_address(head, there) == FL_OK && !fl_host_address_is_loopback(there);
    fl_status status = fl_own_address_check(fl_args_value(args, "--address"), address, !is_far);
    return status == FL_OK ? FL_OK : fl_within(status, "--address");
}

/* The name of the head may have an address only once the head is there. */
static fl_status await_head(const fl_args *args, const char *head, int64_t wait_ms)
{
    if (!fl_args_has(args, "--wait")) {
        return FL_OK;
    }
    fl_status status = fl_host_names_await(&head, 1, wait_ms);
    return status == FL_OK ? FL_OK : fl_within(status, "--join");
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
           : status == FL_OK && end->failed                         ? FL_EXIT_FAILED
           : status == FL_EFAILED && end->exit_code != 0            ? end->exit_code
           : status == FL_ESTOPPED && end->signal_number == SIGTERM ? FL_EXIT_TERMINATED
                                                                    : fl_exit_of(status);
}

/* What needs neither the head nor the keys, which may come from a terminal. */
static fl_status read_options(const fl_args *args, agent_options *o)
{
    FL_TRY(read_join(args, o->head));
    FL_TRY(read_name(fl_args_value(args, "--name"), o->name));
    FL_TRY(read_devices(args, &o->host.n_devices));
    FL_TRY(fl_agent_read_grace(args, &o->grace_ms));
    FL_TRY(fl_agent_read_wait(args, &o->host.wait_ms));
    FL_TRY(read_address(args, o->head, o->address));
    o->host.name = o->name;
    o->host.address = o->address;
    o->host.address_chosen = fl_args_has(args, "--address");
    o->host.until_eof = fl_args_has(args, "--until-eof");
    o->host.input_spoke = strcmp(fl_args_value(args, "--key"), "-") == 0; /* it had the keys */
    return FL_OK;
}

/* Scripts start agents and the head at the same time. A head that starts an agent itself has
 * written the file before: a host that does not see it soon has another file system. */
static fl_status await_key(const char *path, const fl_agent_host *host)
{
    bool is_written = host->until_eof;
    fl_status status = fl_host_key_await(
        path, is_written && host->wait_ms > SHARED_MS ? SHARED_MS : host->wait_ms);
    if (status != FL_EDEADLINE || !is_written) {
        return status;
    }
    return fl_fail(FL_EINVAL,
                   "%s: no such file on this host: it does not share the head's run directory; "
                   "allowed: a run.dir on a file system that all hosts share, or run.shared false",
                   path);
}

static fl_status read_keys(const fl_args *args, const fl_agent_host *host, fl_curve_keys *keys)
{
    const char *path = fl_args_value(args, "--key");
    if (strcmp(path, "-") == 0) {
        fl_status status = fl_hosts_read_key_input(STDIN_FILENO, host->wait_ms, keys);
        return status == FL_OK ? FL_OK : fl_within(status, "--key -");
    }
    fl_status status = await_key(path, host);
    if (status == FL_OK) {
        status = fl_hosts_read_key(path, keys);
    }
    return status == FL_OK ? FL_OK : fl_within(status, "--key");
}

static fl_status join_run(const fl_args *args, fl_curve_keys *keys, fl_relay_end *end)
{
    agent_options o = {.name = ""};
    FL_TRY(read_options(args, &o));
    FL_TRY(read_keys(args, &o.host, keys));
    o.host.key_path = o.host.input_spoke ? NULL : fl_args_value(args, "--key");
    FL_TRY(await_head(args, o.head, o.host.wait_ms));
    FL_TRY(find_address(args, o.head, o.address));
    return fl_agent_join(fl_args_value(args, "--join"), keys, &o.host, o.grace_ms, end);
}

static int run_agent(const fl_args *args)
{
    fl_curve_keys keys;
    fl_relay_end end = {.exit_code = 0};
    fl_status status = join_run(args, &keys, &end);
    explicit_bzero(&keys, sizeof keys);
    if (status != FL_OK && !end.told) {
        fl_complain("%s", fl_errmsg());
    }
    return exit_of(status, &end);
}

const fl_cli_command fl_cli_command_agent = {
    .name = "agent",
    .is_stopped = true,
    .is_agent = true,
    .summary = "Join a run on several hosts with the devices of this one.",
    .details = "Starts the workers of this host for a run that `frostline run` has started on\n"
               "another host, the head. The agent ends when the run is over or the head is lost.\n"
               "The run directory must be on a file system that all hosts share, unless the job\n"
               "has run.shared: false.\n"
               "After SIGTERM, the run goes on without this host. The agent ends with exit code\n"
               "6 once the other hosts have everything that its workers owned. A second SIGTERM\n"
               "ends it at once.\n"
               "A host that was lost or drained joins again by the same command. A new host can\n"
               "join while the run has ranks left (devices.max).\n",
    .options = {{"--join", 0, "ADDRESS", "where the run listens: tcp://ADDRESS:PORT"},
                {"--key", 0, "FILE", "the run's hosts.key; -: standard input"},
                {"--name", 0, "NAME", "this host in the file of hosts; default: the hostname"},
                {"--address", 0, "ADDRESS", "of this host; default: the one that the head knows"},
                {"--devices", 0, "N", "devices that a new host offers; default: 1"},
                {"--grace", 0, "SECONDS", "longest wait to leave after SIGTERM; default: 25"},
                {"--wait", 0, "SECONDS", "longest wait for the keys and for the head; default: 60"},
                {"--until-eof", 0, NULL, "end if standard input ends before the agent has joined"}},
    .exit_codes = {{FL_EXIT_FAILED,
                    "the run failed, the head has lost this host, or it does not answer"},
                   {FL_EXIT_TERMINATED,
                    "SIGTERM ended it before this host was drained, or the run"},
                   {FL_EXIT_DRAINED, "this host was drained; the run goes on without it"}},
    .run = run_agent,
    .result_is_files = true,
};
