/* Which processors a run's workers are pinned to: those that no other living run has, where there
 * are enough. A run marks what it takes; the mark is a socket bound to an abstract name, so it ends
 * with the last of its processes, however they end, and leaves nothing behind. Runs see each
 * other's marks within one network name space. */
#ifndef FL_LAUNCHER_WORKER_CORES_H
#define FL_LAUNCHER_WORKER_CORES_H

#include <sched.h>

/* What marks of real runs are called; tests have their own. */
#define FL_CORES_NAME "frostline processor"

typedef struct fl_cores {
    int n;                 /* 0: there are fewer than wanted, and nobody is pinned */
    int n_shared;          /* of them, marked by other runs */
    int cpu[CPU_SETSIZE];  /* [n], ascending */
    int mark[CPU_SETSIZE]; /* [n], sockets; -1: none */
} fl_cores;

/* Take `wanted` of the processors that this process may run on, free ones first. Where marks cannot
 * be made, all count as free. Release what was taken before taking again. */
void fl_cores_take(const char *name, int wanted, fl_cores *out);
void fl_cores_release(fl_cores *cores);

/* The processors as a mask, for children that choose from theirs; *before becomes what it was.
 * With n = 0 nothing changes. */
void fl_cores_confine(const fl_cores *cores, cpu_set_t *before);

#endif
