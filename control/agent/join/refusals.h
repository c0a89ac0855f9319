/* What the log of the head says of agents that it refuses: who asked for which host, and why not.
 * An agent may ask again without end, so there is one line for an address in a minute. */
#ifndef FL_CONTROL_AGENT_JOIN_REFUSALS_H
#define FL_CONTROL_AGENT_JOIN_REFUSALS_H

#include "control/state/hosts/hosts.h"

#include <stdint.h>

enum { FL_REFUSALS_MAX = 64 /* addresses in a minute; of more, nothing is said */ };

/* All zeros: none was refused. */
typedef struct fl_refusals {
    struct {
        char address[FL_HOST_TEXT];
        int64_t told_us;  /* 0: this place is free */
        int64_t n_silent; /* refused since then */
    } of[FL_REFUSALS_MAX];
} fl_refusals;

/* host     for which the agent asked; "": it did not say
 * address  from which it connects; "": not known */
void fl_refusals_tell(fl_refusals *r, const char *host, const char *address, const char *why,
                      int64_t now_us);

#endif
