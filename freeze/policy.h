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

#endif
