/* AdamW (Loshchilov and Hutter, arXiv 1711.05101), SGD with momentum, and the sum of squares. */
#include "device/cpu/isa/passes.h"

/* The constants of one step, as the loop wants them. */
typedef struct constants {
    float beta1, beta2, rest1, rest2; /* rest = 1 - beta */
    float grad_scale, keep, rate, root_correction2, epsilon;
} constants;

static constants prepare(const fl_adamw_step *step, float weight_decay)
{
    return (constants){
        .beta1 = step->beta1,
        .beta2 = step->beta2,
        .rest1 = 1.0f - step->beta1,
        .rest2 = 1.0f - step->beta2,
        .grad_scale = step->grad_scale,
        .keep = 1.0f - step->lr * weight_decay,
        .rate = step->lr / step->correction1,
        .root_correction2 = 1.0f / __builtin_sqrtf(step->correction2),
        .epsilon = step->epsilon,
    };
}

FL_INLINE void adamw_lanes(const constants *c, vf *w, vf g, vf *m, vf *v)
{
    g *= c->grad_scale;
    *m = *m * c->beta1 + g * c->rest1;
    *v = *v * c->beta2 + g * g * c->rest2;
    vf size = v_sqrt(*v) * c->root_correction2 + c->epsilon;
    *w = *w * c->keep - *m / size * c->rate;
}

void FL_ISA_NAME(adamw)(float *w, const float *g, float *m, float *v, int64_t n, float weight_decay,
                        const fl_adamw_step *step)
{
    constants c = prepare(step, weight_decay);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf wi = v_load(w + i), mi = v_load(m + i), vi_ = v_load(v + i);
        adamw_lanes(&c, &wi, v_load(g + i), &mi, &vi_);
        v_store(w + i, wi);
        v_store(m + i, mi);
        v_store(v + i, vi_);
    }
    if (i < n) {
        int64_t left = n - i;
        vf wi = v_load_part(w + i, left), mi = v_load_part(m + i, left);
        vf vi_ = v_load_part(v + i, left);
        adamw_lanes(&c, &wi, v_load_part(g + i, left), &mi, &vi_);
        v_store_part(w + i, wi, left);
        v_store_part(m + i, mi, left);
        v_store_part(v + i, vi_, left);
    }
}

FL_INLINE void sgd_lanes(const fl_sgd_step *s, float weight_decay, vf *w, vf g, vf *momentum)
{
    g = g * s->grad_scale + *w * weight_decay;
    *momentum = *momentum * s->momentum + g;
    *w -= *momentum * s->lr;
}

void FL_ISA_NAME(sgd)(float *w, const float *g, float *momentum, int64_t n, float weight_decay,
                      const fl_sgd_step *step)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf wi = v_load(w + i), mi = v_load(momentum + i);
        sgd_lanes(step, weight_decay, &wi, v_load(g + i), &mi);
        v_store(w + i, wi);
        v_store(momentum + i, mi);
    }
    if (i < n) {
        int64_t left = n - i;
        vf wi = v_load_part(w + i, left), mi = v_load_part(momentum + i, left);
        sgd_lanes(step, weight_decay, &wi, v_load_part(g + i, left), &mi);
        v_store_part(w + i, wi, left);
        v_store_part(momentum + i, mi, left);
    }
}

/* In double, half a vector's lanes at a time. */
typedef double vd __attribute__((vector_size(4 * FL_LANES)));
typedef float vf_half __attribute__((vector_size(2 * FL_LANES), may_alias, aligned(4)));

double FL_ISA_NAME(sum_squares)(const float *g, int64_t n)
{
    enum { HALF = LANES / 2, CHAINS = 4 };
    vd s[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + CHAINS * HALF <= n; i += CHAINS * HALF) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            vd x = __builtin_convertvector(*(const vf_half *)(g + i + c * HALF), vd);
            s[c] += x * x;
        }
    }
    double total = 0.0;
    for (; i < n; i++) {
        total += (double)g[i] * (double)g[i];
    }
    vd all = (s[0] + s[1]) + (s[2] + s[3]);
    for (int lane = 0; lane < HALF; lane++) {
        total += all[lane];
    }
    return total;
}
