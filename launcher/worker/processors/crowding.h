/* Notices that a pinned worker waits for its processors although others are idle, and lets it run
 * there: several runs, pods or hosts on one machine may have chosen the same processors, because
 * the marks of cores.h are not seen from one network name space to the next. */
#ifndef FL_LAUNCHER_WORKER_PROCESSORS_CROWDING_H
#define FL_LAUNCHER_WORKER_PROCESSORS_CROWDING_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Times since some moment, us. */
typedef struct fl_crowding_reading {
    int64_t at_us;
    int64_t waited_us; /* in which a thread of this worker could have run, but did not; of all */
    int64_t idle_us; /* of the processors that the worker might use, but is not pinned to; of all */
} fl_crowding_reading;

typedef struct fl_crowding {
    bool pinned;       /* and there are others; else nothing is done */
    cpu_set_t allowed; /* where the process may run if it is not pinned */
    cpu_set_t others;  /* those of them that it is not pinned to */
    fl_crowding_reading last;
    int n_crowded; /* intervals in a row */
} fl_crowding;

/* Before the worker is pinned to cpus[n]; NULL: it is not. */
void fl_crowding_init(fl_crowding *c, const int *cpus, int n);

/* After a step, on any thread: look, if it is time for it, and take off the pin if the worker is
 * crowded. */
void fl_crowding_check(fl_crowding *c);

/* The worker computes no more: take off the pin, so that its threads can end (fl_proc_unpin). */
void fl_crowding_end(fl_crowding *c);

/* ---- its parts, for tests ---- */

/* Takes the reading as the end of an interval. Whether the worker has been crowded for long enough.
 * Pure. */
bool fl_crowding_judge(fl_crowding *c, const fl_crowding_reading *now);

/* How long these processors were idle in sum, us: stat is the text of /proc/stat. Pure. */
int64_t fl_crowding_idle_us(const char *stat, const cpu_set_t *cpus, int64_t ticks_a_second);

#endif
