/* Vectors of floats as wide as the instruction set at hand: 16 lanes with AVX-512, 8 with AVX2, 4
 * otherwise. Every source in this folder is compiled once for each instruction set; FL_ISA is the
 * name's ending.
 *
 * A pass handles what is left of a row with the same vector operations on a partly filled vector
 * (v_load_part, v_store_part, and the two that decide, v_load_left and
 * v_store_left), so that an element's result does not depend on where it stands. */
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
/* A function for a rare case, called from an inner loop. */
#define FL_APART static __attribute__((noinline, cold, unused))

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

/* What a row of which n floats are left gives to a vector: LANES of them at most, zeros for the
 * rest (n may be negative). */
FL_INLINE vf v_load_left(const float *p, int64_t n)
{
    return n >= LANES ? v_load(p) : n <= 0 ? (vf){0} : v_load_part(p, n);
}

FL_INLINE void v_store_left(float *p, vf x, int64_t n)
{
    if (n >= LANES) {
        v_store(p, x);
    } else if (n > 0) {
        v_store_part(p, x, n);
    }
}

FL_INLINE vf v_all(float x)
{
    return x - (vf){0};
}

FL_INLINE vf v_select(vi where, vf yes, vf no)
{
    return (vf)((where & (vi)yes) | (~where & (vi)no));
}

/* f(lane, x) for each lane, as the elements of a vector that the compiler can compute. */
#if FL_LANES == 16
#define FL_LANES_OF(f, x)                                                                          \
    {                                                                                              \
        FL_LANES_8(f, 0, x), FL_LANES_8(f, 8, x)                                                   \
    }
#elif FL_LANES == 8
#define FL_LANES_OF(f, x)                                                                          \
    {                                                                                              \
        FL_LANES_8(f, 0, x)                                                                        \
    }
#else
#define FL_LANES_OF(f, x)                                                                          \
    {                                                                                              \
        f(0, x), f(1, x), f(2, x), f(3, x)                                                         \
    }
#endif
#define FL_LANES_8(f, i, x)                                                                        \
    f(i, x), f(i + 1, x), f(i + 2, x), f(i + 3, x), f(i + 4, x), f(i + 5, x), f(i + 6, x),         \
        f(i + 7, x)

/* The number of each lane, plus x. */
#define FL_LANE_NUMBER(lane, x) ((lane) + (x))

/* Where the two halves of a swap across a diagonal of blocks of x lanes come from: see v_transpose.
 */
#define FL_LANE_LOW(lane, x) (((lane) & (x)) == 0 ? (lane) : FL_LANES + (lane) - (x))
#define FL_LANE_HIGH(lane, x) (((lane) & (x)) == 0 ? (lane) + (x) : FL_LANES + (lane))

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
#if defined(__AVX512F__)
    __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1));
#elif defined(__AVX2__)
    __m256 eight = (__m256)x;
#endif
#if defined(__AVX2__)
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
#elif defined(__SSE2__)
    __m128 four = (__m128)x;
#endif
#if defined(__SSE2__)
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
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

/* log2(x) of a positive, finite, normal x, within 1e-7 absolute or relative, whichever is more.
 * x = 2^n m with m in [0.7, 1.4), and log m = 2 atanh((m - 1) / (m + 1)) by its series. */
FL_INLINE vf v_log2(vf x)
{
    vi bits = (vi)x;
    vi n = (bits - 0x3f330000) >> 23; /* 0x3f330000 is 0.7 */
    vf m = (vf)(bits - (n << 23));
    vf s = (m - 1.0f) / (m + 1.0f), square = s * s;
    vf series = square * 0.32059889f + 0.41219858f; /* 2 / (k ln2), k = 9, 7, 5, 3, 1 */
    series = series * square + 0.57707802f;
    series = series * square + 0.96179669f;
    return (series * square + 2.88539008f) * s + v_from_int(n);
}

/* Lane i of the result is lane which[i] of a and b, counted through both. clang has no builtin for
 * indices that are no literals; it only lints and fuzzes this code. */
#ifdef __clang__
#define V_SHUFFLE(a, b, which)                                                                     \
    ({                                                                                             \
        __typeof__(a) shuffled_ = (a);                                                             \
        for (int lane_ = 0; lane_ < LANES; lane_++) {                                              \
            int from_ = (which)[lane_];                                                            \
            shuffled_[lane_] = from_ < LANES ? (a)[from_] : (b)[from_ - LANES];                    \
        }                                                                                          \
        shuffled_;                                                                                 \
    })
#else
#define V_SHUFFLE(a, b, which) __builtin_shuffle(a, b, which)
#endif

/* A name of this instruction set. */
#define FL_PASTE_(a, b) a##_##b
#define FL_PASTE(a, b) FL_PASTE_(a, b)
#define FL_ISA_NAME(name) FL_PASTE(fl__##name, FL_ISA)

#endif
