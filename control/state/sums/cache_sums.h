/* Sums of the workers' reports about the cache since the run began. */
#ifndef FL_CONTROL_STATE_SUMS_CACHE_SUMS_H
#define FL_CONTROL_STATE_SUMS_CACHE_SUMS_H

#include "control/link/link.h"

typedef struct fl_cache_sums {
    int f;                                /* the number of frozen blocks in the newest report */
    bool on;                              /* whether the worker that sent it used the cache */
    int64_t n_hits, n_upgrades, n_misses; /* samples */
    int64_t n_device, n_pinned;           /* hits in tiers of the workers' own */
} fl_cache_sums;

void fl_cache_sums_add(fl_cache_sums *sums, const fl_cache_report *report);

/* Whether workers take the output of the first F blocks from the cache. */
bool fl_cache_sums_used(const fl_cache_sums *sums, int F);

#endif
