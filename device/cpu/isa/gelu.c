/* GELU in its tanh form, 0.5 x (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
 * x s with s = 1 / (1 + e^(-2 u)): the same function, and one exponential. Source: Hendrycks and
 * Gimpel, arXiv 1606.08415. */
#include "device/cpu/isa/passes.h"

static const float two_c = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
static const float cubic = 0.044715f;

/* Beyond this |x| the sigmoid is 0 or 1 to the last bit, and x^3 must not overflow. */
static const float far = 16.0f;

FL_INLINE vf gelu(vf x)
{
    vf near = v_min(v_all(far), v_max(v_all(-far), x));
    vf u2 = two_c * near * (1.0f + cubic * near * near);
    return x / (1.0f + v_exp(-u2));
}

FL_INLINE vf gelu_slope(vf x)
{
    vf near = v_min(v_all(far), v_max(v_all(-far), x));
    vf square = near * near;
    vf e = v_exp(-two_c * near * (1.0f + cubic * square));
    vf s = 1.0f / (1.0f + e);
    /* ds/dx = s (1 - s) 2 u', and 1 - s = e s */
    return s + near * (e * s) * s * (two_c * (1.0f + 3.0f * cubic * square));
}

static void bias_row(const float *bias, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v_store(y + i, v_load(y + i) + v_load(bias + i));
    }
    if (i < n) {
        v_store_part(y + i, v_load_part(y + i, n - i) + v_load_part(bias + i, n - i), n - i);
    }
}

static void gelu_row(const float *bias, float *pre, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf x = v_load(y + i);
        if (bias != NULL) {
            x += v_load(bias + i);
        }
        if (pre != NULL) {
            v_store(pre + i, x);
        }
        v_store(y + i, gelu(x));
    }
    if (i < n) {
        vf x = v_load_part(y + i, n - i);
        if (bias != NULL) {
            x += v_load_part(bias + i, n - i);
        }
        if (pre != NULL) {
            v_store_part(pre + i, x, n - i);
        }
        v_store_part(y + i, gelu(x), n - i);
    }
}

void FL_ISA_NAME(bias_gelu)(const float *bias, bool with_gelu, float *pre, float *y, int64_t m,
                            int64_t n)
{
    for (int64_t row = 0; row < m; row++) {
        if (with_gelu) {
            gelu_row(bias, pre == NULL ? NULL : pre + row * n, y + row * n, n);
        } else if (bias != NULL) {
            bias_row(bias, y + row * n, n);
        }
    }
}

void FL_ISA_NAME(gelu_backward)(const float *grad_y, const float *pre, float *grad_pre, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v_store(grad_pre + i, v_load(grad_y + i) * gelu_slope(v_load(pre + i)));
    }
    if (i < n) {
        vf x = v_load_part(pre + i, n - i);
        v_store_part(grad_pre + i, v_load_part(grad_y + i, n - i) * gelu_slope(x), n - i);
    }
}
