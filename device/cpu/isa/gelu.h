/* GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
 * x s with s = 1 / (1 + e^(-2 u)): the same function, and one exponential. Within 1e-6 of either's
 * size. Source: Hendrycks and Gimpel, arXiv 1606.08415. */
#ifndef FL_DEVICE_CPU_ISA_GELU_H
#define FL_DEVICE_CPU_ISA_GELU_H

#include "device/cpu/isa/simd.h"

/* -2 u = x (LINEAR + CUBIC x^2), times log2(e), so that the power is one of two. */
#define FL_GELU_LINEAR -2.302208198f
#define FL_GELU_CUBIC -0.1029432397f
#define FL_GELU_TWO_U 1.5957691216f /* 2 u = this (x + 0.044715 x^3) */

/* From here on s is 0 or 1 to the last bit; powers stay finite below it. */
#define FL_GELU_FAR 10.0f

FL_INLINE vf gelu_near(vf x)
{
    return v_min(v_all(FL_GELU_FAR), v_max(v_all(-FL_GELU_FAR), x));
}

/* 1 / (1 + e^(-2 u)); *e is the power. */
FL_INLINE vf gelu_share(vf near, vf square, vf *e)
{
    *e = v_exp2(near * (FL_GELU_LINEAR + FL_GELU_CUBIC * square));
    return 1.0f / (1.0f + *e);
}

FL_INLINE vf gelu(vf x)
{
    vf near = gelu_near(x), e;
    return x * gelu_share(near, near * near, &e);
}

/* gelu'(x) = s + x ds/dx, where ds/dx = s (1 - s) 2 u' and 1 - s = e s. *y = gelu(x), with the bits
 * that gelu gives. */
FL_INLINE vf gelu_slope(vf x, vf *y)
{
    vf near = gelu_near(x), square = near * near, e;
    vf s = gelu_share(near, square, &e);
    vf slope_of_2u = FL_GELU_TWO_U + 3.0f * 0.044715f * FL_GELU_TWO_U * square;
    *y = x * s;
    return s + (near * s) * (e * s) * slope_of_2u;
}

#endif
