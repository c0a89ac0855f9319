#include "freeze/norms.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void fl_norms_init(fl_norms *norms, int L)
{
    assert(L >= 1 && L <= FL_MAX_LAYERS);
    memset(norms, 0, sizeof *norms);
    norms->L = L;
}

void fl_norms_add(fl_norms *norms, const double *squared)
{
    for (int i = 0; i < norms->L; i++) {
        norms->sum[i] += squared[i];
    }
    norms->n_steps++;
}

void fl_norms_end(fl_norms *norms)
{
    if (norms->n_steps == 0) {
        return;
    }
    for (int i = 0; i < norms->L; i++) {
        norms->before[i] = norms->norm[i];
        norms->norm[i] = sqrt(norms->sum[i] / (double)norms->n_steps);
        norms->sum[i] = 0;
    }
    norms->n_steps = 0;
    norms->n_intervals += norms->n_intervals < 2;
}

const double *fl_norms_get(const fl_norms *norms)
{
    return norms->n_intervals < 1 ? NULL : norms->norm;
}

const double *fl_norms_get_before(const fl_norms *norms)
{
    return norms->n_intervals < 2 ? NULL : norms->before;
}
