/* Where the workers' time went: since the run began, and since the last report of an epoch. */
#ifndef FL_CONTROL_STATE_RUN_TIMES_H
#define FL_CONTROL_STATE_RUN_TIMES_H

#include "control/state/run_stats.h"

typedef struct fl_run_times {
    int n_workers;
    fl_time_sums *recent; /* [n_workers], since since_us */
    fl_time_sums *all;    /* [n_workers], since the run began */
    int64_t since_us;     /* 0: no worker trains yet */
} fl_run_times;

fl_status fl_run_times_init(fl_run_times *times, int n_workers) FL_MUST_CHECK;
void fl_run_times_fini(fl_run_times *times);

void fl_run_times_add(fl_run_times *times, int rank, const fl_time_report *report);

/* Sum anew from now_us on. */
void fl_run_times_restart(fl_run_times *times, int64_t now_us);

#endif
