#include "pipe/step/input/augmentation.h"

int64_t fl_augment_epoch(const fl_job *job, int F, int64_t epoch)
{
    bool fixed = job->cache.policy != FL_CACHE_OFF && job->cache.augment == FL_CACHE_AUGMENT_FREEZE;
    return fixed && F > 0 ? 0 : epoch;
}

bool fl_augment_applies(const fl_job *job, int F)
{
    return F == 0 || job->cache.policy == FL_CACHE_OFF ||
           job->cache.augment != FL_CACHE_AUGMENT_STOP;
}
