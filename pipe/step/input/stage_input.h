/* The input of the first stage: samples from the data set, or, where the frost line lies within the
 * stage and the run has a cache, the output of the frozen layers. Read a step ahead, micro-batch
 * by micro-batch, and taken in the same order. Threads: one, and a reader's own. */
#ifndef FL_PIPE_STEP_INPUT_STAGE_INPUT_H
#define FL_PIPE_STEP_INPUT_STAGE_INPUT_H

#include "data/loader.h"
#include "pipe/plan/batch/batch_split.h"
#include "pipe/step/input/cached_input.h"

typedef struct fl_stage_input_options {
    const fl_activations *activations; /* NULL: no cache. Borrowed, as everything here */
    fl_cache_tiers *tiers;             /* these two as in fl_cached_input_options */
    size_t window_bytes;
    const fl_affinity *affinity;
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_plan *plan;
    int rank;
    fl_device *device;
    fl_stream *stream; /* whose work the input is for */
    fl_stage *stage;
    int n_frozen; /* layers */
    const fl_sample_sizes *sizes;
    const fl_capacity *capacity; /* needed only while creating */
} fl_stage_input_options;

typedef struct fl_stage_input {
    fl_stage_input_options o;
    fl_cached_input *feed; /* exactly one of feed and loader is not NULL */
    fl_loader *loader;
} fl_stage_input;

/* Whether the cache serves the first stage of this plan: if the frost line lies inside it. Pure. */
bool fl_stage_input_is_cached(const fl_activations *activations, const fl_plan *plan, int n_frozen);

/* Call fini after a failure, too; it also takes a stage input of zeros. */
fl_status fl_stage_input_init(fl_stage_input *stage_input,
                              const fl_stage_input_options *options) FL_MUST_CHECK;
void fl_stage_input_fini(fl_stage_input *stage_input);

/* Begin to read all micro-batches of this replica's share of a batch. */
fl_status fl_stage_input_request(fl_stage_input *stage_input,
                                 const fl_batch_split *shares) FL_MUST_CHECK;

/* The oldest requested micro-batch, `what`, into the input [at least one sample] of the slot in
 * which fl_stage_begin has begun it. step: of its batch. */
fl_status fl_stage_input_take(fl_stage_input *stage_input, int slot, const fl_micro_batch *what,
                              int64_t step, const fl_tensor *input) FL_MUST_CHECK;

#endif
