/* A pass of a saved model over samples: from a job to workers, and to what they found. */
#ifndef FL_LAUNCHER_RUN_PASS_RUN_H
#define FL_LAUNCHER_RUN_PASS_RUN_H

#include "control/state/pass.h"
#include "launcher/run/saved/saved_model.h"
#include "launcher/worker/worker.h"

typedef struct fl_pass_request {
    fl_worker_task task; /* not FL_WORKER_TRAIN */
    const char *verb;    /* "evaluating"; NULL: no progress is shown */
    int out_fd;          /* of FL_WORKER_PREDICT: where the lines go */
    const char *out;     /* its name in messages */
} fl_pass_request;

typedef struct fl_pass_result {
    fl_pass_outcome outcome;
    int K, R, M;
} fl_pass_result;

/* Start workers, go over the samples once, and end them. Progress goes to standard error. Nothing
 * is left on the disk, but for the logs of workers that failed, which the message names. Returns
 * what fl_run returns; FL_EFAILED also if the lines could not be written. */
fl_status fl_pass_run(fl_use *use, const fl_pass_request *request,
                      fl_pass_result *result) FL_MUST_CHECK;

#endif
