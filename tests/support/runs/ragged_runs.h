/* Whole runs on samples of different length, and what all of their jobs have. */
#ifndef FL_TESTS_SUPPORT_RUNS_RAGGED_RUNS_H
#define FL_TESTS_SUPPORT_RUNS_RAGGED_RUNS_H

#include "support/runs/scenario.h"

enum {
    RAGGED_SAMPLES = 203,
    RAGGED_EPOCHS = 6,
    RAGGED_STEPS = RAGGED_EPOCHS * 21,
    RAGGED_BLOCKS = 4
};

/* What every job has: path, value, ..., NULL. */
extern const char *const ragged_common[];

/* Values of pipe.k, autodp.r and pipe.m. */
enum { RAGGED_GRIDS = 5 };
extern const char *const ragged_grids[RAGGED_GRIDS][3];

/* A run with the fields above; `more` changes them. */
scenario ragged_scenario(const char *name, ragged_length *lengths, const char *const *more);

#endif
