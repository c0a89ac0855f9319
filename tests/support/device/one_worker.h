/* The pipeline of a run with one worker, in the process of the test: no controller, no ledger. */
#ifndef FL_TESTS_SUPPORT_DEVICE_ONE_WORKER_H
#define FL_TESTS_SUPPORT_DEVICE_ONE_WORKER_H

#include "launcher/worker/generation.h"

typedef struct one_worker_options {
    const fl_model *model; /* borrowed, as the data set and the device */
    const fl_dataset *data;
    fl_device *device;
    int64_t n_samples, batch;
    int M; /* micro-batches of a step */
    int F; /* frozen blocks */
} one_worker_options;

typedef struct one_worker {
    fl_job job;
    fl_plan plan;
    fl_sample_sizes *sizes;
    fl_run_batches batches;
    fl_worker_context context;
    fl_generation generation;
} one_worker;

/* The job trains with SGD, batches of samples in the order of their numbers. A failure fails the
 * test. */
void one_worker_open(one_worker *w, const one_worker_options *options);
void one_worker_close(one_worker *w);

/* The samples of batch number `step`. ids [options->batch] out, borrowed by the result */
fl_global_batch one_worker_batch(const one_worker *w, fl_split split, int64_t step, int64_t *ids);

#endif
