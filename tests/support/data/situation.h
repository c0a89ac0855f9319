/* Situations for the planner: everything that a choice depends on. */
#ifndef FL_TESTS_SUPPORT_DATA_SITUATION_H
#define FL_TESTS_SUPPORT_DATA_SITUATION_H

#include "nn/model.h"
#include "pipe/plan/planner.h"

enum { CANDIDATES = 512, N_PARAMS = 1600 };

typedef struct situation {
    fl_model *model;
    fl_job job;
    fl_profile profile;
    fl_layer_memory memory[FL_MAX_LAYERS];
    fl_plan_input input;
} situation;

/* n_layers equal layers of 1 + 2 us and 100 bytes a sample, N_PARAMS parameters each, plenty of
 * memory, links that cost little. Anything that goes wrong fails the test. */
void situation_init(situation *s, int n_layers, int n_workers, int64_t batch);
void situation_fini(situation *s);

/* The plan that is chosen, which there must be. */
fl_plan chosen(const situation *s);

#endif
