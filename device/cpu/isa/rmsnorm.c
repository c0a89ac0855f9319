/* RMSNorm over rows, with the residual addition before it: y = x rstd gamma, where rstd =
 * 1 / sqrt(mean(x^2) + epsilon). Source: Zhang and Sennrich, arXiv 1910.07467. */
#include "device/cpu/isa/passes.h"

#include <math.h>

/* Four sums at a time, or the adder's latency is what a row costs. */
enum { SUMS = 4 };

static float mean_square(const float *x, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < SUMS; k++) {
            vf at = v_load(x + i + k * LANES);
            s[k] += at * at;
        }
    }
    for (; i < n; i += LANES) {
        vf at = v_load_left(x + i, n - i);
        s[0] += at * at;
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
}

void FL_ISA_NAME(rmsnorm)(const float *in, const float *residual, const float *gamma, float eps,
                          float *sum, float *y, float *rstd, int64_t m, int64_t n)
{
    for (int64_t row = 0; row < m; row++) {
        const float *x = in + row * n;
        float *out = y + row * n;
        if (residual != NULL) {
            float *total = sum == NULL ? out : sum + row * n;
            FL_ISA_NAME(add)(x, residual + row * n, total, n);
            x = total;
        } else if (sum != NULL && sum != in) {
            memcpy(sum + row * n, x, (size_t)n * sizeof *x);
        }
        float scale = 1.0f / sqrtf(mean_square(x, n) + eps);
        for (int64_t i = 0; i < n; i += LANES) {
            vf normal = v_load_left(x + i, n - i) * scale;
            v_store_left(out + i, normal * v_load_left(gamma + i, n - i), n - i);
        }
        if (rstd != NULL) {
            rstd[row] = scale;
        }
    }
}

/* With h = x rstd and d = grad_y gamma: grad_x = rstd (d - h mean(d h)) */
static void input_row(const float *grad_y, const float *x, const float *gamma, float rstd,
                      const float *grad_residual, float *grad_in, int64_t n)
{
    vf sum_dh = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        vf d = v_load_left(grad_y + i, n - i) * v_load_left(gamma + i, n - i);
        sum_dh += d * (v_load_left(x + i, n - i) * rstd);
    }
    float mean_dh = v_sum(sum_dh) / (float)n;
    for (int64_t i = 0; i < n; i += LANES) {
        vf d = v_load_left(grad_y + i, n - i) * v_load_left(gamma + i, n - i);
        vf grad = (d - v_load_left(x + i, n - i) * rstd * mean_dh) * rstd;
        if (grad_residual != NULL) {
            grad += v_load_left(grad_residual + i, n - i);
        }
        v_store_left(grad_in + i, grad, n - i);
    }
}

void FL_ISA_NAME(rmsnorm_backward)(const float *grad_y, const float *in, const float *gamma,
                                   const float *rstd, const float *grad_residual, float *grad_in,
                                   float *parts, int64_t m, int64_t n)
{
    memset(parts, 0, (size_t)n * sizeof *parts);
    for (int64_t row = 0; row < m; row++) {
        const float *g = grad_y + row * n, *x = in + row * n;
        for (int64_t i = 0; i < n; i += LANES) {
            vf h = v_load_left(x + i, n - i) * rstd[row];
            vf part = v_load_left(parts + i, n - i) + v_load_left(g + i, n - i) * h;
            v_store_left(parts + i, part, n - i);
        }
        if (grad_in != NULL) {
            input_row(g, x, gamma, rstd[row],
                      grad_residual == NULL ? NULL : grad_residual + row * n, grad_in + row * n, n);
        }
    }
}
