/* Which address a host gets that joins a run. */
#ifndef FL_CONTROL_AGENT_JOIN_ADDRESS_H
#define FL_CONTROL_AGENT_JOIN_ADDRESS_H

#include "control/agent/host_wire.h"

/* The address of the data plane of a host that the run knows by its name: the one of --address; or
 * the one that the run knows, if the host still has it or says nothing of its addresses; or else
 * the one from which the host reaches the head, as that of a pod that was made again. Borrowed from
 * the arguments. Pure. */
const char *fl_join_address(const fl_host *host, const fl_host_join *join);

#endif
