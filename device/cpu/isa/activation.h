/* The activations, and their slopes, of vectors of floats. All agree with PyTorch's within 1e-6 of
 * the size of either side. A pass over memory is compiled once for each of them, see
 * FL_EACH_ACTIVATION. */
#ifndef FL_DEVICE_CPU_ISA_ACTIVATION_H
#define FL_DEVICE_CPU_ISA_ACTIVATION_H

#include "device/cpu/isa/simd.h"

#include <frostline/kernels.h>

FL_INLINE vf v_clamp(vf x, float limit)
{
    return v_min(v_all(limit), v_max(v_all(-limit), x));
}

/* ---- GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), written
 * as x s with s = 1 / (1 + e^(-2 u)): the same function, and one exponential. Source: Hendrycks and
 * Gimpel, arXiv 1606.08415. ---- */

/* -2 u = x (LINEAR + CUBIC x^2), times log2(e), so that the power is one of two. */
#define FL_GELU_LINEAR -2.302208198f
#define FL_GELU_CUBIC -0.1029432397f
#define FL_GELU_TWO_U 1.5957691216f /* 2 u = this (x + 0.044715 x^3) */

/* Beyond it s is 0 or 1 to the last bit; powers stay finite below it. */
#define FL_GELU_FAR 10.0f

/* 1 / (1 + e^(-2 u)); *e is the power. */
FL_INLINE vf gelu_share(vf near, vf square, vf *e)
{
    *e = v_exp2(near * (FL_GELU_LINEAR + FL_GELU_CUBIC * square));
    return 1.0f / (1.0f + *e);
}

/* The slope is s + x ds/dx, where ds/dx = s (1 - s) 2 u' and 1 - s = e s. */
FL_INLINE vf gelu_tanh(vf x, vf *slope)
{
    vf near = v_clamp(x, FL_GELU_FAR), square = near * near, e;
    vf s = gelu_share(near, square, &e);
    if (slope != NULL) {
        vf slope_of_2u = FL_GELU_TWO_U + 3.0f * 0.044715f * FL_GELU_TWO_U * square;
        *slope = s + (near * s) * (e * s) * slope_of_2u;
    }
    return x * s;
}

/* ---- GELU by erf: x P(x), where P is the distribution function of the normal distribution. With
 * t = 1 / (1 + 0.27 |x|), P(-|x|) = e^(-x^2 / 2) times a polynomial in t of degree 9 without a
 * constant: the one with the least largest relative error, 2.4e-8 for |x| < 14 (found by
 * iteratively reweighted least squares). ---- */

#define FL_NORMAL_FAR 13.0f /* P(-13) is below 1e-38 */
#define FL_NORMAL_RATE 0.27f
#define FL_INV_ROOT_2_PI 0.3989422804f

/* P(x); *density is that of the distribution. */
FL_INLINE vf normal_share(vf near, vf *density)
{
    vf size = v_max(near, -near), t = 1.0f / (1.0f + FL_NORMAL_RATE * size);
    vf power = v_exp2(near * near * -0.7213475204f);
    vf p = t * 0.0289152766f + -0.126255273f;
    p = p * t + 0.169291415f;
    p = p * t + -0.0686209772f;
    p = p * t + 0.107399422f;
    p = p * t + 0.0722402983f;
    p = p * t + 0.101759162f;
    p = p * t + 0.107550507f;
    p = p * t + 0.107720181f;
    vf tail = p * t * power;
    *density = power * FL_INV_ROOT_2_PI;
    return v_select(near < 0.0f, tail, 1.0f - tail);
}

FL_INLINE vf gelu_erf(vf x, vf *slope)
{
    vf near = v_clamp(x, FL_NORMAL_FAR), density;
    vf share = normal_share(near, &density);
    if (slope != NULL) {
        *slope = share + near * density;
    }
    return x * share;
}

/* ---- tanh: near 0, where the other form would cancel, x + x^3 times a polynomial in x^2 (least
 * largest relative error, found as above); beyond, 1 - 2 / (1 + e^(2 |x|)) with the sign of x. ----
 */

#define FL_TANH_FAR 10.0f
#define FL_TANH_NEAR 0.625f

FL_INLINE vf tanh_of(vf x, vf *slope)
{
    vf near = v_clamp(x, FL_TANH_FAR), square = near * near, size = v_max(near, -near);
    vf p = square * -5.70498677e-3f + 2.06390870e-2f;
    p = p * square + -5.37397150e-2f;
    p = p * square + 1.33314422e-1f;
    p = p * square + -3.33332819e-1f;
    vf far = 1.0f - 2.0f / (1.0f + v_exp2(size * 2.88539008f));
    vf y =
        v_select(size < FL_TANH_NEAR, near + near * square * p, v_select(near < 0.0f, -far, far));
    if (slope != NULL) {
        *slope = 1.0f - y * y;
    }
    return y;
}

/* ---- SiLU: x s with s = 1 / (1 + e^-x) and the slope s + x s (1 - s), where 1 - s = e^-x s ----
 */

#define FL_SILU_FAR 87.0f /* powers stay finite below it */

FL_INLINE vf silu(vf x, vf *slope)
{
    vf near = v_clamp(x, FL_SILU_FAR), e = v_exp2(near * -1.44269504f);
    vf s = 1.0f / (1.0f + e);
    if (slope != NULL) {
        *slope = s + (near * s) * (e * s);
    }
    return x * s;
}

/* `kind` is a constant wherever this is inlined; slope may be NULL. */
FL_INLINE vf activation_of(const fl_activation kind, vf x, vf *slope)
{
    switch (kind) {
    case FL_ACT_GELU_TANH:
        return gelu_tanh(x, slope);
    case FL_ACT_GELU_ERF:
        return gelu_erf(x, slope);
    case FL_ACT_TANH:
        return tanh_of(x, slope);
    case FL_ACT_SILU:
        return silu(x, slope);
    case FL_ACT_NONE:
        break;
    }
    if (slope != NULL) {
        *slope = v_all(1.0f);
    }
    return x;
}

/* CASE(kind) for each activation. */
#define FL_EACH_ACTIVATION(CASE)                                                                   \
    CASE(FL_ACT_NONE)                                                                              \
    CASE(FL_ACT_GELU_TANH)                                                                         \
    CASE(FL_ACT_GELU_ERF)                                                                          \
    CASE(FL_ACT_TANH)                                                                              \
    CASE(FL_ACT_SILU)

#endif
