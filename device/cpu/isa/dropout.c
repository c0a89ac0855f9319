/* Dropout whose mask is a pure function of (key, sample, element). Element e takes word e % 4 of
 * the Philox block with the counter {lo32(e / 4), hi32(e / 4), lo32(sample), hi32(sample)}.
 *
 * LANES blocks are drawn at once, word w of them in the vector c[w]. Lane 4 q + r holds block
 * r LANES / 4 + q: turning each group of four lanes over then leaves the words in the order of the
 * elements. */
#include "device/cpu/isa/passes.h"
#include "device/cpu/isa/tile.h"

enum { ROUNDS = 10, DRAWN = 4 * LANES };

/* High and low words of the products of each lane with `factor`. */
FL_INLINE void multiply(vu x, uint32_t factor, vu *high, vu *low)
{
#if defined(__AVX512F__)
    __m512i f = _mm512_set1_epi32((int)factor), a = (__m512i)x;
    __m512i even = _mm512_mul_epu32(a, f), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), f);
    *high = (vu)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *low = (vu)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
#elif defined(__AVX2__)
    __m256i f = _mm256_set1_epi32((int)factor), a = (__m256i)x;
    __m256i even = _mm256_mul_epu32(a, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), f);
    *high = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#else
    for (int i = 0; i < LANES; i++) {
        uint64_t product = (uint64_t)x[i] * factor;
        (*high)[i] = (uint32_t)(product >> 32);
        (*low)[i] = (uint32_t)product;
    }
#endif
}

FL_INLINE void philox(vu c[4], uint32_t k0, uint32_t k1)
{
#pragma GCC unroll 10
    for (int round = 0; round < ROUNDS; round++) {
        vu high0, low0, high1, low1;
        multiply(c[0], 0xD2511F53u, &high0, &low0);
        multiply(c[2], 0xCD9E8D57u, &high1, &low1);
        c[0] = high1 ^ c[1] ^ k0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ k1;
        c[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Each group of four lanes of c[0 .. 3] is a 4 x 4 matrix; turn it over. */
FL_INLINE void turn_groups(vu c[4])
{
    FL_SWAP_BLOCKS(c, 4, 1);
    FL_SWAP_BLOCKS(c, 4, 2);
}

/* Which block, counted from the first of LANES, a lane draws. */
#define BLOCK_OF_LANE(lane, x) ((lane) % 4 * (FL_LANES / 4) + (lane) / 4 + (x))

/* The words of blocks first .. first + LANES - 1, in the order of their elements. */
FL_INLINE void draw(const uint32_t key[2], int64_t sample, uint64_t first, vu words[4])
{
    const vu block = FL_LANES_OF(BLOCK_OF_LANE, 0), zero = {0};
    words[0] = block + (uint32_t)first;
    words[1] = (uint32_t)(first >> 32) - (vu)(words[0] < block); /* -1 where the sum wrapped */
    words[2] = zero + (uint32_t)sample;
    words[3] = zero + (uint32_t)((uint64_t)sample >> 32);
    philox(words, key[0], key[1]);
    turn_groups(words);
}

FL_INLINE vf masked(vf x, vu word, float p, float scale)
{
    vf unit = v_from_int((vi)(word >> 8)) * 0x1p-24f;
    return v_select(unit >= v_all(p), x * scale, (vf){0});
}

void FL_ISA_NAME(dropout)(const float *in, const uint32_t key[2], int64_t sample, float p, float *y,
                          int64_t n)
{
    float scale = 1.0f / (1.0f - p);
    for (int64_t i = 0; i < n; i += DRAWN) {
        vu words[4];
        draw(key, sample, (uint64_t)i / 4, words);
#pragma GCC unroll 4
        for (int w = 0; w < 4; w++) {
            int64_t at = i + w * LANES, left = n - at;
            if (left >= LANES) {
                v_store(y + at, masked(v_load(in + at), words[w], p, scale));
            } else if (left > 0) {
                vf x = v_load_part(in + at, left);
                v_store_part(y + at, masked(x, words[w], p, scale), left);
            }
        }
    }
}
