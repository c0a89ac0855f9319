/* What enters the first stage: samples as the data set gives them, or, where frozen blocks end
 * within the stage and the run has a cache, what these made of them. Read a step ahead, micro-batch
 * by micro-batch, and taken in the same order. Threads: one, and a reader's own. */
#ifndef FL_PIPE_INLET_H
#define FL_PIPE_INLET_H

#include "data/loader.h"
#include "pipe/feed.h"
#include "pipe/shares.h"

typedef struct fl_inlet_options {
    const fl_activations *activations; /* NULL: no cache. Borrowed, as everything here */
    const fl_homes *homes;
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_plan *plan;
    int rank;
    fl_device *device;
    fl_stage *stage;
    int n_frozen; /* layers */
    int64_t max_samples;
} fl_inlet_options;

typedef struct fl_inlet {
    fl_inlet_options o;
    fl_feed *feed;     /* one of the two reads */
    fl_loader *loader; /* ... */
} fl_inlet;

/* Whether the cache serves the first stage of this plan: if the frost line lies inside it. Pure. */
bool fl_inlet_is_fed(const fl_activations *activations, const fl_plan *plan, int n_frozen);

/* Whatever it returns, the inlet can be ended, as one of zeros can. */
fl_status fl_inlet_init(fl_inlet *inlet, const fl_inlet_options *options) FL_MUST_CHECK;
void fl_inlet_fini(fl_inlet *inlet);

/* Begin to read all micro-batches of this replica's share of a batch. */
fl_status fl_inlet_request(fl_inlet *inlet, const fl_shares *shares) FL_MUST_CHECK;

/* The oldest requested micro-batch, `what`, into the input [at least one sample] of the slot in
 * which fl_stage_begin has begun it. step: of its batch. */
fl_status fl_inlet_take(fl_inlet *inlet, int slot, const fl_micro_batch *what, int64_t step,
                        const fl_tensor *input) FL_MUST_CHECK;

#endif
