/* Chooses the processors that a run's workers are pinned to: those that no other live run uses, if
 * there are enough. A run marks each processor that it takes. A mark is a socket bound to an
 * abstract name: it disappears with the last process of the run, however that ends, and leaves no
 * file. Runs see each other's marks within one network name space. */
#ifndef FL_LAUNCHER_WORKER_PROCESSORS_CORES_H
#define FL_LAUNCHER_WORKER_PROCESSORS_CORES_H

#include <sched.h>

/* Prefix of the marks of real runs; tests use their own. */
#define FL_CORES_NAME "frostline processor"

typedef struct fl_cores {
    int n;                 /* 0: fewer than wanted, and no worker is pinned */
    int n_shared;          /* how many of them other runs have marked */
    int cpu[CPU_SETSIZE];  /* [n], ascending */
    int mark[CPU_SETSIZE]; /* [n], sockets; -1: none */
} fl_cores;

/* Take `wanted` of the processors that this process may run on, unmarked ones first. Where marks
 * cannot be made, all count as unmarked. Release earlier ones before taking again. */
void fl_cores_take(const char *name, int wanted, fl_cores *out);
void fl_cores_release(fl_cores *cores);

/* Set this process's mask to these processors, for children that choose from it; *before is the
 * mask until now. With n = 0 nothing changes. */
void fl_cores_confine(const fl_cores *cores, cpu_set_t *before);

#endif
