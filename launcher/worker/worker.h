/* The body of a forked worker, from its device to its last step. */
#ifndef FL_LAUNCHER_WORKER_WORKER_H
#define FL_LAUNCHER_WORKER_WORKER_H

#include "autodp/nccl/trial.h"
#include "autodp/sampler.h"
#include "control/elastic/due_steps.h"
#include "control/state/birth.h"
#include "control/state/hosts/hosts.h"
#include "control/state/pass.h"
#include "device/machine/survey.h"
#include "launcher/worker/processors/cores.h"
#include "pipe/plan/batch/capacity.h"
#include "pipe/state/checkpoint/checkpoint_store.h"
#include "pipe/state/snapshot/snapshot.h"
#include "pipe/state/weights/init_weights.h"
#include "pipe/state/weights/model_file.h"
#include "pipe/step/input/activations.h"

#include <frostline/plan.h>

/* What a worker does between its first and its last wait for all others. */
typedef enum fl_worker_task {
    FL_WORKER_TRAIN = 0,
    FL_WORKER_EVALUATE = 1, /* one pass over the test split: loss and metrics */
    FL_WORKER_PREDICT = 2,  /* one pass over the test split: a line for each sample */
} fl_worker_task;

/* What all workers of a run have alike: a copy of the moment at which the controller started the
 * agent. What changes later is in fl_worker_birth. */
typedef struct fl_worker_context {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_cores *cores;
    const fl_host *host;       /* that the worker is on, of several; NULL: the run has one host */
    int n_head;                /* ranks below it are on the head, of several hosts; 0: one host */
    bool apart;                /* the hosts share no files: all go to the head */
    const fl_curve_keys *keys; /* of the control link of a run on several hosts; else NULL */
    const fl_device_survey *devices;
    const fl_nccl_trial *nccl;         /* of this host; NULL: nobody has tried */
    const char *algorithms;            /* as in fl_device_options */
    const fl_activations *activations; /* NULL: nothing is cached */
    const fl_due_steps *due;
    const fl_profile *profile;   /* what is known of costs; NULL: nothing */
    fl_run_batches *batches;     /* with what the controller found of them */
    int dir_fd;                  /* the run directory */
    const fl_init_weights *init; /* weights to start from */
    const int *saved_fd;  /* folder of the checkpoint that the run continues from; NULL: the run
                             begins at its first step */
    bool continues_saved; /* with `apart`, not on the head: the head has that checkpoint */
    const fl_snapshot *snapshot;  /* where snapshots go; NULL: none can be made */
    const fl_snapshot_view *from; /* the snapshot that the run continues from; NULL: from none */
    bool from_head;               /* the head has such a snapshot, and sends what is needed */
    const fl_checkpoint_store *store; /* where checkpoints go; NULL: none can be written */
    bool checkpoints; /* a worker writes one by itself at the end of the run; only with a store */
    fl_model_file *model_file; /* where the trained weights go; NULL: they are not kept */
    fl_worker_task task;
    fl_pass_gate *gate;   /* of a pass; NULL: the run trains */
    int64_t n_samples;    /* training samples used, without validation samples */
    int64_t n_validation; /* validation samples; they come first in the test split. 0: none */
    int64_t n_steps;
} fl_worker_context;

/* Returns the exit code: 0, or 3 after reporting the failure to the controller. context:
 * fl_worker_context. */
int fl_worker_run(void *context, const fl_worker_birth *birth, const char *endpoint);

#endif
