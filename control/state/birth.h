/* What a worker's process begins with. All else it inherits from the agent, which has it from the
 * controller as of the start of the run. */
#ifndef FL_CONTROL_STATE_BIRTH_H
#define FL_CONTROL_STATE_BIRTH_H

#include "autodp/sampler.h"

#include <frostline/plan.h>

typedef struct fl_worker_birth {
    int rank;
    uint32_t incarnation; /* counts the processes of this rank, from 1 */
    bool joins;           /* the run trains already, without this rank, which joins as standby */
    fl_plan plan;         /* of the generation that it begins with, or beside which it begins */
    int64_t step;         /* finished steps of the run */
    fl_cursor cursor;     /* position of the next batch */
    double lr_factor;     /* factor on the job's learning rate */
    int64_t end_step;     /* the run ends after this many steps */
    int n_skipped;        /* steps in a row whose loss or gradient norm was not finite */
    bool paused;          /* the run is, and waits to be resumed */
    bool evaluates;       /* the evaluation that is due after `step` steps is still to come */
    int parked[FL_MAX_LAYERS]; /* [plan.n_layers] the rank that keeps the moments of a frozen layer,
                                  -1: none does */
    int64_t since[FL_MAX_LAYERS]; /* [plan.n_layers] the step from which the optimizer counts the
                                     steps of a layer's moments (pipe/state/migrate.h) */
} fl_worker_birth;

/* The birth of the workers of a run that begins at its first step. */
void fl_worker_birth_first(const fl_plan *plan, int64_t n_steps, fl_worker_birth *out);

#endif
