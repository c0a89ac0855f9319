/* LayerNorm over rows, with the residual addition before it. Mean and variance take two sweeps over
 * a row that lies in the first-level cache: E[x^2] - E[x]^2 would cancel. */
#include "device/cpu/isa/passes.h"

#include <math.h>

/* Zeros in the lanes beyond the row. */
FL_INLINE vf keep(vf x, int64_t left)
{
    const vi lane = FL_LANES_OF(FL_LANE_NUMBER, 0);
    return left >= LANES ? x : v_select(lane < (int32_t)left, x, (vf){0});
}

/* Four sums at a time, or the adder's latency is what a row costs. */
enum { SUMS = 4 };

static float row_mean(const float *x, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < SUMS; k++) {
            s[k] += v_load(x + i + k * LANES);
        }
    }
    for (; i < n; i += LANES) {
        s[0] += v_load_left(x + i, n - i);
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
}

static float row_variance(const float *x, float mean, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < SUMS; k++) {
            vf centred = v_load(x + i + k * LANES) - mean;
            s[k] += centred * centred;
        }
    }
    for (; i < n; i += LANES) {
        vf centred = keep(v_load_left(x + i, n - i) - mean, n - i);
        s[0] += centred * centred;
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
}

/* y = (x - mean) scale gamma + beta */
static void normalize_row(const float *x, const float *gamma, const float *beta, float mean,
                          float scale, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v_store(y + i, (v_load(x + i) - mean) * scale * v_load(gamma + i) + v_load(beta + i));
    }
    if (i < n) {
        vf normal = (v_load_part(x + i, n - i) - mean) * scale;
        vf out = normal * v_load_part(gamma + i, n - i) + v_load_part(beta + i, n - i);
        v_store_part(y + i, out, n - i);
    }
}

void FL_ISA_NAME(layernorm)(const float *in, const float *residual, const float *gamma,
                            const float *beta, float eps, float *sum, float *y, float *mean,
                            float *rstd, int64_t m, int64_t n)
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
        float centre = row_mean(x, n);
        float scale = 1.0f / sqrtf(row_variance(x, centre, n) + eps);
        normalize_row(x, gamma, beta, centre, scale, out, n);
        if (mean != NULL) {
            mean[row] = centre;
            rstd[row] = scale;
        }
    }
}

/* With h = (x - mean) rstd and d = grad_y gamma:
 * grad_x = rstd (d - mean(d) - h mean(d h)) */
static void input_row(const float *grad_y, const float *x, const float *gamma, float mean,
                      float rstd, const float *grad_residual, float *grad_in, int64_t n)
{
    vf sum_d = {0}, sum_dh = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        vf d = v_load_left(grad_y + i, n - i) * v_load_left(gamma + i, n - i);
        sum_d += d;
        sum_dh += d * ((v_load_left(x + i, n - i) - mean) * rstd);
    }
    float mean_d = v_sum(sum_d) / (float)n;
    float mean_dh = v_sum(sum_dh) / (float)n;
    for (int64_t i = 0; i < n; i += LANES) {
        vf d = v_load_left(grad_y + i, n - i) * v_load_left(gamma + i, n - i);
        vf h = (v_load_left(x + i, n - i) - mean) * rstd;
        vf grad = (d - mean_d - h * mean_dh) * rstd;
        if (grad_residual != NULL) {
            grad += v_load_left(grad_residual + i, n - i);
        }
        v_store_left(grad_in + i, grad, n - i);
    }
}

void FL_ISA_NAME(layernorm_backward)(const float *grad_y, const float *in, const float *gamma,
                                     const float *mean, const float *rstd,
                                     const float *grad_residual, float *grad_in, float *parts,
                                     int64_t m, int64_t n)
{
    memset(parts, 0, 2 * (size_t)n * sizeof *parts);
    for (int64_t row = 0; row < m; row++) {
        const float *g = grad_y + row * n, *x = in + row * n;
        for (int64_t i = 0; i < n; i += LANES) {
            vf gy = v_load_left(g + i, n - i);
            vf h = (v_load_left(x + i, n - i) - mean[row]) * rstd[row];
            v_store_left(parts + i, v_load_left(parts + i, n - i) + gy * h, n - i);
            v_store_left(parts + n + i, v_load_left(parts + n + i, n - i) + gy, n - i);
        }
        if (grad_in != NULL) {
            input_row(g, x, gamma, mean[row], rstd[row],
                      grad_residual == NULL ? NULL : grad_residual + row * n, grad_in + row * n, n);
        }
    }
}
