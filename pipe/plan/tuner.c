#include "pipe/plan/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double LEAST_GAIN = 0.01; /* of a step */
/* Standard errors that a gain must exceed. Of two that are nearer than that it hardly matters which
 * one runs, so more certainty would only keep the slower one more often. */
static const double NOISES = 1.0;
enum { MOST_M_BY_K = 6 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

fl_tune_trial fl_tune_measure(int M, double *values, int n)
{
    fl_tune_trial trial = {.M = M, .step_us = median(values, n)};
    for (int i = 0; i < n; i++) {
        values[i] = fabs(values[i] - trial.step_us);
    }
    trial.noise_us = 1.2533 * 1.4826 * median(values, n) / sqrt((double)n);
    return trial;
}

/* ---- rungs ---- */

static int rung_above(int M)
{
    int next = (int)lround(M * 1.3);
    return next > M ? next : M + 1;
}

/* The rung next to M, up or down; 0: there is none. */
static int neighbour(int K, int M, bool up)
{
    int below = 0;
    for (int rung = K; rung <= MOST_M_BY_K * K; rung = rung_above(rung)) {
        if (rung > M && up) {
            return rung;
        }
        if (rung < M) {
            below = rung;
        }
    }
    return up ? 0 : below;
}

/* ---- what the trials say ---- */

static int count(const fl_tune_input *in, int M)
{
    int n = 0;
    for (int i = 0; i < in->n_trials; i++) {
        n += in->trials[i].M == M;
    }
    return n;
}

/* The newest trial of M, which has one. */
static const fl_tune_trial *newest(const fl_tune_input *in, int M)
{
    const fl_tune_trial *t = &in->trials[0];
    for (int i = 0; i < in->n_trials; i++) {
        t = in->trials[i].M == M ? &in->trials[i] : t;
    }
    return t;
}

static bool is_faster(const fl_tune_trial *a, const fl_tune_trial *b)
{
    double noise = NOISES * hypot(a->noise_us, b->noise_us);
    return b->step_us - a->step_us > fmax(noise, LEAST_GAIN * b->step_us);
}

/* The own M, unless another one is faster; of those, the fastest. */
static const fl_tune_trial *fastest(const fl_tune_input *in)
{
    const fl_tune_trial *own = newest(in, in->trials[0].M), *best = own;
    for (int i = 0; i < in->n_trials; i++) {
        const fl_tune_trial *t = newest(in, in->trials[i].M);
        bool beats = best == own ? is_faster(t, own) : t->step_us < best->step_us;
        best = beats && is_faster(t, own) ? t : best;
    }
    return best;
}

/* An M beside the fastest that nobody has tried; 0: there is none. */
static int untried(const fl_tune_input *in, int M)
{
    for (int up = 1; up >= 0; up--) {
        int next = neighbour(in->K, M, up == 1);
        if (next > 0 && count(in, next) == 0 && in->fits(in->context, next)) {
            return next;
        }
    }
    return 0;
}

static void explain(const fl_tune_input *in, const fl_tune_trial *best, fl_tune_decision *out)
{
    const fl_tune_trial *own = newest(in, in->trials[0].M);
    int n = snprintf(out->why, sizeof out->why, "M = %d takes %.4g ms a step", best->M,
                     best->step_us * 1e-3);
    if (best != own) {
        snprintf(out->why + n, sizeof out->why - (size_t)n, ", M = %d took %.4g ms", own->M,
                 own->step_us * 1e-3);
    } else {
        snprintf(out->why + n, sizeof out->why - (size_t)n, ", nothing beside it is faster");
    }
}

void fl_tune_next(const fl_tune_input *in, fl_tune_decision *out)
{
    const fl_tune_trial *best = fastest(in);
    int own = in->trials[0].M, next = untried(in, best->M);
    bool room = in->n_trials + 2 < FL_TUNE_TRIALS_MAX; /* for the two that come last */
    *out = (fl_tune_decision){.M = best->M, .done = true};
    if (in->more && room && next > 0) {
        *out = (fl_tune_decision){.M = next};
        snprintf(out->why, sizeof out->why, "trying M = %d beside M = %d", next, best->M);
        return;
    }
    if (best->M != own && in->n_trials < FL_TUNE_TRIALS_MAX) {
        int again = count(in, own) == 1 ? own : count(in, best->M) == 1 ? best->M : 0;
        if (again > 0) {
            *out = (fl_tune_decision){.M = again};
            snprintf(out->why, sizeof out->why, "trying M = %d again", again);
            return;
        }
    }
    explain(in, best, out);
}
