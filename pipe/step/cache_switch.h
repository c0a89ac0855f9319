/* Whether the cache is used: while reading a sample from it takes less from the step than computing
 * it. Pure: a function of what was measured on the live run, and told.
 *
 *     unknown ──both measured──> on ──reading got slower──> off ──next epoch──> tried once more
 *
 * While it is unknown or tried, it is used: else there were nothing to measure. */
#ifndef FL_PIPE_STEP_CACHE_SWITCH_H
#define FL_PIPE_STEP_CACHE_SWITCH_H

#include <frostline/job.h>

typedef struct fl_cache_switch {
    fl_cache_policy policy;
    bool on;                    /* use it */
    bool off;                   /* the last decision was against it */
    bool changed;               /* a decision was taken that was not told yet */
    bool decided;               /* at least one was */
    bool probed;                /* reading was measured since it was last tried */
    bool guessed;               /* read_us is a guess */
    double read_us, compute_us; /* means, a sample; 0: not measured */
    int64_t epoch;
} fl_cache_switch;

void fl_cache_switch_init(fl_cache_switch *choice, fl_cache_policy policy);

/* What reading a sample will take at least; it counts until a step has shown what it does take. */
void fl_cache_switch_guess(fl_cache_switch *choice, double us);

/* What a sample took from the step; one time that stands out decides nothing. */
void fl_cache_switch_read(fl_cache_switch *choice, double us);
void fl_cache_switch_computed(fl_cache_switch *choice, double us);

/* An epoch begins, or goes on: what was off is tried again in a new one, since data, load and frost
 * line may be others. */
void fl_cache_switch_epoch(fl_cache_switch *choice, int64_t epoch);

/* Decide on what is known by now. */
void fl_cache_switch_decide(fl_cache_switch *choice);

#endif
