/* GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
 * x s with s = 1 / (1 + e^(-2 u)): the same function, and one exponential. Source: Hendrycks and
 * Gimpel, arXiv 1606.08415. */
#ifndef FL_DEVICE_CPU_ISA_GELU_H
#define FL_DEVICE_CPU_ISA_GELU_H

#include "device/cpu/isa/simd.h"

static const float gelu_two_c = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
static const float gelu_cubic = 0.044715f;

/* Beyond this |x| the sigmoid is 0 or 1 to the last bit, and x^3 must not overflow. */
static const float gelu_far = 16.0f;

FL_INLINE vf gelu(vf x)
{
    vf near = v_min(v_all(gelu_far), v_max(v_all(-gelu_far), x));
    vf u2 = gelu_two_c * near * (1.0f + gelu_cubic * near * near);
    return x / (1.0f + v_exp(-u2));
}

/* The slope at x, and the function itself in *y: both come from one exponential. */
FL_INLINE vf gelu_slope(vf x, vf *y)
{
    vf near = v_min(v_all(gelu_far), v_max(v_all(-gelu_far), x));
    vf square = near * near;
    vf e = v_exp(-gelu_two_c * near * (1.0f + gelu_cubic * square));
    vf s = 1.0f / (1.0f + e);
    *y = x * s;
    /* ds/dx = s (1 - s) 2 u', and 1 - s = e s */
    return s + near * (e * s) * s * (gelu_two_c * (1.0f + 3.0f * gelu_cubic * square));
}

#endif
