/* Counter-based random numbers: a value is a pure function of a key and a counter, so that any
 * worker draws the same. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC'11 (Philox 4x32-10). */
#ifndef FL_DEVICE_RANDOM_RANDOM_H
#define FL_DEVICE_RANDOM_RANDOM_H

#include <stdint.h>

/* Four independent 32-bit words. Threads: pure; any. */
void fl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* 64 bits mixed from two words: for deriving keys (SplitMix64 finalizer). */
uint64_t fl_mix64(uint64_t a, uint64_t b);

/* The 24 upper bits as a float in [0, 1). */
static inline float fl_unit(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

#endif
