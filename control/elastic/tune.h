/* Races several M on live steps (pipe/plan/tuner.h): one transition for each visit. */
#ifndef FL_CONTROL_ELASTIC_TUNE_H
#define FL_CONTROL_ELASTIC_TUNE_H

#include "pipe/plan/tuner.h"

#include <stddef.h>

typedef struct fl_elastic fl_elastic;

/* The race for the plan's F, K and R. */
typedef struct fl_tune {
    int F, K, R;
    bool racing;
    uint32_t runs;    /* the generation being, or to be, measured; 0: none yet */
    uint32_t visited; /* the generation measured last */
    uint32_t asked;   /* the generation that tuning requested last */
    int64_t from;     /* the first step of the current visit */
    int64_t started;  /* the first step of the race */
    int64_t gap_us;   /* since the visit before: the controller or all workers did not run */
    fl_tuner tuner;
} fl_tune;

/* Of the whole run, for its summary. */
typedef struct fl_tune_sums {
    int64_t n_races, n_visits, n_steps;
    double lost_us;
} fl_tune_sums;

/* True when *next, which differs from the running plan in M alone, is to be carried out; why
 * [size_bytes]. The caller then sets tune's `asked` to the requested generation. */
bool fl_tune_next_plan(fl_elastic *elastic, fl_plan *next, char *why, size_t size_bytes);
/* For gap_us the controller, or none of the workers, was running: that is no cost of an M. */
void fl_tune_forgive(fl_elastic *elastic, int64_t gap_us);

void fl_tune_asked(fl_elastic *elastic, uint32_t generation);

/* Whether tuning requested the current transition. */
bool fl_tune_is_trial(const fl_elastic *elastic);

/* Whether the race, or the last one, is for the running plan's F, K and R. */
bool fl_tune_is_of_plan(const fl_elastic *elastic);

/* The running plan's M; during a race, unless a command has fixed M meanwhile, the M that leads. */
int fl_tune_own_m(const fl_elastic *elastic);

/* "M compared in 310 steps, at a cost of 0.12 s (0.4 %)", of the run so far; "" if there was no
 * race. Returns text. */
const char *fl_tune_summary(const fl_elastic *elastic, char *text, size_t size_bytes);

#endif
