/* Dropout whose mask is a pure function of (key, sample, element): fl_mask in frostline/kernels.h
 * defines the bits of an element.
 *
 * After a draw, lanes are put together so that the words of blocks that follow each other stand in
 * order: their lower halves are 16 elements and their upper halves the next 16. */
#include "device/cpu/isa/passes.h"
#include "device/cpu/isa/philox.h"

/* One draw: BLOCKS blocks of four words, in WORDS vectors, for ELEMENTS elements. */
enum { BLOCKS = 8, WORDS = 4 * BLOCKS / LANES, ELEMENTS = 8 * BLOCKS };
enum { BLOCKS_A_VECTOR = LANES / 2 };

/* The number of a 64-bit lane, given that of the 32-bit lane in which it begins or ends. */
#define BLOCK_OF_LANE(lane, x) ((lane) % 2 == 0 ? (lane) / 2 + (x) : 0)
/* Word lane % 4 of block lane / 4 + x: words 0 and 1 of each block stand in one vector, 2 and 3 in
 * the other. */
#define WORD_OF_LANE(lane, x)                                                                      \
    ((((lane) / 4 + (x)) * 2 + (lane) % 2) + ((lane) % 4 < 2 ? 0 : FL_LANES))

/* The words of blocks first .. first + BLOCKS - 1, in order. */
FL_INLINE void draw(const philox_keys *k, int64_t sample, uint64_t first, vu words[WORDS])
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

FL_INLINE vf masked(vf x, vu bits, mask_rate r)
{
    return v_select((vi)bits >= r.threshold, x * r.scale, (vf){0});
}

void FL_ISA_NAME(dropout)(const float *in, const uint32_t key[2], int64_t sample, float p, float *y,
                          int64_t n)
{
    mask_rate r = mask_rate_of(p);
    philox_keys keys;
    philox_keys_of(key, &keys);
    for (int64_t i = 0; i < n; i += ELEMENTS) {
        vu words[WORDS];
        draw(&keys, sample, (uint64_t)i / 8, words);
#pragma GCC unroll 16
        for (int e = 0; e < ELEMENTS; e += LANES) {
            vu word = words[(e / 32 * 16 + e % 16) / LANES];
            vu bits = e / 16 % 2 == 0 ? (vu)(word & 0xFFFFu) : (vu)(word >> MASK_BITS);
            int64_t at = i + e, left = n - at;
            if (left >= LANES) {
                v_store(y + at, masked(v_load(in + at), bits, r));
            } else if (left > 0) {
                v_store_part(y + at, masked(v_load_part(in + at, left), bits, r), left);
            }
        }
    }
}
