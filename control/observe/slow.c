#include "control/observe/slow.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the ratios without that of `without`; 0: there is no other. */
static double median_of_others(const double *ratio, int n, int without)
{
    double sorted[FL_MAX_WORKERS];
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (i != without && ratio[i] > 0.0) {
            sorted[count++] = ratio[i];
        }
    }
    if (count == 0) {
        return 0.0;
    }
    qsort(sorted, (size_t)count, sizeof sorted[0], by_size);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
}

int fl_slow_find(const double *own, const double *expected, int n, double *slowness)
{
    double ratio[FL_MAX_WORKERS];
    int slowest = -1;
    for (int i = 0; i < n; i++) {
        ratio[i] = own[i] > 0.0 && expected[i] > 0.0 ? own[i] / expected[i] : 0.0;
    }
    for (int i = 0; i < n; i++) {
        double others = median_of_others(ratio, n, i);
        slowness[i] = others > 0.0 ? ratio[i] / others : 0.0;
        if (slowness[i] >= FL_SLOW_RATIO && (slowest < 0 || slowness[i] > slowness[slowest])) {
            slowest = i;
        }
    }
    return slowest;
}

double fl_slow_expected_us(const fl_plan *plan, int n_frozen_layers, int stage, int64_t batch,
                           const fl_slow_layer *layers)
{
    double samples = (double)batch / plan->R, sum = 0.0;
    for (int i = plan->first[stage]; i < plan->first[stage + 1]; i++) {
        bool frozen = i < n_frozen_layers;
        double sample_us = layers[i].fwd_us + (frozen ? 0.0 : layers[i].bwd_us);
        sum += samples * sample_us + plan->M * layers[i].call_us * (frozen ? 0.5 : 1.0);
    }
    return sum;
}
