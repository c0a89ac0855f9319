/* What several devices ask of the offsets of a micro-batch. */
#ifndef FL_DEVICE_OFFSETS_H
#define FL_DEVICE_OFFSETS_H

#include <frostline/kernels.h>

/* The longest sample's tokens, from the host's copy. */
static inline int64_t fl__longest_sample(const fl_offsets *o)
{
    int64_t most = 0;
    for (int64_t i = 0; i < o->n_samples; i++) {
        int64_t n = o->host[i + 1] - o->host[i];
        most = n > most ? n : most;
    }
    return most;
}

#endif
