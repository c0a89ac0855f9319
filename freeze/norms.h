/* The norms that a policy goes by: of the averaged gradient of each block, as the root of the mean
 * of its squares over the steps of an interval. Plain arithmetic on the caller's memory. */
#ifndef FL_FREEZE_NORMS_H
#define FL_FREEZE_NORMS_H

#include <frostline/plan.h>

typedef struct fl_norms {
    int L;
    int64_t n_steps;              /* added since the interval began */
    int n_intervals;              /* ended and held: 0, 1 or 2 */
    double sum[FL_MAX_LAYERS];    /* [L] of squares, of the interval at work */
    double norm[FL_MAX_LAYERS];   /* [L] of the interval that ended last */
    double before[FL_MAX_LAYERS]; /* [L] of the one before it */
} fl_norms;

/* No interval has ended. 1 <= L <= FL_MAX_LAYERS. */
void fl_norms_init(fl_norms *norms, int L);

/* One step. squared [L]: the square of each block's gradient norm, 0 for a frozen one. */
void fl_norms_add(fl_norms *norms, const double *squared);

/* The interval ends and the next begins; nothing happens when no step was added to it. */
void fl_norms_end(fl_norms *norms);

/* [L] as fl_freeze_input takes them: NULL when there is no such interval. Borrowed. */
const double *fl_norms_get(const fl_norms *norms);
const double *fl_norms_get_before(const fl_norms *norms);

#endif
