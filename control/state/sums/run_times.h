/* Sums of the workers' times: since the run began, and since the last epoch was reported. */
#ifndef FL_CONTROL_STATE_SUMS_RUN_TIMES_H
#define FL_CONTROL_STATE_SUMS_RUN_TIMES_H

#include "control/state/sums/run_stats.h"

typedef struct fl_run_times {
    int n_workers;
    fl_time_sums *recent; /* [n_workers], since since_us */
    fl_time_sums *all;    /* [n_workers], since the run began */
    int64_t since_us;     /* 0: no worker has reported a step yet */
} fl_run_times;

fl_status fl_run_times_init(fl_run_times *times, int n_workers) FL_MUST_CHECK;
void fl_run_times_fini(fl_run_times *times);

void fl_run_times_add(fl_run_times *times, int rank, const fl_time_report *report);

/* Restart the recent sums at now_us. */
void fl_run_times_restart(fl_run_times *times, int64_t now_us);

#endif
