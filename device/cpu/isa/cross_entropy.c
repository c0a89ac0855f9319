/* Softmax and cross-entropy of one row. */
#include "device/cpu/isa/passes.h"

#include <math.h>

/* Powers that are added up in single precision before they go into the sum. */
enum { CHUNK = 64 * LANES };

static float highest(const float *x, int64_t n)
{
    float top = x[0];
    int64_t i = 0;
    if (n >= LANES) {
        vf tops = v_load(x);
        for (i = LANES; i + LANES <= n; i += LANES) {
            tops = v_max(tops, v_load(x + i));
        }
        for (int lane = 0; lane < LANES; lane++) {
            top = tops[lane] > top ? tops[lane] : top;
        }
    }
    for (; i < n; i++) {
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

/* Whether `top`, the highest of x, stands first at `target`. */
static bool first_at(int64_t target, float top, const float *x)
{
    if (x[target] != top) {
        return false;
    }
    for (int64_t i = 0; i < target; i++) {
        if (x[i] == top) {
            return false;
        }
    }
    return true;
}

/* Sum of e^(x - top) over one chunk, the powers written to `powers` unless it is NULL. */
static float chunk_sum(const float *x, float top, int64_t n, float *powers)
{
    vf sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf e = v_exp(v_load(x + i) - top);
        sum += e;
        if (powers != NULL) {
            v_store(powers + i, e);
        }
    }
    if (i < n) {
        const vi lane = FL_LANES_OF(FL_LANE_NUMBER, 0);
        vf e = v_exp(v_load_part(x + i, n - i) - top);
        sum += v_select(lane < (int32_t)(n - i), e, (vf){0});
        if (powers != NULL) {
            v_store_part(powers + i, e, n - i);
        }
    }
    return v_sum(sum);
}

double FL_ISA_NAME(cross_entropy)(const float *logits, int32_t target, int64_t n, float grad_scale,
                                  float *grad, bool *correct)
{
    float top = highest(logits, n), of_target = logits[target];
    double sum = 0.0;
    *correct = first_at(target, top, logits); /* before `grad` overwrites the logits */
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK;
        sum += (double)chunk_sum(logits + i, top, count, grad == NULL ? NULL : grad + i);
    }
    if (grad != NULL) {
        float scale = (float)((double)grad_scale / sum);
        for (int64_t i = 0; i < n; i++) {
            grad[i] *= scale;
        }
        grad[target] -= grad_scale;
    }
    return log(sum) - ((double)of_target - (double)top);
}
