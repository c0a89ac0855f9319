#include "launcher/cli/hosts/agent_join.h"

#include "launcher/job/text/text.h"
#include "launcher/run/hosts/host_address.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/hosts/key_read.h"
#include "launcher/run/joined/joined.h"
#include "launcher/run/joined/joined_measure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { JOIN_MS = 60000, GRACE_S = 25 }; /* Kubernetes and Slurm kill 30 s after SIGTERM */

static fl_status read_seconds(const fl_args *args, const char *option, long least, int64_t *ms)
{
    const char *text = fl_args_value(args, option);
    char shown[FL_SHOWN_MAX];
    char *end = NULL;
    if (text == NULL) {
        return FL_OK;
    }
    errno = 0;
    long seconds = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == ' ' || seconds < least ||
        seconds > FL_HOST_GRACE_MAX_MS / 1000) {
        return fl_fail(FL_EINVAL, "%s: found %s, allowed: %ld to %d seconds", option,
                       fl_shown(text, strlen(text), shown), least, FL_HOST_GRACE_MAX_MS / 1000);
    }
    *ms = seconds * 1000;
    return FL_OK;
}

fl_status fl_agent_read_grace(const fl_args *args, int64_t *ms)
{
    *ms = GRACE_S * 1000;
    return read_seconds(args, "--grace", 0, ms);
}

fl_status fl_agent_read_wait(const fl_args *args, int64_t *ms)
{
    *ms = JOIN_MS;
    return read_seconds(args, "--wait", 1, ms);
}

/* The keys of this process, and where they come from. */
typedef struct own_keys {
    fl_curve_keys keys;
    const char *path;
} own_keys;

/* A file that is gone, or not written yet, has none. */
static bool read_own_keys(void *context)
{
    own_keys *own = context;
    fl_curve_keys keys;
    bool is_new =
        fl_hosts_read_key(own->path, &keys) == FL_OK &&
        (strcmp(keys.server, own->keys.server) != 0 || strcmp(keys.secret, own->keys.secret) != 0);
    if (is_new) {
        own->keys = keys;
    }
    explicit_bzero(&keys, sizeof keys);
    return is_new;
}

fl_status fl_agent_join(const char *endpoint, const fl_curve_keys *keys, const fl_agent_host *host,
                        int64_t grace_ms, fl_relay_end *end)
{
    own_keys own = {*keys, host->key_path}; /* the agent's process gets the keys as its context */
    uint32_t own_addresses[FL_HOST_OWN_MAX];
    int n_own = fl_host_address_all(own_addresses, FL_HOST_OWN_MAX);
    fl_relay_options relay = {.endpoint = endpoint,
                              .keys = &own.keys,
                              .key_path = host->key_path,
                              .read_keys = host->key_path == NULL ? NULL : read_own_keys,
                              .keys_context = &own,
                              .name = host->name,
                              .address = host->address,
                              .address_chosen = host->address_chosen,
                              .own = own_addresses,
                              .n_own = n_own,
                              .n_devices = host->n_devices,
                              .join_ms = host->wait_ms > 0 ? host->wait_ms : JOIN_MS,
                              .grace_ms = grace_ms,
                              .until_eof = host->until_eof,
                              .input_spoke = host->input_spoke,
                              .hold_ms = host->hold_ms,
                              .check_head = host->check_head,
                              .head_context = host->head_context,
                              .serve = fl_joined_serve,
                              .measure = fl_joined_measure,
                              .context = &own.keys};
    fl_machine_kind_read("", &relay.kind);
    fl_status status = fl_relay_run(&relay, end);
    explicit_bzero(&own, sizeof own);
    return status;
}
