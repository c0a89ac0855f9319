/* What a head owes the agents of a run that was to go back and cannot: they wait to join it again.
 */
#ifndef FL_CONTROL_AGENT_JOIN_HOST_DISMISS_H
#define FL_CONTROL_AGENT_JOIN_HOST_DISMISS_H

#include "control/agent/wire/agent_wire.h"
#include "control/state/hosts/hosts.h"

/* Tell the agents of all hosts that are not absent how the run has ended, and why. Waits until each
 * has asked, two seconds at most; where the head cannot listen, they end by themselves later. */
void fl_hosts_dismiss(const fl_hosts *hosts, fl_agent_ending ending, const char *why);

#endif
