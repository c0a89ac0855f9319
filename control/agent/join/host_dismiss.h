/* What a head owes the agents of a run that was to go back and cannot: they wait to join it again.
 */
#ifndef FL_CONTROL_AGENT_JOIN_HOST_DISMISS_H
#define FL_CONTROL_AGENT_JOIN_HOST_DISMISS_H

#include "control/agent/wire/agent_wire.h"
#include "control/state/hosts/hosts.h"

/* How long to wait for agents that have not asked while the run waited for them for waited_ms: two
 * seconds, less after more than two, none after four. An agent that lives asks once its workers
 * have ended, which takes two seconds at most. Pure. */
int64_t fl_hosts_dismiss_ms(int64_t waited_ms);

/* Tell the agents of all hosts that are not absent how the run has ended, and why. Waits until each
 * has asked, for as long as fl_hosts_dismiss_ms says; where the head cannot listen, they end by
 * themselves later.
 * waited_ms  for hosts to join, where all that had joined have been told; else 0 */
void fl_hosts_dismiss(const fl_hosts *hosts, fl_agent_ending ending, const char *why,
                      int64_t waited_ms);

#endif
