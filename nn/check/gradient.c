/* A gradient against central differences of forward.
 *
 * f = sum of out * R for a fixed random R, summed in double. Along a random direction d,
 * (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h differs from the derivative by terms of h^4 and by
 * the rounding of a 32-bit forward pass, about 1e-7 |f| / h. The difference is measured by the
 * gradient's norm times the size of d, its typical product with d. Where forward has kinks, as a
 * maximum has, a smaller step crosses fewer: the better of two steps counts. */
#include "nn/check/layer.h"

#include "device/system/alloc.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N_DIRECTIONS = 3, N_STEPS = 2, STREAM_DIRECTION = 1000 };

static const double STEPS[N_STEPS] = {1.0 / 64, 1.0 / 256};
static const double ROUNDINGS = 8; /* of one output, in units of its last place */

typedef struct difference {
    fl__layer_check *c;
    int index; /* of the parameter; -1: the input */
    float *v;
    const float *grad;
    int64_t n;
    double scale;
    float *v0, *d; /* [n] */
    double size;   /* typical size of f: the root of the sum of squares of its terms */
} difference;

static fl_status value_at(const difference *g, double h, double *f)
{
    for (int64_t i = 0; i < g->n; i++) {
        g->v[i] = (float)((double)g->v0[i] + h * (double)g->d[i]);
    }
    if (g->index >= 0) {
        fl__harness_moved(&g->c->h, g->index);
    }
    return fl__harness_value(&g->c->h, f);
}

static fl_status measure(const difference *g, double step, double *out)
{
    static const double at[4] = {1, -1, 2, -2};
    double f[4];
    for (int i = 0; i < 4; i++) {
        FL_TRY(value_at(g, at[i] * step, &f[i]));
    }
    *out = (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * step);
    return FL_OK;
}

static double given_by(const difference *g)
{
    double sum = 0;
    for (int64_t i = 0; i < g->n; i++) {
        sum += (double)g->grad[i] * (double)g->d[i];
    }
    return sum;
}

static double noise_of(const difference *g, double step)
{
    return ROUNDINGS * (double)FLT_EPSILON * g->size / step;
}

static double norm_of(const float *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)v[i] * (double)v[i];
    }
    return sqrt(sum);
}

/* ---- where it is wrong ---- */

/* Draw a new direction whose only non-zero elements are from .. to - 1. */
static void point_at(const difference *g, int64_t from, int64_t to)
{
    fl__harness_noise(g->c->h.seed, STREAM_DIRECTION + N_DIRECTIONS, (float)g->scale, g->d, g->n);
    memset(g->d, 0, (size_t)from * sizeof(float));
    memset(g->d + to, 0, (size_t)(g->n - to) * sizeof(float));
}

/* By halves to the elements that are most in the wrong, as far as rounding lets it see. */
static fl_status locate(const difference *g, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = g->n;
    while (*to - *from > 1) {
        int64_t mid = *from + (*to - *from) / 2, begin[2] = {*from, mid}, end[2] = {mid, *to};
        double off[2];
        for (int k = 0; k < 2; k++) {
            double measured = 0;
            point_at(g, begin[k], end[k]);
            FL_TRY(measure(g, STEPS[0], &measured));
            off[k] = fabs(measured - given_by(g));
        }
        int worse = off[1] > off[0];
        if (!(off[worse] > 2 * noise_of(g, STEPS[0]))) {
            return FL_OK;
        }
        *from = begin[worse];
        *to = end[worse];
    }
    return FL_OK;
}

static fl_status complain(const difference *g, int64_t cols, double measured, double given,
                          double allowed)
{
    int64_t from = 0, to = g->n;
    if (norm_of(g->grad, g->n) == 0) {
        return fl_fail(
            FL_EINVAL,
            "backward leaves it zero, and forward depends on it: along a random direction "
            "finite differences give %.6g",
            measured);
    }
    FL_TRY(locate(g, &from, &to));
    if (to - from == 1) {
        double one = 0, back;
        point_at(g, from, to);
        FL_TRY(measure(g, STEPS[0], &one));
        back = (double)g->grad[from];
        return fl_fail(FL_EINVAL,
                       "error %.2g, at most %.2g expected; worst is element [%lld, %lld]: backward "
                       "gives %.6g, finite differences %.6g",
                       g->c->error, allowed, (long long)(from / cols), (long long)(from % cols),
                       back, one / (double)g->d[from]);
    }
    return fl_fail(
        FL_EINVAL,
        "error %.2g, at most %.2g expected; along a random direction backward gives %.6g, "
        "finite differences %.6g; worst are elements [%lld, %lld] to [%lld, %lld]",
        g->c->error, allowed, given, measured, (long long)(from / cols), (long long)(from % cols),
        (long long)((to - 1) / cols), (long long)((to - 1) % cols));
}

/* ---- whether it is ---- */

static fl_status try_direction(difference *g, int64_t cols)
{
    double given = given_by(g), tolerance = g->c->options->tolerance;
    double norm = norm_of(g->grad, g->n) * g->scale;
    double best = (double)INFINITY, best_measured = 0;
    bool good = false;
    for (int k = 0; k < N_STEPS && !good; k++) {
        double measured = 0;
        FL_TRY(measure(g, STEPS[k], &measured));
        double off = fabs(measured - given), by = fmax(norm, fabs(given));
        good = off <= tolerance * by + noise_of(g, STEPS[k]);
        double error = off / fmax(by, fabs(measured));
        if (error < best || k == 0) {
            best = error;
            best_measured = measured;
        }
    }
    best = isfinite(best) ? best : 0; /* 0 by 0: nothing depends on it, and nothing is given */
    g->c->error = good && g->c->error >= best ? g->c->error : best;
    return good ? FL_OK : complain(g, cols, best_measured, given, tolerance);
}

static fl_status try_directions(difference *g, int64_t cols)
{
    double f = 0;
    fl_status status = fl__harness_value(&g->c->h, &f);
    const fl__harness *h = &g->c->h;
    double sum = 0;
    for (int64_t i = 0; i < fl__out_elements(h); i++) {
        double term = (double)h->slot[0].out_memory.data[i] * (double)h->weight_of_out[i];
        sum += term * term;
    }
    g->size = sqrt(sum);
    g->c->error = 0;
    for (int k = 0; status == FL_OK && k < N_DIRECTIONS; k++) {
        fl__harness_noise(h->seed, STREAM_DIRECTION + k, (float)g->scale, g->d, g->n);
        status = try_direction(g, cols);
    }
    return status;
}

fl_status fl__check_gradient(fl__layer_check *c, int index, float *v, const float *grad, int64_t n,
                             int64_t cols, double scale)
{
    void *memory = NULL;
    FL_TRY(fl_alloc_array(2 * (size_t)n, sizeof(float), &memory));
    difference g = {.c = c, .index = index, .v = v, .grad = grad, .n = n, .scale = scale};
    g.v0 = memory;
    g.d = g.v0 + n;
    memcpy(g.v0, v, (size_t)n * sizeof(float));
    fl_status status = try_directions(&g, cols);
    memcpy(v, g.v0, (size_t)n * sizeof(float));
    if (index >= 0) {
        fl__harness_moved(&c->h, index);
    }
    fl_free(memory);
    return status;
}
