/* Finds the worker that is slow by its own computing, not by waiting for others. Pure. */
#ifndef FL_CONTROL_OBSERVE_SLOW_H
#define FL_CONTROL_OBSERVE_SLOW_H

#include <frostline/plan.h>

#include <stdint.h>

/* A worker is slow when the ratio of its compute time to the expected one is this many times that
 * of the others. */
#define FL_SLOW_RATIO 1.4

/* slowness       [n] out: own / expected, divided by the median of the other workers' ratios. 0
 *                where it is unknown: for a worker with own or expected <= 0, or when there is no
 *                other.
 * own, expected  [n], any unit
 * Returns        the slowest worker with at least FL_SLOW_RATIO, -1: none */
int fl_slow_find(const double *own, const double *expected, int n, double *slowness);

/* The expected time of the layers of stage `stage` in a step, microseconds: M calls and the
 * replica's share of `batch` samples, with the backward passes that the frost line leaves.
 * fwd_us, bwd_us, call_us  of one layer: a sample forward, backward, and a call of both */
typedef struct fl_slow_layer {
    double fwd_us, bwd_us, call_us;
} fl_slow_layer;
double fl_slow_expected_us(const fl_plan *plan, int n_frozen_layers, int stage, int64_t batch,
                           const fl_slow_layer *layers);

#endif
