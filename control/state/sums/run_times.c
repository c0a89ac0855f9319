#include "control/state/sums/run_times.h"

#include "device/system/alloc.h"

#include <string.h>

fl_status fl_run_times_init(fl_run_times *times, int n_workers)
{
    size_t n = (size_t)n_workers;
    *times = (fl_run_times){.n_workers = n_workers};
    FL_TRY(fl_alloc_array(n, sizeof *times->recent, (void **)&times->recent));
    return fl_alloc_array(n, sizeof *times->all, (void **)&times->all);
}

void fl_run_times_fini(fl_run_times *times)
{
    fl_free(times->recent);
    fl_free(times->all);
    *times = (fl_run_times){0};
}

static void add_report(fl_time_sums *sums, const fl_time_report *report)
{
    sums->compute_us += (double)report->compute_us;
    sums->wait_us += (double)report->wait_us;
    sums->reduce_wait_us += (double)report->reduce_wait_us;
    sums->optimizer_us += (double)report->optimizer_us;
    sums->data_us += (double)report->data_us;
}

void fl_run_times_add(fl_run_times *times, int rank, const fl_time_report *report)
{
    add_report(&times->recent[rank], report);
    add_report(&times->all[rank], report);
}

void fl_run_times_restart(fl_run_times *times, int64_t now_us)
{
    memset(times->recent, 0, (size_t)times->n_workers * sizeof *times->recent);
    times->since_us = now_us;
}
