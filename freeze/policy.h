/* How many blocks to freeze. Pure: values to values.
 *
 *   norms of the last interval ①  ──> the job's policy ②  ──> freeze.keep, pins ③  ──> F', why
 *
 * Blocks are numbered 1 .. L from the input; blocks 1 .. F are frozen; the head is no block. */
#ifndef FL_FREEZE_POLICY_H
#define FL_FREEZE_POLICY_H

#include <frostline/job.h>

enum { FL_FREEZE_WHY_MAX = 256 };

/* Everything a decision depends on. Element i of an array is block i + 1. */
typedef struct fl_freeze_input {
    const fl_job *job; /* freeze */
    int L;             /* blocks, >= 1 */
    int F;             /* frozen now, 0 .. L */
    int64_t step;      /* steps done */
    int64_t steps_per_epoch, n_steps;
    const double *norm;        /* [L] of the interval just ended, 0 up to F; NULL: none */
    const double *norm_before; /* [L] of the interval before it; NULL: none */
    const bool *pinned;        /* [L] never to be frozen; NULL: none */
} fl_freeze_input;

typedef struct fl_freeze_decision {
    int F;                       /* from now on; less than before is a thaw */
    char why[FL_FREEZE_WHY_MAX]; /* in words, with the numbers */
} fl_freeze_decision;

/* Decide. A policy that goes by norms leaves F as it is while it lacks them, or while one of them
 * is not finite. F goes down only when a pinned block is frozen or freeze.list demands it.
 * norm: see freeze/norms.h. Threads: pure; any.
 * Source: gradnorm and the closed form of schedule: PipeTransformer, arXiv 2102.03161, section 3.1;
 * stability: AutoFreeze, arXiv 2102.01386. */
void fl_freeze_decide(const fl_freeze_input *input, fl_freeze_decision *decision);

/* The interval that begins after `step` steps of n_steps: 1 at freeze.start, one more each
 * freeze.every, 0 before it. Threads: pure; any. */
int64_t fl_freeze_interval(const fl_job *job, int64_t step, int64_t steps_per_epoch,
                           int64_t n_steps);

/* freeze.every in steps, at least 1. Threads: pure; any. */
int64_t fl_freeze_period(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps);

/* Whether an interval ends after `step` steps, so that norms of a new one are to be gathered. Also
 * before freeze.start, counted back from it: the first decision then has norms to compare. False
 * for the policy none, and at step 0. */
bool fl_freeze_ends_interval(const fl_job *job, int64_t step, int64_t steps_per_epoch,
                             int64_t n_steps);

/* Whether a decision is due after `step` steps of n_steps: an interval ends, freeze.start has come
 * and steps are left. At step 0 it is for a schedule that starts there. */
bool fl_freeze_due(const fl_job *job, int64_t step, int64_t steps_per_epoch, int64_t n_steps);

#endif
