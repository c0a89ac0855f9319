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

FL_INLINE float v_top(vf x)
{
    float top = x[0];
    for (int i = 1; i < LANES; i++) {
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

/* e^x within 2e-7 relative; 0 below -87, the largest finite power above 88. NaN stays NaN.
 * x = n ln2 + r with |r| <= ln2 / 2, so e^x = 2^n e^r. n comes from adding 1.5 * 2^23, which leaves
 * it in the low bits of the sum; ln2 is taken off in two parts, the first exact in 12 bits (Cody
 * and Waite, 1980). e^r is the polynomial of degree 6 that interpolates e^r / 1 at the Chebyshev
 * points of the interval. */
FL_INLINE vf v_exp(vf x)
{
    const float low = -87.0f, high = 88.0f;
    vf clamped = v_min(v_all(high), v_max(v_all(low), x));
    vf shifted = clamped * 1.44269504f + 12582912.0f;
    vi n = (vi)shifted - (vi)v_all(12582912.0f);
    vf whole = shifted - 12582912.0f;
    vf r = clamped - whole * 0.693359375f;
    r = r - whole * -2.12194440e-4f;
    vf p = r * 1.3888889e-3f + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vf y = (vf)((vi)p + (n << 23));
    y = v_select(x < v_all(low), (vf){0}, y);
    return v_select(x == x, y, x);
}

/* A name of this instruction set. */
#define FL_PASTE_(a, b) a##_##b
#define FL_PASTE(a, b) FL_PASTE_(a, b)
#define FL_ISA_NAME(name) FL_PASTE(fl__##name, FL_ISA)

#endif
