/* When decisions are due: a function of the position alone, so that it continues over whatever
 * changes. */
#include "freeze/interval.h"

#include <math.h>

static int64_t steps_of(const fl_period *period, int64_t steps_per_epoch, int64_t n_steps)
{
    return period->steps >= 0  ? period->steps
           : period->share > 0 ? llround(period->share * (double)n_steps)
                               : llround(period->epochs * (double)steps_per_epoch);
}

int64_t fl_freeze_period(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    int64_t steps = steps_of(&job->freeze.every, steps_per_epoch, n_steps);
    return steps > 0 ? steps : 1; /* a broken number of epochs may be less than a step */
}

int64_t fl_freeze_interval(const fl_job *job, int64_t step, int64_t steps_per_epoch,
                           int64_t n_steps)
{
    int64_t start = steps_of(&job->freeze.start, steps_per_epoch, n_steps);
    return step < start ? 0 : 1 + (step - start) / fl_freeze_period(job, steps_per_epoch, n_steps);
}

int64_t fl_freeze_first(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    int64_t start = steps_of(&job->freeze.start, steps_per_epoch, n_steps);
    if (start == 0 && job->freeze.policy != FL_FREEZE_SCHEDULE) {
        start = fl_freeze_period(job, steps_per_epoch, n_steps);
    }
    return job->freeze.policy != FL_FREEZE_NONE && start < n_steps ? start : -1;
}

bool fl_freeze_ends_interval(const fl_job *job, int64_t step, int64_t steps_per_epoch,
                             int64_t n_steps)
{
    int64_t start = steps_of(&job->freeze.start, steps_per_epoch, n_steps);
    return job->freeze.policy != FL_FREEZE_NONE && step > 0 &&
           (step - start) % fl_freeze_period(job, steps_per_epoch, n_steps) == 0;
}

bool fl_freeze_due(const fl_job *job, int64_t step, int64_t steps_per_epoch, int64_t n_steps)
{
    int64_t start = steps_of(&job->freeze.start, steps_per_epoch, n_steps);
    if (step < start || step >= n_steps) {
        return false;
    }
    return step == 0 ? job->freeze.policy == FL_FREEZE_SCHEDULE
                     : fl_freeze_ends_interval(job, step, steps_per_epoch, n_steps);
}
