/* The arithmetic of device/random/random.h and of fl_mask, as functions that C and CUDA C compile
 * from this one place. FL_BOTH_SIDES: what CUDA C wants before a function that host and device
 * call. */
#ifndef FL_DEVICE_RANDOM_PHILOX_H
#define FL_DEVICE_RANDOM_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define FL_BOTH_SIDES static __host__ __device__ __forceinline__
#else
#define FL_BOTH_SIDES static inline
#endif

typedef struct fl__four_words {
    uint32_t word[4];
} fl__four_words;

/* Philox 4x32-10. Multipliers and Weyl constants are those of the paper's table 2. */
FL_BOTH_SIDES fl__four_words fl__philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                        uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53u * c0, second = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(second >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)second;
        c2 = (uint32_t)(first >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)first;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    fl__four_words out = {{c0, c1, c2, c3}};
    return out;
}

/* The SplitMix64 finalizer over two words. */
FL_BOTH_SIDES uint64_t fl__mix64(uint64_t a, uint64_t b)
{
    uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* What all masks of an epoch are drawn from. */
FL_BOTH_SIDES uint64_t fl__epoch_key64(uint64_t seed, int64_t epoch)
{
    return fl__mix64(seed, (uint64_t)epoch);
}

/* The key k of a mask, both halves in one: fl_mask in frostline/kernels.h. */
FL_BOTH_SIDES uint64_t fl__mask_key64(uint64_t epoch_key, int32_t layer, int32_t stream)
{
    uint64_t place = (uint64_t)(uint32_t)layer << 32 | (uint32_t)stream;
    return fl__mix64(epoch_key, place);
}

enum { MASK_BITS = 16 };

/* Which of 65536 values of 16 bits drop, and what the others are multiplied by. */
typedef struct mask_rate {
    int32_t threshold;
    float scale;
} mask_rate;

static inline mask_rate mask_rate_of(float p)
{
    const float most = (float)(1 << MASK_BITS);
    float threshold = __builtin_roundf(p * most);
    threshold = threshold < most ? threshold : most - 1.0f;
    mask_rate rate = {(int32_t)threshold, most / (most - threshold)};
    return rate;
}

#endif
