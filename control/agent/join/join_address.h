/* Which address a host gets that joins a run, whether the others reach it there, and whether there
 * are ranks for a new one. */
#ifndef FL_CONTROL_AGENT_JOIN_JOIN_ADDRESS_H
#define FL_CONTROL_AGENT_JOIN_JOIN_ADDRESS_H

#include "control/agent/wire/host_wire.h"

/* The address of the data plane of a host that the run knows by its name: the one of --address; or
 * the one that the run knows, if the host still has it or says nothing of its addresses; or else
 * the one from which the host reaches the head, as that of a pod that was made again. Borrowed from
 * the arguments. Pure. */
const char *fl_join_address(const fl_host *host, const fl_host_join *join);

/* Whether other hosts reach this one at `address`: it is one of its own, and leads them not to
 * themselves; else why not. Pure. */
bool fl_join_is_reachable(const fl_hosts *hosts, const fl_host_join *join, const char *address,
                          char why[FL_HOST_TEXT_MAX + 1]);

/* Whether a run of at most n_ranks workers has ranks left for this host, which it does not know;
 * else why not, with the hosts that the run awaits: the name may be mistyped. Pure.
 * awaited  [hosts->n] which of them */
bool fl_join_has_ranks(const fl_hosts *hosts, const fl_host_join *join, int n_ranks,
                       const bool *awaited, char why[FL_HOST_TEXT_MAX + 1]);

#endif
