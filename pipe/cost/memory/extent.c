#include "pipe/cost/memory/extent.h"

#include <math.h>

fl_capacity fl_capacity_equal(int64_t samples, int64_t tokens, int64_t n_targets, int M)
{
    fl_extent one = {.samples = samples, .tokens = samples * tokens};
    fl_extent ahead = {.samples = 2 * M * samples, .tokens = 2 * M * one.tokens};
    return (fl_capacity){.n = 1, .at = {one}, .n_targets = samples * n_targets, .ahead = ahead};
}

static void remove_at(fl_capacity *c, int i)
{
    c->n--;
    for (; i < c->n; i++) {
        c->at[i] = c->at[i + 1];
    }
}

/* How much larger the extent that contains both is than the two are in the mean: neighbours, so it
 * has the samples of the first and the tokens of the second. */
static double loss_of(fl_extent a, fl_extent b)
{
    return (double)(a.samples - b.samples) / (double)a.samples +
           (double)(b.tokens - a.tokens) / (double)b.tokens;
}

/* Make one extent of the two neighbours that differ least. */
static void join_two(fl_extent *at, int *n)
{
    int best = 0;
    for (int i = 1; i + 1 < *n; i++) {
        best = loss_of(at[i], at[i + 1]) < loss_of(at[best], at[best + 1]) ? i : best;
    }
    at[best].tokens = at[best + 1].tokens;
    (*n)--;
    for (int i = best + 1; i < *n; i++) {
        at[i] = at[i + 1];
    }
}

void fl_capacity_add(fl_capacity *c, fl_extent e)
{
    fl_extent all[FL_CAPACITY_EXTENTS + 1];
    int place = 0, n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->at[i].samples >= e.samples && c->at[i].tokens >= e.tokens) {
            return;
        }
    }
    for (int i = c->n - 1; i >= 0; i--) {
        if (c->at[i].samples <= e.samples && c->at[i].tokens <= e.tokens) {
            remove_at(c, i);
        }
    }
    while (place < c->n && c->at[place].tokens < e.tokens) {
        all[n++] = c->at[place++];
    }
    all[n++] = e;
    while (place < c->n) {
        all[n++] = c->at[place++];
    }
    if (n > FL_CAPACITY_EXTENTS) {
        join_two(all, &n);
    }
    for (int i = 0; i < n; i++) {
        c->at[i] = all[i];
    }
    c->n = n;
}

int64_t fl_capacity_samples(const fl_capacity *c)
{
    return c->n == 0 ? 0 : c->at[0].samples;
}

int64_t fl_capacity_tokens(const fl_capacity *c)
{
    return c->n == 0 ? 0 : c->at[c->n - 1].tokens;
}

fl_growth fl_growth_over(const int64_t *length, const int64_t *value, int64_t n)
{
    fl_growth g = {.per_sample = (double)value[n - 1]};
    if (n > 1) {
        g.per_token = (double)(value[n - 1] - value[0]) / (double)(length[n - 1] - length[0]);
        g.per_sample = (double)value[0] - g.per_token * (double)length[0];
    }
    for (int64_t i = 0; i < n; i++) {
        double lifted = (double)value[i] - g.per_token * (double)length[i];
        g.per_sample = lifted > g.per_sample ? lifted : g.per_sample;
    }
    return g;
}

/* Sums of fractions are not exact; a millionth of a row is none. */
static const double ROUNDING = 1e-6;

int64_t fl_growth_at(const fl_growth *g, fl_extent e)
{
    double value = g->per_sample * (double)e.samples + g->per_token * (double)e.tokens;
    return (int64_t)ceil(value - ROUNDING);
}
