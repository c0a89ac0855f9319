#include "control/checkpoint/schedule.h"

#include <math.h>

enum { LEAST_LEAD = 4, MOST_LEAD = 1 << 20 };

static const double LEAD_MS = 250.0;

static int64_t later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The first multiple of the interval after the last checkpoint; INT64_MAX if steps do not count. */
static int64_t next_multiple(const fl_checkpoint_schedule *schedule, int64_t last_step)
{
    int64_t period = schedule->every.steps;
    if (schedule->every.epochs > 0 &&
        __builtin_mul_overflow(schedule->every.epochs, schedule->steps_per_epoch, &period)) {
        return INT64_MAX;
    }
    return period > 0 && last_step < INT64_MAX - period ? (last_step / period + 1) * period
                                                        : INT64_MAX;
}

int64_t fl_checkpoint_due(const fl_checkpoint_schedule *schedule,
                          const fl_checkpoint_moment *moment)
{
    int64_t earliest = moment->steps + moment->lead;
    int64_t next = next_multiple(schedule, moment->last_step);
    int64_t step = 0;
    if (schedule->every.ms > 0 && moment->now_us - moment->last_us >= schedule->every.ms * 1000) {
        step = earliest;
    } else if (next <= earliest) {
        /* A try that is a little late is worth it: most likely no worker is there yet. */
        step = later_of(next, moment->steps + 1);
    }
    return step < moment->end_step ? step : 0;
}

int64_t fl_checkpoint_lead(double step_ms, int64_t default_lead, int n_late, int n_switched)
{
    double steps = step_ms > 0.0 ? ceil(fmin(LEAD_MS / step_ms, MOST_LEAD)) : (double)default_lead;
    int64_t lead = later_of((int64_t)steps, LEAST_LEAD);
    for (int i = 0; i < n_late && lead < MOST_LEAD; i++) {
        lead *= 2;
    }
    for (int i = 0; i < n_switched; i++) {
        lead /= 4;
    }
    return later_of(lead, LEAST_LEAD);
}
