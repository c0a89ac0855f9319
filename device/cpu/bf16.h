/* Elements stored as bf16, the upper half of an fp32: for what is kept or sent, not computed with.
 * By the widest vectors that the processor has; the same bits with all of them. Pure; any thread.
 */
#ifndef FL_DEVICE_CPU_BF16_H
#define FL_DEVICE_CPU_BF16_H

#include <stdint.h>

/* bf16 [n] out, rounded to the nearest, ties to even; beyond the largest, infinity. A NaN stays
 * one, with its sign. */
void fl_bf16_narrow(const float *from, int64_t n, uint16_t *to);

/* fp32 [n] out, exact. `from` needs no alignment, and may be the last 2 n bytes of `to` itself. */
void fl_bf16_widen(const void *from, int64_t n, float *to);

#endif
