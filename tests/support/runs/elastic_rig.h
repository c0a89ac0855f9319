/* The controller's side of transitions, without workers: a test gives their answers. Nothing is
 * sent, and the events go to a folder of the rig's own. */
#ifndef FL_TESTS_SUPPORT_RUNS_ELASTIC_RIG_H
#define FL_TESTS_SUPPORT_RUNS_ELASTIC_RIG_H

#include "control/elastic/elastic.h"
#include "support/folder.h"

enum { RIG_LEAD = 6, RIG_WORKERS = 3, RIG_LAYERS = 6, RIG_LAYERS_MAX = 32, RIG_STEPS = 100 };

typedef struct rig {
    char dir[FOLDER_SIZE];
    int dir_fd;
    FILE *out;
    fl_job job;
    fl_model *model; /* NULL: unknown */
    fl_profile profile;
    fl_layer_memory memory[RIG_LAYERS_MAX];
    fl_plan_input input;
    fl_plan plan;
    fl_controller_options options;
    fl_worker workers[RIG_WORKERS];
    fl_run_stats stats;
    fl_phase phase;
    fl_run_facts facts;
    fl_cache_sums cache;
    fl_router router;
    fl_event_log log;
    fl_flight *flight;
    fl_flight_dump dump;
    fl_elastic elastic;
} rig;

/* For cmocka: a rig after 10 steps of a plan with two stages. */
int rig_set_up(void **state);
int rig_tear_down(void **state);

fl_plan rig_plan(int K, int R);

/* The layers of a toy model, which cost nothing: the script and the policy can have plans. */
void rig_know_the_model(rig *r);

/* A worker answers to the transition that is being prepared; then a turn of the controller. */
void rig_answer(rig *r, int rank, fl_status status, const char *text);

/* A person asks for this plan, and it is being prepared. */
void rig_ask(rig *r, int K, int R);

/* The outcome of the last request. */
const fl_elastic_outcome *rig_outcome(const rig *r);

/* All workers have switched, with this first step. */
void rig_switch_all(rig *r, int64_t step);

/* All workers are ready, and then have switched. */
void rig_commit(rig *r, int64_t step);

#endif
