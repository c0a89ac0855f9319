/* What workers have told of the cache since the run began. */
#ifndef FL_CONTROL_STATE_CACHE_SUMS_H
#define FL_CONTROL_STATE_CACHE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_cache_sums {
    int f;                                /* frozen blocks, as the newest report has it */
    bool on;                              /* whether it was used by then */
    int64_t n_hits, n_upgrades, n_misses; /* samples */
} fl_cache_sums;

#endif
