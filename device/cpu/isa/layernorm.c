/* LayerNorm over rows, with the residual addition before it. Mean and variance take two sweeps over
 * a row that lies in the first-level cache: E[x^2] - E[x]^2 would cancel.
 *
 * Loads come before the arithmetic of their turn: the compiler fuses a product and a sum only
 * where no branch stands between them, and fp32 and bf16 should round alike. */
#include "device/cpu/isa/element.h"
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

/* A row whose elements are in, or in + residual. */
typedef struct summed_row {
    const void *in, *residual; /* residual NULL: nothing is added */
} summed_row;

FL_INLINE vf sum_left(const fl_dtype type, const summed_row *x, int64_t at, int64_t left)
{
    vf in = e_load_left(type, x->in, at, left);
    return x->residual == NULL ? in : (vf)(in + e_load_left(type, x->residual, at, left));
}

FL_INLINE float row_mean(const fl_dtype type, const summed_row *x, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < SUMS; k++) {
            s[k] += sum_left(type, x, i + k * LANES, LANES);
        }
    }
    for (; i < n; i += LANES) {
        s[0] += sum_left(type, x, i, n - i);
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
}

FL_INLINE float row_variance(const fl_dtype type, const summed_row *x, float mean, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < SUMS; k++) {
            vf centred = sum_left(type, x, i + k * LANES, LANES) - mean;
            s[k] += centred * centred;
        }
    }
    for (; i < n; i += LANES) {
        vf centred = keep(sum_left(type, x, i, n - i) - mean, n - i);
        s[0] += centred * centred;
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
}

/* y = (x - mean) scale gamma + beta; sum (or NULL) = x, rounded where it is stored. */
FL_INLINE void normalize_row(const fl_dtype type, const summed_row *x, const float *gamma,
                             const float *beta, float mean, float scale, void *sum, void *y,
                             int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i;
        vf at = sum_left(type, x, i, left);
        vf factor = v_load_left(gamma + i, left), shift = v_load_left(beta + i, left);
        vf out = (at - mean) * scale * factor + shift;
        if (sum != NULL) {
            e_store_left(type, sum, i, at, left);
        }
        e_store_left(type, y, i, out, left);
    }
}

FL_INLINE void forward(const fl_dtype type, const bool adds, const void *in, const void *residual,
                       const float *gamma, const float *beta, float eps, void *sum, void *y,
                       float *mean, float *rstd, int64_t m, int64_t n)
{
    for (int64_t row = 0; row < m; row++) {
        const summed_row x = {e_at(type, in, row * n), adds ? e_at(type, residual, row * n) : NULL};
        float centre = row_mean(type, &x, n);
        float scale = 1.0f / sqrtf(row_variance(type, &x, centre, n) + eps);
        normalize_row(type, &x, gamma, beta, centre, scale, e_out(type, sum, row * n),
                      e_out(type, y, row * n), n);
        if (mean != NULL) {
            mean[row] = centre;
            rstd[row] = scale;
        }
    }
}

void FL_ISA_NAME(layernorm)(fl_dtype type, const void *in, const void *residual, const float *gamma,
                            const float *beta, float eps, void *sum, void *y, float *mean,
                            float *rstd, int64_t m, int64_t n)
{
    if (type == FL_BF16 && residual == NULL) {
        forward(FL_BF16, false, in, residual, gamma, beta, eps, sum, y, mean, rstd, m, n);
    } else if (type == FL_BF16) {
        forward(FL_BF16, true, in, residual, gamma, beta, eps, sum, y, mean, rstd, m, n);
    } else if (residual == NULL) {
        forward(FL_F32, false, in, residual, gamma, beta, eps, sum, y, mean, rstd, m, n);
    } else {
        forward(FL_F32, true, in, residual, gamma, beta, eps, sum, y, mean, rstd, m, n);
    }
}

/* With h = (x - mean) rstd and d = grad_y gamma:
 * grad_x = rstd (d - mean(d) - h mean(d h)) */
FL_INLINE void input_row(const fl_dtype type, const void *grad_y, const void *x, const float *gamma,
                         float mean, float rstd, const void *grad_residual, void *grad_in,
                         int64_t n)
{
    vf sum_d = {0}, sum_dh = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        vf at = e_load_left(type, x, i, n - i), g = e_load_left(type, grad_y, i, n - i);
        vf d = g * v_load_left(gamma + i, n - i);
        sum_d += d;
        sum_dh += d * ((at - mean) * rstd);
    }
    float mean_d = v_sum(sum_d) / (float)n;
    float mean_dh = v_sum(sum_dh) / (float)n;
    for (int64_t i = 0; i < n; i += LANES) {
        vf at = e_load_left(type, x, i, n - i), g = e_load_left(type, grad_y, i, n - i);
        vf factor = v_load_left(gamma + i, n - i), other = {0};
        if (grad_residual != NULL) {
            other = e_load_left(type, grad_residual, i, n - i);
        }
        vf d = g * factor, h = (at - mean) * rstd;
        e_store_left(type, grad_in, i, (d - mean_d - h * mean_dh) * rstd + other, n - i);
    }
}

FL_INLINE void backward(const fl_dtype type, const void *grad_y, const void *in, const float *gamma,
                        const float *mean, const float *rstd, const void *grad_residual,
                        void *grad_in, float *parts, int64_t m, int64_t n)
{
    memset(parts, 0, 2 * (size_t)n * sizeof *parts);
    for (int64_t row = 0; row < m; row++) {
        const void *g = e_at(type, grad_y, row * n), *x = e_at(type, in, row * n);
        for (int64_t i = 0; i < n; i += LANES) {
            vf gy = e_load_left(type, g, i, n - i), at = e_load_left(type, x, i, n - i);
            vf of_gamma = v_load_left(parts + i, n - i);
            vf of_beta = v_load_left(parts + n + i, n - i);
            vf h = (at - mean[row]) * rstd[row];
            v_store_left(parts + i, of_gamma + gy * h, n - i);
            v_store_left(parts + n + i, of_beta + gy, n - i);
        }
        if (grad_in != NULL) {
            input_row(type, g, x, gamma, mean[row], rstd[row], e_at(type, grad_residual, row * n),
                      e_out(type, grad_in, row * n), n);
        }
    }
}

void FL_ISA_NAME(layernorm_backward)(fl_dtype type, const void *grad_y, const void *in,
                                     const float *gamma, const float *mean, const float *rstd,
                                     const void *grad_residual, void *grad_in, float *parts,
                                     int64_t m, int64_t n)
{
    if (type == FL_BF16) {
        backward(FL_BF16, grad_y, in, gamma, mean, rstd, grad_residual, grad_in, parts, m, n);
    } else {
        backward(FL_F32, grad_y, in, gamma, mean, rstd, grad_residual, grad_in, parts, m, n);
    }
}
