/* Whether a firewall keeps the processes of this host from each other. */
#ifndef FL_LAUNCHER_RUN_PLAN_LOOPBACK_H
#define FL_LAUNCHER_RUN_PLAN_LOOPBACK_H

#include "launcher/run/plan/preparation.h"

/* Try it before a worker starts: after fl_preparation_check. A host with one worker needs no
 * loopback, unless it is the head and its links are measured. FL_ENOTSUP: connections over lo do
 * not get through. */
fl_status fl_loopback_check(const fl_preparation *p) FL_MUST_CHECK;

#endif
