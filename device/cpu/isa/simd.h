/* Vectors of floats as wide as the instruction set at hand: 16 lanes with AVX-512, 8 with AVX2, 4
 * otherwise. Every source in this folder is compiled once for each instruction set; FL_ISA is the
 * name's ending.
 *
 * A pass handles what is left of a row with the same vector operations on a partly filled vector
 * (v_load_part, v_store_part), so that an element's result does not depend on where it stands. */
#ifndef FL_DEVICE_CPU_ISA_SIMD_H
#define FL_DEVICE_CPU_ISA_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define FL_LANES 16
#elif defined(__AVX2__)
#define FL_LANES 8
#else
#define FL_LANES 4
#endif

enum { LANES = FL_LANES };

typedef float vf __attribute__((vector_size(4 * FL_LANES), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * FL_LANES), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * FL_LANES), may_alias));
typedef float vf_any __attribute__((vector_size(4 * FL_LANES), may_alias, aligned(4)));

#define FL_INLINE static inline __attribute__((always_inline, unused))

FL_INLINE vf v_load(const float *p)
{
    return *(const vf_any *)p;
}

FL_INLINE void v_store(float *p, vf x)
{
    *(vf_any *)p = x;
}

/* The first n < LANES floats, zeros behind them. */
FL_INLINE vf v_load_part(const float *p, int64_t n)
{
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#else
    vf x = {0};
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
#endif
}

FL_INLINE void v_store_part(float *p, vf x, int64_t n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)x);
#else
    memcpy(p, &x, (size_t)n * sizeof *p);
#endif
}

FL_INLINE vf v_all(float x)
{
    return x - (vf){0};
}

FL_INLINE vf v_select(vi where, vf yes, vf no)
{
    return (vf)((where & (vi)yes) | (~where & (vi)no));
}

FL_INLINE vf v_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return v_select(a > b, a, b);
#endif
}

FL_INLINE vf v_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return v_select(a < b, a, b);
#endif
}

FL_INLINE vf v_sqrt(vf x)
{
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (vf)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < LANES; i++) {
        x[i] = __builtin_sqrtf(x[i]);
    }
    return x;
#endif
}

FL_INLINE vf v_from_int(vi x)
{
    return __builtin_convertvector(x, vf);
}

/* Sum of the lanes: halves are added to each other until one is left. */
FL_INLINE float v_sum(vf x)
{
    float lane[LANES];
    memcpy(lane, &x, sizeof x);
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

/* 2^r for |r| <= 1/2, within 1e-7 relative: the polynomial of degree 5 that has the least largest
 * relative error there, among those that are 1 at 0 (found by iteratively reweighted least
 * squares). */
FL_INLINE vf v_exp2_small(vf r)
{
    vf p = r * 1.32647334e-3f + 9.67150653e-3f;
    p = p * r + 5.55073421e-2f;
    p = p * r + 2.40222417e-1f;
    p = p * r + 6.93146982e-1f;
    return p * r + 1.0f;
}

/* y 2^n for whole n; n is in -126 .. 127 except with AVX-512, which rounds down to zero or up to
 * infinity. NaN in y stays NaN. */
FL_INLINE vf v_scale(vf y, vf n)
{
#if defined(__AVX512F__)
    return (vf)_mm512_scalef_ps((__m512)y, (__m512)n);
#else
    return y * (vf)((__builtin_convertvector(n, vi) + 127) << 23);
#endif
}

/* The nearest whole number, for |x| < 2^22. */
FL_INLINE vf v_round(vf x)
{
#if defined(__AVX512F__)
    return (vf)_mm512_roundscale_ps((__m512)x, 0);
#else
    return (x + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23 leaves no bits for the fraction */
#endif
}

/* 2^x within 2e-7 relative for x <= 126; below -126 it is 2e-38 or less. NaN stays NaN. */
FL_INLINE vf v_exp2(vf x)
{
    x = v_max(v_all(-126.0f), x);
    vf n = v_round(x);
    return v_scale(v_exp2_small(x - n), n);
}

/* e^x within 2e-7 relative for x <= 87; below -87 it is 2e-38 or less. NaN stays NaN.
 * x = n ln2 + r; ln2 is taken off in two parts, the first exact in 11 bits, so that n times it is
 * exact too. */
FL_INLINE vf v_exp(vf x)
{
    x = v_max(v_all(-87.0f), x);
    vf n = v_round(x * 1.44269504f);
    vf r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    return v_scale(v_exp2_small(r * 1.44269504f), n);
}

/* A name of this instruction set. */
#define FL_PASTE_(a, b) a##_##b
#define FL_PASTE(a, b) FL_PASTE_(a, b)
#define FL_ISA_NAME(name) FL_PASTE(fl__##name, FL_ISA)

#endif
