/* What frostline agent, and frostline run as a task of an engine, share. */
#ifndef FL_LAUNCHER_CLI_HOSTS_AGENT_JOIN_H
#define FL_LAUNCHER_CLI_HOSTS_AGENT_JOIN_H

#include "control/agent/relay/relay.h"
#include "launcher/cli/cli.h"

/* --grace, or its default. FL_EINVAL. */
fl_status fl_agent_read_grace(const fl_args *args, int64_t *ms) FL_MUST_CHECK;

/* --wait, or its default. FL_EINVAL. */
fl_status fl_agent_read_wait(const fl_args *args, int64_t *ms) FL_MUST_CHECK;

/* This host, for the run that it joins. */
typedef struct fl_agent_host {
    const char *name, *address; /* address "": it has the one that the run knows */
    const char *key_path;       /* of the keys, to be read again if the head refuses them; NULL: no
                                   file */
    bool address_chosen;        /* by the user, and not the one from which it reaches the head */
    int n_devices;              /* should it be new to the run */
    int64_t wait_ms;            /* for the head's first answer; 0: a minute */
    bool until_eof;             /* it ends with standard input until it has joined, */
    bool input_spoke;           /* from which something has come */
    int64_t hold_ms;            /* these three: as in fl_relay_options */
    fl_relay_check_head *check_head;
    void *head_context;
} fl_agent_host;

/* Serve a run at this endpoint as this host until it is over. As fl_relay_run. */
fl_status fl_agent_join(const char *endpoint, const fl_curve_keys *keys, const fl_agent_host *host,
                        int64_t grace_ms, fl_relay_end *end) FL_MUST_CHECK;

#endif
