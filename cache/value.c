#include "cache/value.h"

#include <string.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h> /* the widest vectors that the processor has */
#else
#include <xxhash.h>
#endif

enum { BLOCK = 512 };

void fl_narrow(const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
        uint32_t quiet = bits | 0x400000u;
        to[i] = (uint16_t)(((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded) >> 16);
    }
}

void fl_widen(const void *from, int64_t n, float *to)
{
    uint16_t part[BLOCK]; /* where `from` lies in `to`, a block is read before it is overwritten */
    const unsigned char *at = from;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        memcpy(part, at + 2 * i, 2 * (size_t)m);
        for (int64_t j = 0; j < m; j++) {
            uint32_t bits = (uint32_t)part[j] << 16;
            memcpy(&to[i + j], &bits, sizeof bits);
        }
    }
}

uint64_t fl_checksum(const void *bytes, size_t size_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size_bytes, seed);
}
