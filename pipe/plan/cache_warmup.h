/* How far the cache has what the frozen blocks make of each sample. After F moves, the first epoch
 * computes what lacks; from then on it is read. What lay there below a lower frost line enters
 * behind its blocks. Pure. */
#ifndef FL_PIPE_PLAN_CACHE_WARMUP_H
#define FL_PIPE_PLAN_CACHE_WARMUP_H

#include <stdint.h>

typedef struct fl_cache_warmup {
    int F;         /* frozen blocks */
    int kept;      /* blocks whose outputs lay there when F became that; 0: none */
    int64_t since; /* the step */
} fl_cache_warmup;

/* F becomes another at `step`: what was kept serves a higher one, and dies with a lower one. What
 * was being gathered for less than an epoch is not there for all samples: then what lay there
 * before. */
void fl_cache_warmup_move(fl_cache_warmup *warming, int F, int64_t step, int64_t steps_per_epoch);

/* The share of the steps from .. to - 1 that belongs to the first epoch; 0 if there are none, or
 * nothing is frozen. */
double fl_cache_warmup_share(const fl_cache_warmup *warming, int64_t steps_per_epoch, int64_t from,
                             int64_t to);

#endif
