/* What a forked worker does, from its device to its last step. */
#ifndef FL_LAUNCHER_WORKER_WORKER_H
#define FL_LAUNCHER_WORKER_WORKER_H

#include "control/elastic/due_steps.h"
#include "launcher/worker/cores.h"
#include "pipe/step/activations.h"

#include <frostline/plan.h>

/* What the controller had when it forked: the worker sees it as it was then. */
typedef struct fl_worker_context {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_plan *plan;
    const fl_cores *cores;
    const fl_activations *activations; /* NULL: nothing is cached */
    const fl_due_steps *due;
    int dir_fd;           /* the run directory */
    int64_t n_samples;    /* of the training split that are trained on */
    int64_t n_validation; /* the first of the test split are validation samples; 0: none */
    int64_t n_steps;
} fl_worker_context;

/* Returns the exit code: 0, or 3 after telling the controller why. context: fl_worker_context. */
int fl_worker_run(void *context, int rank, const char *endpoint);

#endif
