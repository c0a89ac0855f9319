/* Whether the cache is used: as long as reading a sample costs the step less than computing it.
 * Pure: a function of live measurements.
 *
 *     unknown ──both measured──> on ──reading got slower──> off ──next epoch──> tried once more
 *
 * While the state is unknown or being tried, the cache is used; otherwise there would be nothing to
 * measure. */
#ifndef FL_PIPE_STEP_INPUT_CACHE_SWITCH_H
#define FL_PIPE_STEP_INPUT_CACHE_SWITCH_H

#include <frostline/job.h>

typedef struct fl_cache_switch {
    fl_cache_policy policy;
    bool on;                    /* use it */
    bool off;                   /* the last decision was against it */
    bool changed;               /* a decision was taken and not reported yet */
    bool decided;               /* at least one was */
    bool probed;                /* reading was measured since it was last tried */
    bool guessed;               /* read_us is a guess */
    double read_us, compute_us; /* means, a sample; 0: not measured */
    int64_t epoch;
} fl_cache_switch;

void fl_cache_switch_init(fl_cache_switch *choice, fl_cache_policy policy);

/* A lower estimate of reading a sample; it counts until a step has measured it. */
void fl_cache_switch_guess(fl_cache_switch *choice, double us);

/* The measured cost of a sample; a single outlier decides nothing. */
void fl_cache_switch_read(fl_cache_switch *choice, double us);
void fl_cache_switch_computed(fl_cache_switch *choice, double us);

/* An epoch begins, or goes on: what was off is tried again in a new one, since data, load and frost
 * line may be others. */
void fl_cache_switch_epoch(fl_cache_switch *choice, int64_t epoch);

/* Decide on what is known by now. */
void fl_cache_switch_decide(fl_cache_switch *choice);

#endif
