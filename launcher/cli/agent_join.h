/* What frostline agent, and frostline run as a task of an engine, share. */
#ifndef FL_LAUNCHER_CLI_AGENT_JOIN_H
#define FL_LAUNCHER_CLI_AGENT_JOIN_H

#include "control/agent/relay.h"
#include "launcher/cli/cli.h"

/* --grace, or its default. FL_EINVAL. */
fl_status fl_agent_read_grace(const fl_args *args, int64_t *ms) FL_MUST_CHECK;

/* Serve a run at this endpoint as host `name` until it is over. As fl_relay_run. */
fl_status fl_agent_join(const char *endpoint, const fl_curve_keys *keys, const char *name,
                        int64_t grace_ms, fl_relay_end *end) FL_MUST_CHECK;

#endif
