/* Elements in memory, of a type that is a constant wherever this is inlined: fp32 as they are; bf16
 * is widened on its way in and rounded on its way out. In between all arithmetic is fp32.
 *
 * A vector of `vu` holds bf16 numbers in the lower halves of its lanes, or pairs of them: the first
 * in the lower half, as they stand in memory. */
#ifndef FL_DEVICE_CPU_ISA_ELEMENT_H
#define FL_DEVICE_CPU_ISA_ELEMENT_H

#include "device/cpu/isa/simd.h"

#include <frostline/tensor.h>

#include <stdbool.h>

typedef uint16_t vh_any __attribute__((vector_size(2 * FL_LANES), may_alias, aligned(1)));
typedef uint32_t vu_any __attribute__((vector_size(4 * FL_LANES), may_alias, aligned(1)));

/* ---- rounding ---- */

/* Half of the lowest kept bit, less one where the kept part is even: what is added carries into the
 * kept part exactly when it rounds up. */
FL_INLINE vu rounded(vu bits)
{
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

/* A NaN keeps its sign and upper bits, and its quiet bit is set: nothing carries it into infinity.
 * In integer operations only: the processor's settings for denormals change nothing. */
FL_INLINE vu narrowed(vu bits)
{
    vi is_nan = (vi)(bits & 0x7FFFFFFFu) > 0x7F800000;
    return (vu)v_select(is_nan, (vf)((bits | 0x400000u) >> 16), (vf)rounded(bits));
}

/* The same of what fp32 arithmetic gave: no denormals, which the instruction would flush. */
FL_INLINE vh_any narrow_of(vf x)
{
#if defined(__AVX512BF16__)
    return (vh_any)_mm512_cvtneps_pbh((__m512)x);
#else
    return __builtin_convertvector(narrowed((vu)x), vh_any);
#endif
}

/* ---- one vector in memory ---- */

FL_INLINE vu h_load(const void *p)
{
    return __builtin_convertvector(*(const vh_any *)p, vu);
}

/* What a row of which n numbers are left gives, zeros for the rest (n may be negative). */
FL_INLINE vu h_load_left(const void *p, int64_t n)
{
    if (n >= LANES) {
        return h_load(p);
    }
    if (n <= 0) {
        return (vu){0};
    }
#if defined(__AVX512F__)
    return (vu)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p));
#else
    vh_any x = {0};
    memcpy(&x, p, (size_t)n * 2);
    return __builtin_convertvector(x, vu);
#endif
}

FL_INLINE void h_store_left(void *p, vh_any x, int64_t n)
{
    if (n >= LANES) {
        *(vh_any *)p = x;
    } else if (n > 0) {
#if defined(__AVX512F__)
        _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), (__m256i)x);
#else
        memcpy(p, &x, (size_t)n * 2);
#endif
    }
}

/* Element `at` of the array p and those behind it, of which `left` are there. */
FL_INLINE vf e_load_left(const fl_dtype type, const void *p, int64_t at, int64_t left)
{
    return type == FL_BF16 ? (vf)(h_load_left((const uint16_t *)p + at, left) << 16)
                           : v_load_left((const float *)p + at, left);
}

FL_INLINE void e_store_left(const fl_dtype type, void *p, int64_t at, vf x, int64_t left)
{
    if (type == FL_BF16) {
        h_store_left((uint16_t *)p + at, narrow_of(x), left);
    } else {
        v_store_left((float *)p + at, x, left);
    }
}

/* The array from element `at` on; NULL stays so. */
FL_INLINE const void *e_at(fl_dtype type, const void *p, int64_t at)
{
    return p == NULL ? NULL : (const char *)p + (type == FL_BF16 ? 2 : 4) * at;
}

FL_INLINE void *e_out(fl_dtype type, void *p, int64_t at)
{
    return p == NULL ? NULL : (char *)p + (type == FL_BF16 ? 2 : 4) * at;
}

/* ---- pairs ---- */

/* The numbers of fp32 or bf16 elements, rounded, in the lower halves. */
FL_INLINE vu h_of_left(const fl_dtype type, const void *p, int64_t at, int64_t left)
{
    return type == FL_BF16
               ? h_load_left((const uint16_t *)p + at, left)
               : __builtin_convertvector(narrow_of(v_load_left((const float *)p + at, left)), vu);
}

#define FL_LANE_TWICE(lane, x) (2 * (lane) + (x))

/* 2 LANES fp32 numbers that follow each other, as LANES pairs. */
FL_INLINE vu pairs_of(vf first, vf second)
{
#if defined(__AVX512BF16__)
    return (vu)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
    const vi even = FL_LANES_OF(FL_LANE_TWICE, 0), odd = FL_LANES_OF(FL_LANE_TWICE, 1);
    vu a = narrowed((vu)first), b = narrowed((vu)second);
    return V_SHUFFLE(a, b, even) | V_SHUFFLE(a, b, odd) << 16;
#endif
}

/* sum + a b of the upper numbers, then + a b of the lower ones, each sum rounded to fp32. The
 * products are exact in fp32, so the instruction of AVX512-BF16 and the operations below give the
 * same bits, for products from 1e-38 to 1e38. */
FL_INLINE vf v_dot2(vf sum, vu a, vu b)
{
#if defined(__AVX512BF16__)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += (vf)(a & 0xFFFF0000u) * (vf)(b & 0xFFFF0000u);
    return sum + (vf)(a << 16) * (vf)(b << 16);
#endif
}

#endif
