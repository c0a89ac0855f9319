/* Whether the cache is used: while reading a sample from it takes less from the step than computing
 * it. Pure: a function of what was measured on the live run, and told.
 *
 *     unknown ──both measured──> on ──reading got slower──> off ──next epoch──> tried once more
 *
 * While it is unknown or tried, it is used: else there were nothing to measure. */
#ifndef FL_PIPE_CHOICE_H
#define FL_PIPE_CHOICE_H

#include <frostline/job.h>

typedef struct fl_choice {
    fl_cache_policy policy;
    bool on;                    /* use it */
    bool off;                   /* the last decision was against it */
    bool changed;               /* a decision was taken that was not told yet */
    bool decided;               /* at least one was */
    bool probed;                /* reading was measured since it was last tried */
    bool guessed;               /* read_us is a guess */
    double read_us, compute_us; /* means, a sample; 0: not measured */
    int64_t epoch;
} fl_choice;

void fl_choice_init(fl_choice *choice, fl_cache_policy policy);

/* What reading a sample will take at least; it counts until a step has shown what it does take. */
void fl_choice_guess(fl_choice *choice, double us);

/* What a sample took from the step; one time that stands out decides nothing. */
void fl_choice_read(fl_choice *choice, double us);
void fl_choice_computed(fl_choice *choice, double us);

/* An epoch begins, or goes on: what was off is tried again in a new one, since data, load and frost
 * line may be others. */
void fl_choice_epoch(fl_choice *choice, int64_t epoch);

/* Decide on what is known by now. */
void fl_choice_decide(fl_choice *choice);

#endif
