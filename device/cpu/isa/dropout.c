/* Dropout whose mask is a pure function of (key, sample, element); fl_rng_key in device/device.h
 * says which bits an element takes.
 *
 * A block is drawn in one 64-bit lane a word: the products need room, and whatever is left in the
 * upper halves is never looked at. Lanes are then put together so that the words of blocks that
 * follow each other stand in order, whose lower halves are 16 elements and whose upper halves the
 * next 16. */
#include "device/cpu/isa/passes.h"

typedef uint64_t vq __attribute__((vector_size(4 * FL_LANES), may_alias));

/* One draw: BLOCKS blocks of four words, in WORDS vectors, for ELEMENTS elements. */
enum { ROUNDS = 10, BLOCKS = 8, WORDS = 4 * BLOCKS / LANES, ELEMENTS = 8 * BLOCKS };
enum { BLOCKS_A_VECTOR = LANES / 2, BITS = 16 };

/* The lower half of each lane times `factor`. */
FL_INLINE vq multiply(vq x, uint32_t factor)
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
typedef struct round_keys {
    uint64_t even[ROUNDS], odd[ROUNDS];
} round_keys;

static void keys_of(const uint32_t key[2], round_keys *k)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        k->even[round] = (uint32_t)(key[0] + round * 0x9E3779B9u);
        k->odd[round] = (uint32_t)(key[1] + round * 0xBB67AE85u);
    }
}

FL_INLINE void philox(vq c[4], const round_keys *k)
{
#pragma GCC unroll 10
    for (int round = 0; round < ROUNDS; round++) {
        vq first = multiply(c[0], 0xD2511F53u), second = multiply(c[2], 0xCD9E8D57u);
        c[0] = (second >> 32) ^ c[1] ^ k->even[round];
        c[1] = second;
        c[2] = (first >> 32) ^ c[3] ^ k->odd[round];
        c[3] = first;
    }
}

/* The number of a 64-bit lane, given that of the 32-bit lane in which it begins or ends. */
#define BLOCK_OF_LANE(lane, x) ((lane) % 2 == 0 ? (lane) / 2 + (x) : 0)
/* Word lane % 4 of block lane / 4 + x: words 0 and 1 of each block stand in one vector, 2 and 3 in
 * the other. */
#define WORD_OF_LANE(lane, x)                                                                      \
    ((((lane) / 4 + (x)) * 2 + (lane) % 2) + ((lane) % 4 < 2 ? 0 : FL_LANES))

/* The words of blocks first .. first + BLOCKS - 1, in order. */
FL_INLINE void draw(const round_keys *k, int64_t sample, uint64_t first, vu words[WORDS])
{
    const vu number = FL_LANES_OF(BLOCK_OF_LANE, 0);
    const vi low = FL_LANES_OF(WORD_OF_LANE, 0), high = FL_LANES_OF(WORD_OF_LANE, FL_LANES / 4);
    const vq zero = {0};
#pragma GCC unroll 4
    for (int i = 0; i < BLOCKS / BLOCKS_A_VECTOR; i++) {
        vq block = (vq)number + (first + (uint64_t)(i * BLOCKS_A_VECTOR));
        vq c[4] = {block, block >> 32, zero + (uint64_t)sample, zero + ((uint64_t)sample >> 32)};
        philox(c, k);
        vu even = (vu)((c[0] & 0xFFFFFFFFu) | c[1] << 32);
        vu odd = (vu)((c[2] & 0xFFFFFFFFu) | c[3] << 32);
        words[2 * i] = V_SHUFFLE(even, odd, low);
        words[2 * i + 1] = V_SHUFFLE(even, odd, high);
    }
}

typedef struct rate {
    int32_t threshold;
    float scale;
} rate;

static rate rate_of(float p)
{
    const float most = (float)(1 << BITS);
    float threshold = __builtin_roundf(p * most);
    threshold = threshold < most ? threshold : most - 1.0f;
    return (rate){(int32_t)threshold, most / (most - threshold)};
}

FL_INLINE vf masked(vf x, vu bits, rate r)
{
    return v_select((vi)bits >= r.threshold, x * r.scale, (vf){0});
}

void FL_ISA_NAME(dropout)(const float *in, const uint32_t key[2], int64_t sample, float p, float *y,
                          int64_t n)
{
    rate r = rate_of(p);
    round_keys keys;
    keys_of(key, &keys);
    for (int64_t i = 0; i < n; i += ELEMENTS) {
        vu words[WORDS];
        draw(&keys, sample, (uint64_t)i / 8, words);
#pragma GCC unroll 16
        for (int e = 0; e < ELEMENTS; e += LANES) {
            vu word = words[(e / 32 * 16 + e % 16) / LANES];
            vu bits = e / 16 % 2 == 0 ? (vu)(word & 0xFFFFu) : (vu)(word >> BITS);
            int64_t at = i + e, left = n - at;
            if (left >= LANES) {
                v_store(y + at, masked(v_load(in + at), bits, r));
            } else if (left > 0) {
                v_store_part(y + at, masked(v_load_part(in + at, left), bits, r), left);
            }
        }
    }
}
