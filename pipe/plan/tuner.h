/* Which M to try next on live steps. M does not change the mathematics, so trying is free but for
 * the time it takes.
 *
 *     own M ──> a rung up, as long as that is faster ──> a rung down, likewise
 *           ──> if another M is the fastest: its own M again, that M again ──> the faster of them
 *
 * The first trial is the plan's own M. The rungs lie between K and 6 K, each about a third above
 * the one below. Each M is tried at most twice, so it ends; the second time counts, since the
 * machine may have changed meanwhile. Another M is faster only by more than 1 % and more than the
 * noise. Source of the range: PipeTransformer, arXiv 2102.03161, section 3.2. */
#ifndef FL_PIPE_PLAN_TUNER_H
#define FL_PIPE_PLAN_TUNER_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_TUNE_TRIALS_MAX = 12, FL_TUNE_WHY_MAX = 160 };

/* One M on some live steps. */
typedef struct fl_tune_trial {
    int M;
    double step_us;  /* the median */
    double noise_us; /* its standard error */
} fl_tune_trial;

typedef struct fl_tune_input {
    int K;
    const fl_tune_trial *trials; /* [n_trials], in the order of time, at least one */
    int n_trials;
    bool (*fits)(void *context, int M); /* within memory, and a replica's share of the batch */
    void *context;
    bool more; /* enough steps remain for another trial to pay */
} fl_tune_input;

typedef struct fl_tune_decision {
    int M;
    bool done;                 /* run with M from now on; else try it */
    char why[FL_TUNE_WHY_MAX]; /* "M = 6 is the fastest of 4, 5, 6, 8: ..." */
} fl_tune_decision;

/* Pure but for `fits`; any thread. */
void fl_tune_next(const fl_tune_input *input, fl_tune_decision *out);

/* The median of values [n] and its standard error from the spread around it (1.2533 times 1.4826
 * times the median deviation over the root of n); sorts them. n >= 1. */
fl_tune_trial fl_tune_measure(int M, double *values, int n);

#endif
