/* How elements are stored: fp32 as they are, or bf16, rounded to the nearest, ties to even. Pure.
 */
#ifndef FL_CACHE_VALUE_H
#define FL_CACHE_VALUE_H

#include <stddef.h>
#include <stdint.h>

/* bf16 [n] out; what is not a number stays none. */
void fl_narrow(const float *from, int64_t n, uint16_t *to);

/* fp32 [n] out. `from` may be the last 2 n bytes of `to` itself. */
void fl_widen(const void *from, int64_t n, float *to);

/* The checksum of stored bytes; `seed` binds it to what they are for. */
uint64_t fl_checksum(const void *bytes, size_t size_bytes, uint64_t seed);

#endif
