/* Philox 4x32-10 in vectors: several blocks of four words at a time, one in each 64-bit lane. The
 * products need that room; whatever is left in the upper halves is never looked at. */
#ifndef FL_DEVICE_CPU_ISA_PHILOX_H
#define FL_DEVICE_CPU_ISA_PHILOX_H

#include "device/cpu/isa/simd.h"
#include "device/random/philox.h"

typedef uint64_t vq __attribute__((vector_size(4 * FL_LANES), may_alias));

enum { PHILOX_ROUNDS = 10 };

/* The lower half of each lane times `factor`. */
FL_INLINE vq philox_multiply(vq x, uint32_t factor)
{
#if defined(__AVX512F__)
    return (vq)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
    return (vq)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(factor));
#elif defined(__SSE2__)
    return (vq)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x(factor));
#else
    return (x & 0xFFFFFFFFu) * factor;
#endif
}

/* What each round adds to the two words. */
typedef struct philox_keys {
    uint64_t even[PHILOX_ROUNDS], odd[PHILOX_ROUNDS];
} philox_keys;

FL_INLINE void philox_keys_of(const uint32_t key[2], philox_keys *k)
{
    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        k->even[round] = (uint32_t)(key[0] + round * 0x9E3779B9u);
        k->odd[round] = (uint32_t)(key[1] + round * 0xBB67AE85u);
    }
}

/* c: the counter's words in the lower halves of the lanes; becomes the block's. */
FL_INLINE void philox(vq c[4], const philox_keys *k)
{
#pragma GCC unroll 10
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        vq first = philox_multiply(c[0], 0xD2511F53u), second = philox_multiply(c[2], 0xCD9E8D57u);
        c[0] = (second >> 32) ^ c[1] ^ k->even[round];
        c[1] = second;
        c[2] = (first >> 32) ^ c[3] ^ k->odd[round];
        c[3] = first;
    }
}

#endif
