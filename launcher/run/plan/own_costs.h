/* What layers cost on the head, measured in a process of its own, while hosts of other kinds
 * measure theirs: this process then has the threads of ZeroMQ, and must not fork. */
#ifndef FL_LAUNCHER_RUN_PLAN_OWN_COSTS_H
#define FL_LAUNCHER_RUN_PLAN_OWN_COSTS_H

#include "launcher/run/plan/preparation.h"

#include <sys/types.h>

typedef struct fl_own_costs {
    pid_t pid; /* 0: none runs */
    int fd;    /* readable when the process has ended; -1: none runs */
    struct fl_own_costs_shared *shared;
} fl_own_costs;

/* Start it, after fl_costs_look. The caller has no threads yet. FL_EIO, FL_ENOMEM */
fl_status fl_own_costs_start(const fl_preparation *p, fl_own_costs *out) FL_MUST_CHECK;

/* FL_EFAILED if the process was killed; else why it could not measure. FL_OK: it measures, or has
 * done so. */
fl_status fl_own_costs_check(const fl_own_costs *own) FL_MUST_CHECK;

/* Once fd is readable: p->costs and p->profile have what was measured, and the file keeps it.
 * Returns what fl_costs_measure returns. */
fl_status fl_own_costs_take(fl_own_costs *own, fl_preparation *p) FL_MUST_CHECK;

/* End it. Nothing happens if none runs. */
void fl_own_costs_end(fl_own_costs *own);

#endif
