/* One worker's part in a plan: its stage, its neighbours, its buckets, and the step over them.
 *
 * A step, as DESIGN calls it:
 *   1  the sampler's global batch is shared: replica, then micro-batches   batch_split.h
 *   2  stage 0 gets the samples' inputs, read ahead: raw, or what frozen
 *      layers made of them, from the cache                                 stage_input.h
 *   3  the clock lists what this stage does; the step runs that list       run_ops
 *   4  buckets are all-reduced while lower layers still run backward       reduce.h
 *   5  one sum over all workers: norm, loss, command; the commit point     commit
 *   6  the optimizer steps, unless loss or norm is not finite              fl_pipeline_apply */
#ifndef FL_PIPE_STEP_PIPELINE_H
#define FL_PIPE_STEP_PIPELINE_H

#include "autodp/group/group.h"
#include "pipe/plan/batch/batch_split.h"
#include "pipe/step/input/activations.h"
#include "pipe/step/input/cached_input.h"
#include "pipe/step/nonfinite.h"
#include "pipe/step/outputs.h"
#include "pipe/step/stage/stage.h"

#include <frostline/plan.h>

typedef struct fl_pipeline fl_pipeline;

typedef struct fl_pipeline_options {
    const fl_model *model; /* borrowed, as everything here */
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_plan *plan;
    int rank;
    fl_device *device;
    fl_group *group; /* of the plan's active workers; index = replica * K + stage */
    const fl_sample_sizes *sizes;
    const fl_capacity *capacity;       /* of the plan's micro-batches; needed only while creating */
    const fl_stage_memory *memory;     /* for that capacity */
    const fl_activations *activations; /* the run's cache; NULL: none */
    fl_cache_tiers *tiers;             /* this worker's part of it; NULL: none */
    const fl_state_source *source;     /* as in fl_stage_options; needed only while creating */
    const unsigned char *handed;       /* as in fl_stage_options; needed only while creating */
    bool reserve;                      /* as in fl_stage_options */
} fl_pipeline_options;

/* Everything a step needs is allocated here. rank must be active in the plan. */
fl_status fl_pipeline_create(const fl_pipeline_options *options, fl_pipeline **out) FL_MUST_CHECK;
void fl_pipeline_destroy(fl_pipeline **pipeline);

/* Give up all but weights and moments, between two steps, when the stream has done all its work:
 * nothing can be stepped any more. */
void fl_pipeline_strip(fl_pipeline *pipeline);

/* Queue the reading of a batch that will be stepped (or evaluated) soon, in that order; at most
 * one ahead of the one at work. Mandatory: prefetch every batch before its step. */
fl_status fl_pipeline_prefetch(fl_pipeline *pipeline, const fl_global_batch *batch) FL_MUST_CHECK;

/* What every worker knows after a step. */
typedef struct fl_step_result {
    fl_loss_sums sums; /* over the global batch */
    double grad_norm;  /* before clipping */
    double flags;      /* sum of all workers' `flag` */
    bool finite;       /* loss and norm are; if not, no worker has applied the optimizer's step */
    /* [L] the squared gradient norm of each block, 0 for a frozen one; the head's share is only in
     * grad_norm. Borrowed until the next step. */
    const double *block_squares;
    int64_t samples;
    int64_t tokens; /* rows that entered the first block, over the global batch */
    /* This worker's microseconds: its device's for computing and for the optimizer, and the host's
     * for what it waited for. A device that computes behind the host's back has not run the
     * optimizer by now: then optimizer_us is that of the step before. */
    int64_t compute_us, wait_us, reduce_wait_us, optimizer_us, data_us;
} fl_step_result;

/* One optimizer step. The device may still be at work on it when this returns; fl_pipeline_wait
 * waits for that. flag is summed over all workers at the commit point (> 0: a command is
 * pending).
 */
fl_status fl_pipeline_step(fl_pipeline *pipeline, const fl_global_batch *batch, double lr,
                           double flag, fl_step_result *result) FL_MUST_CHECK;

/* The workers' step was broken off. A worker sums up (5) only when its gradients are complete, and
 * only when all have come to that point does any of them apply the step. Whether this worker has
 * complete gradients that it did not apply: *step out. */
bool fl_pipeline_is_summed(const fl_pipeline *pipeline, int64_t *step);

/* Apply that step after all, because another worker did: grad_norm and finite are its result.
 * Without this call the step never happened. Either way the pipeline steps no more. */
fl_status fl_pipeline_apply(fl_pipeline *pipeline, double grad_norm, bool finite) FL_MUST_CHECK;

/* After a step that was not finite: compute it once more on every worker, from the same weights,
 * and find the first layer whose values are not finite; *found is the same on every worker. The
 * batch must be the step's; what was prefetched behind it stays. */
fl_status fl_pipeline_find_nonfinite(fl_pipeline *pipeline, const fl_global_batch *batch,
                                     fl_nonfinite *found) FL_MUST_CHECK;

/* Forward only, over one batch of the test split; *sums gets this worker's part: the caller adds
 * up all workers' with fl_pipeline_total. */
fl_status fl_pipeline_evaluate(fl_pipeline *pipeline, const fl_global_batch *batch,
                               fl_loss_sums *sums) FL_MUST_CHECK;
/* From now on, at the last stage, `take` gets the outputs of each micro-batch that is evaluated, in
 * order, before its loss is computed; NULL: nobody does. */
void fl_pipeline_watch_outputs(fl_pipeline *pipeline, fl_outputs_taker *take, void *context);

/* As fl_pipeline_evaluate, with the outputs of the last layer in place of the loss: at the last
 * stage, `take` gets those of each micro-batch, in order. */
fl_status fl_pipeline_predict(fl_pipeline *pipeline, const fl_global_batch *batch,
                              fl_outputs_taker *take, void *context) FL_MUST_CHECK;

/* The samples [*n] of the last batch that fell to this replica, and to any one, in the order in
 * which they were shared out; borrowed until the next batch. */
const int64_t *fl_pipeline_samples(const fl_pipeline *pipeline, int64_t *n);
const int64_t *fl_pipeline_samples_of(const fl_pipeline *pipeline, int replica, int64_t *n);

fl_status fl_pipeline_total(fl_pipeline *pipeline, fl_loss_sums *sums) FL_MUST_CHECK;

/* values[n] become their sums over all workers of the pipelines, each of which calls this. */
fl_status fl_pipeline_add_up(fl_pipeline *pipeline, double *values, int64_t n) FL_MUST_CHECK;

/* How the cache served this worker since the last time, if it does at all, and if a decision was
 * taken, or `always` and it was asked for something; otherwise false. */
bool fl_pipeline_cache(fl_pipeline *pipeline, bool always, fl_cached_input_report *report);

/* What the stage has captured so far, if it captured something since the last time, and `always`,
 * or if it gave up since then; otherwise false. */
bool fl_pipeline_graphs(fl_pipeline *pipeline, bool always, fl_stage_graph_report *report);

/* Wait for all work of the steps so far: before anything outside the pipeline's stream reads or
 * moves its weights and moments. */
fl_status fl_pipeline_wait(fl_pipeline *pipeline) FL_MUST_CHECK;

fl_stage *fl_pipeline_stage(fl_pipeline *pipeline);

#endif
