/* F(e) = ceil(L (1 - (1 - alpha)^e)) in the interval e = 1, 2, ... from freeze.start on, or the
 * entry e of freeze.list.
 * Source: PipeTransformer's published code (arXiv 2102.03161), which follows this instead of its
 * gradient norms. */
#include "freeze/interval.h"
#include "freeze/rule.h"

#include <math.h>

/* A result that should be a whole number may come out slightly larger. */
static const double ROUNDING = 1e-9;

static int from_list(const fl_freeze_input *in, int64_t interval, char why[FL_FREEZE_WHY_MAX])
{
    int64_t n = in->job->freeze.n_list;
    int64_t entry = interval < n ? interval : n;
    int wanted = in->job->freeze.list[entry - 1];
    fl__freeze_say(why, "interval %lld: entry %lld of %lld of freeze.list is %d",
                   (long long)interval, (long long)entry, (long long)n, wanted);
    if (wanted > in->L) {
        fl__freeze_say(why, "; there are %d blocks", in->L);
        return in->L;
    }
    return wanted;
}

int fl__freeze_schedule(const fl_freeze_input *in, char why[FL_FREEZE_WHY_MAX])
{
    int64_t interval = fl_freeze_interval(in->job, in->step, in->steps_per_epoch, in->n_steps);
    double alpha = in->job->freeze.alpha;
    if (interval < 1) {
        fl__freeze_say(why, "step %lld is before freeze.start", (long long)in->step);
        return in->F;
    }
    if (in->job->freeze.n_list > 0) {
        return from_list(in, interval, why);
    }
    int wanted = (int)ceil(in->L * (1 - pow(1 - alpha, (double)interval)) - ROUNDING);
    fl__freeze_say(why, "interval %lld: ceil(%d (1 - (1 - %.3g)^%lld)) is %d", (long long)interval,
                   in->L, alpha, (long long)interval, wanted);
    return wanted > in->F ? wanted : in->F;
}
