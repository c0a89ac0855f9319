/* fp32 to bf16 and back, in integer operations only: the processor's settings for denormals and
 * rounding change nothing, and every instruction set gives the same bits. */
#include "device/cpu/isa/passes.h"

typedef uint16_t vh_any __attribute__((vector_size(2 * FL_LANES), may_alias, aligned(1)));

/* Half of the lowest kept bit, less one where the kept part is even: what is added carries into the
 * kept part exactly when it rounds up. */
FL_INLINE vu rounded(vu bits)
{
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

/* A NaN keeps its sign and upper bits, and its quiet bit is set: nothing carries it into infinity.
 */
FL_INLINE vu narrowed(vu bits)
{
    vi is_nan = (vi)(bits & 0x7FFFFFFFu) > 0x7F800000;
    return (vu)v_select(is_nan, (vf)((bits | 0x400000u) >> 16), (vf)rounded(bits));
}

void FL_ISA_NAME(narrow)(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        *(vh_any *)(to + i) = __builtin_convertvector(narrowed((vu)v_load(from + i)), vh_any);
    }
    if (i < n) {
        vh_any last = __builtin_convertvector(narrowed((vu)v_load_part(from + i, n - i)), vh_any);
        memcpy(to + i, &last, (size_t)(n - i) * sizeof *to);
    }
}

/* A vector is read before its place is written, and what is written never passes what is yet to be
 * read, where `from` is the end of `to`. */
void FL_ISA_NAME(widen)(const void *from, float *to, int64_t n)
{
    const unsigned char *at = from;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vu bits = __builtin_convertvector(*(const vh_any *)(at + 2 * i), vu) << 16;
        v_store(to + i, (vf)bits);
    }
    if (i < n) {
        vh_any last = {0};
        memcpy(&last, at + 2 * i, (size_t)(n - i) * 2);
        v_store_part(to + i, (vf)(__builtin_convertvector(last, vu) << 16), n - i);
    }
}
