/* Whether a host reaches itself at an address of its own, as workers of one host reach each other.
 * What it sends there goes over the interface lo, which may be down, or which a firewall may
 * filter. */
#ifndef FL_CONTROL_AGENT_MEASURE_OWN_REACH_H
#define FL_CONTROL_AGENT_MEASURE_OWN_REACH_H

#include "control/agent/measure/reach.h"

enum { FL_OWN_REACH_MS = 2000 };

typedef struct fl_own_reach_fault {
    char found[FL_REACH_WHY_MAX + 96]; /* "loopback is filtered: 10.0.0.2 over the interface lo,
                                           port 20017: no answer in 2.0 s" */
    const char *allowed;               /* "a firewall that accepts what goes over lo" */
    const char *mend;                  /* what corrects it */
} fl_own_reach_fault;

/* True, after FL_OWN_REACH_MS at most, if a connection to `address`, which is this host's, comes
 * about; also if that cannot be tried. Otherwise *fault says why.
 * ports    as in autodp/net/listen.h
 * Threads  any */
bool fl_own_reach(const char *address, const uint16_t ports[2], fl_own_reach_fault *fault);

#endif
