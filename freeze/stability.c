/* Freeze the longest run of blocks F + 1, F + 2, ... of which each changed its norm by less than
 * the p-th percentile of all active blocks' changes, |n_before - n| / n_before.
 *
 * Source: AutoFreeze, arXiv 2102.01386. The percentile lies between the two nearest changes in
 * proportion, as numpy has it. */
#include "freeze/rule.h"

#include <float.h>
#include <frostline/plan.h>
#include <math.h>
#include <stdlib.h>

/* A block that had no gradient and has one now changed more than any other; a finite number, so
 * that one may compute with it. */
static const double WITHOUT_MEASURE = DBL_MAX / 4;

static double change_of(double before, double now)
{
    if (before == 0) {
        return now == 0 ? 0 : WITHOUT_MEASURE;
    }
    double change = fabs(before - now) / before;
    return change < WITHOUT_MEASURE ? change : WITHOUT_MEASURE;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The p-th percentile of change [n]; sorts it. */
static double percentile_of(double *change, int n, double p)
{
    qsort(change, (size_t)n, sizeof *change, by_size);
    double at = p / 100 * (n - 1);
    int below = (int)at;
    if (below + 1 >= n) {
        return change[n - 1];
    }
    return change[below] + (at - below) * (change[below + 1] - change[below]);
}

int fl__freeze_stability(const fl_freeze_input *in, char why[FL_FREEZE_WHY_MAX])
{
    double change[FL_MAX_LAYERS];
    int L = in->L, F = in->F;
    double p = in->job->freeze.percentile;
    if (F == L) {
        fl__freeze_say(why, "all %d blocks are frozen", L);
        return F;
    }
    if (!fl__freeze_has_norms(in, in->norm, "interval just ended", why) ||
        !fl__freeze_has_norms(in, in->norm_before, "interval before", why)) {
        return F;
    }
    for (int i = F; i < L; i++) {
        change[i - F] = change_of(in->norm_before[i], in->norm[i]);
    }
    double limit = percentile_of(change, L - F, p), largest = 0, next = 0;
    int wanted = F;
    for (; wanted < L; wanted++) {
        next = change_of(in->norm_before[wanted], in->norm[wanted]);
        if (!(next < limit)) {
            break;
        }
        largest = next > largest ? next : largest;
    }
    if (wanted == F) {
        fl__freeze_say(why, "block %d changed its norm by %.3g %%, not below ", F + 1, 100 * next);
    } else if (wanted == F + 1) {
        fl__freeze_say(why, "block %d changed its norm by %.3g %%, below ", wanted, 100 * largest);
    } else {
        fl__freeze_say(why, "blocks %d..%d changed their norms by at most %.3g %%, below ", F + 1,
                       wanted, 100 * largest);
    }
    fl__freeze_say(why, "percentile %.3g of blocks %d..%d, %.3g %%", p, F + 1, L, 100 * limit);
    return wanted;
}
