/* How far the cache is filled with the output of the frozen blocks. After F changes, the first
 * epoch computes and stores the missing values; later epochs read them. A value that was stored
 * below a lower frost line enters behind its blocks. Pure. */
#ifndef FL_PIPE_COST_TIME_CACHE_WARMUP_H
#define FL_PIPE_COST_TIME_CACHE_WARMUP_H

#include <stdint.h>

typedef struct fl_cache_warmup {
    int F;         /* frozen blocks */
    int kept;      /* blocks whose output was stored for all samples when F changed; 0: none */
    int64_t since; /* step at which F changed */
} fl_cache_warmup;

/* F changes at `step`. Stored values stay useful for a higher F and become useless with a lower
 * one. Values that were gathered for less than an epoch are not there for all samples; then only
 * the values from before count. */
void fl_cache_warmup_move(fl_cache_warmup *warming, int F, int64_t step, int64_t steps_per_epoch);

/* The share of the steps from .. to - 1 that fills the cache (the first epoch after the change); 0
 * if that range is empty or nothing is frozen. */
double fl_cache_warmup_share(const fl_cache_warmup *warming, int64_t steps_per_epoch, int64_t from,
                             int64_t to);

#endif
