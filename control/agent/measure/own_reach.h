/* Whether a host reaches itself at its own address, as workers of one host reach each other. What
 * it sends there goes over the interface lo, which a firewall may filter. */
#ifndef FL_CONTROL_AGENT_MEASURE_OWN_REACH_H
#define FL_CONTROL_AGENT_MEASURE_OWN_REACH_H

#include "control/agent/measure/reach.h"

enum { FL_OWN_REACH_MS = 2000 };

/* True, after FL_OWN_REACH_MS at most, if a connection to `address`, which is this host's, comes
 * about; also if that cannot be tried. Otherwise why: "port 20017: no answer in 2.0 s".
 * ports    as in autodp/net/listen.h
 * Threads  any */
bool fl_own_reach(const char *address, const uint16_t ports[2], char why[FL_REACH_WHY_MAX + 1]);

#endif
