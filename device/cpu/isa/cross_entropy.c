/* Softmax and cross-entropy of one row. */
#include "device/cpu/isa/passes.h"

#include <math.h>

static float highest(const float *x, int64_t n, int32_t *at)
{
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? (int32_t)i : best;
    }
    *at = best;
    return x[best];
}

double FL_ISA_NAME(cross_entropy)(const float *logits, int32_t target, int64_t n, float grad_scale,
                                  float *grad, bool *correct)
{
    int32_t guess;
    float top = highest(logits, n, &guess);
    *correct = guess == target;
    double sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf e = v_exp(v_load(logits + i) - top);
        sum += (double)v_sum(e);
        if (grad != NULL) {
            v_store(grad + i, e);
        }
    }
    if (i < n) {
        vf e = v_exp(v_load_part(logits + i, n - i) - top);
        for (int lane = 0; lane < n - i; lane++) {
            sum += (double)e[lane];
        }
        if (grad != NULL) {
            v_store_part(grad + i, e, n - i);
        }
    }
    double loss = log(sum) - ((double)logits[target] - (double)top);
    if (grad != NULL) {
        float scale = (float)((double)grad_scale / sum);
        for (int64_t j = 0; j < n; j++) {
            grad[j] *= scale;
        }
        grad[target] -= grad_scale;
    }
    return loss;
}
