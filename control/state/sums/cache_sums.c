#include "control/state/sums/cache_sums.h"

void fl_cache_sums_add(fl_cache_sums *sums, const fl_cache_report *report)
{
    sums->f = report->f;
    sums->on = report->on;
    sums->n_hits += report->n_hits;
    sums->n_upgrades += report->n_upgrades;
    sums->n_misses += report->n_misses;
    sums->n_device += report->n_device;
    sums->n_pinned += report->n_pinned;
}

bool fl_cache_sums_used(const fl_cache_sums *sums, int F)
{
    return sums->on && F > 0 && sums->f == F;
}
