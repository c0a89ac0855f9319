/* When the freeze policy decides: functions of the position in the run. */
#ifndef FL_FREEZE_INTERVAL_H
#define FL_FREEZE_INTERVAL_H

#include <frostline/job.h>

/* The interval that begins after `step` steps of n_steps: 1 at freeze.start, one more each
 * freeze.every, 0 before it. Threads: pure; any. */
int64_t fl_freeze_interval(const fl_job *job, int64_t step, int64_t steps_per_epoch,
                           int64_t n_steps);

/* freeze.every in steps, at least 1. Threads: pure; any. */
int64_t fl_freeze_period(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* The number of steps after which the policy decides for the first time; -1: it never does in a run
 * of n_steps. Threads: pure; any. */
int64_t fl_freeze_first(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* Whether an interval ends after `step` steps, so that norms of a new one are to be gathered. Also
 * before freeze.start, counted back from it: the first decision then has norms to compare. False
 * for the policy none, and at step 0. */
bool fl_freeze_ends_interval(const fl_job *job, int64_t step, int64_t steps_per_epoch,
                             int64_t n_steps);

/* Whether a decision is due after `step` steps of n_steps: an interval ends, freeze.start has come
 * and steps are left. At step 0 it is for a schedule that starts there. */
bool fl_freeze_due(const fl_job *job, int64_t step, int64_t steps_per_epoch, int64_t n_steps);

#endif
