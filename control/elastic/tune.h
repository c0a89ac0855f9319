/* Trying other M on live steps. */
#ifndef FL_CONTROL_ELASTIC_TUNE_H
#define FL_CONTROL_ELASTIC_TUNE_H

#include "pipe/plan/tuner.h"

#include <stddef.h>

typedef struct fl_controller fl_controller;

/* Other M being tried for the plan's F, K and R. */
typedef struct fl_tune {
    int F, K, R;
    uint32_t runs;  /* the generation that is, or shall be, measured; 0: none yet */
    uint32_t asked; /* the newest generation that tuning asked for */
    bool running, over;
    int n_trials;
    fl_tune_trial trials[FL_TUNE_TRIALS_MAX + 1];
} fl_tune;

/* True when *next, which differs from the running plan in M alone, is to be gone over to; why
 * [size_bytes]. The caller tells the generation that was asked for. */
bool fl_tune_next_plan(fl_controller *controller, fl_plan *next, char *why, size_t size_bytes);
void fl_tune_asked(fl_controller *controller, uint32_t generation);

/* Whether the transition at hand is tuning's. */
bool fl_tune_is_trial(const fl_controller *controller);

/* The running plan's M, or while others are tried the one that they are compared with. */
int fl_tune_own_m(const fl_controller *controller);

#endif
