#include "pipe/plan/batch/evaluation.h"

#include <math.h>

/* Of the permutation: no epoch of the sampler draws with it, nor does the split into training and
 * validation samples. */
enum { EVALUATION_EPOCH = -2 };

static int64_t period_steps(const fl_period *period, int64_t steps_per_epoch, int64_t n_steps)
{
    double steps = period->steps > 0    ? (double)period->steps
                   : period->share > 0  ? period->share * (double)n_steps
                   : period->epochs > 0 ? period->epochs * (double)steps_per_epoch
                                        : 0;
    return steps <= 0 ? 0 : steps < 1 ? 1 : llround(steps);
}

int64_t fl_evaluation_period(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    return period_steps(&job->train.evaluate_every, steps_per_epoch, n_steps);
}

int64_t fl_evaluation_patience(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    return period_steps(&job->train.stop_after, steps_per_epoch, n_steps);
}

bool fl_evaluation_keeps_best(const fl_job *job)
{
    const fl_interval *every = &job->checkpoint.every;
    bool has_checkpoints = every->ms > 0 || every->steps > 0 || every->epochs > 0;
    return job->train.metric[0] != '\0' && job->train.evaluate && has_checkpoints;
}

bool fl_evaluation_is_judged(const fl_job *job, int64_t done, int64_t steps_per_epoch,
                             int64_t n_steps)
{
    int64_t period = fl_evaluation_period(job, steps_per_epoch, n_steps);
    int64_t patience = fl_evaluation_patience(job, steps_per_epoch, n_steps);
    bool may_end = patience > 0 && done >= period + patience;
    return (may_end || fl_evaluation_keeps_best(job)) && period > 0 && done < n_steps &&
           fl_evaluation_is_due(done, period, n_steps);
}

bool fl_evaluation_is_due(int64_t done, int64_t period, int64_t end_step)
{
    return done > 0 && (done == end_step || (period > 0 && done % period == 0));
}

fl_evaluation_set fl_evaluation_set_of(int64_t first, int64_t of, int64_t samples, uint64_t seed)
{
    bool drawn = samples > 0 && samples < of;
    fl_evaluation_set set = {.first = first, .n = drawn ? samples : of, .drawn = drawn};
    if (drawn) {
        fl_permutation_init(&set.order, of, seed, EVALUATION_EPOCH);
    }
    return set;
}

fl_evaluation_set fl_evaluation_set_due(const fl_job *job, int64_t n_validation, int64_t n_test,
                                        bool last)
{
    bool validates = n_validation > 0;
    int64_t samples = last && !validates ? 0 : job->train.evaluate_samples;
    return fl_evaluation_set_of(0, validates ? n_validation : n_test, samples, job->train.seed);
}

fl_evaluation_set fl_evaluation_set_test(const fl_job *job, int64_t n_validation, int64_t n_test)
{
    return fl_evaluation_set_of(n_validation, n_test - n_validation, 0, job->train.seed);
}

int64_t fl_evaluation_sample(const fl_evaluation_set *set, int64_t i)
{
    return set->first + (set->drawn ? fl_permutation_at(&set->order, i) : i);
}
