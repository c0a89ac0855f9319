/* Whether the processes of this host reach each other: a firewall may filter the interface lo, or
 * it may be down. */
#ifndef FL_LAUNCHER_RUN_CHECKS_LOOPBACK_H
#define FL_LAUNCHER_RUN_CHECKS_LOOPBACK_H

#include "launcher/run/plan/preparation.h"

typedef struct fl_loopback_fault {
    char found[512]; /* "workers 1 .. 2 cannot reach each other: loopback is filtered: ..." */
    const char *allowed, *mend; /* as in control/agent/measure/own_reach.h */
} fl_loopback_fault;

/* As fl_loopback_check; false: *fault says why not. */
bool fl_loopback_works(const fl_preparation *p, fl_loopback_fault *fault);

/* Try it before a worker starts: after fl_preparation_check. A host with one worker needs no
 * loopback, unless it is the head and its links are measured. FL_ENOTSUP: connections over lo do
 * not get through. */
fl_status fl_loopback_check(const fl_preparation *p) FL_MUST_CHECK;

#endif
