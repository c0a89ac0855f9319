/* What a pipeline holds: shared by the files that step it, make it, and search a step that failed.
 *
 *     pipeline.c          a step, an evaluation
 *     pipeline_create.c   from a plan to buffers and channels, and back
 *     nonfinite.c         a step once more, to find where a value stops being finite */
#ifndef FL_PIPE_STEP_PIPELINE_STATE_H
#define FL_PIPE_STEP_PIPELINE_STATE_H

#include "device/mirror.h"
#include "nn/loss.h"
#include "pipe/cost/schedule.h"
#include "pipe/step/captured_step.h"
#include "pipe/step/device_clock.h"
#include "pipe/step/input/stage_input.h"
#include "pipe/step/message_queues.h"
#include "pipe/step/nonfinite.h"
#include "pipe/step/pipeline.h"
#include "pipe/step/reduce.h"

/* The values that the commit point sums over all workers: from SUM_LOSS on those of fl_loss_sums,
 * then a squared norm for each block. */
enum { SUM_HEAD, SUM_FLAG, SUM_READY, SUM_CAPTURED, SUM_LOSS, N_SUMS = SUM_LOSS + FL_LOSS_SUMS_N };
_Static_assert(N_SUMS + FL_MAX_LAYERS <= FL_GROUP_ALL_REDUCE_MAX, "the commit point is one sum");

struct fl_pipeline {
    fl_pipeline_options o;
    fl_place place;
    int K, R, M;
    int n_slots;
    bool is_first, is_last;
    bool trains;       /* some layer of this stage lies above the frost line */
    bool trains_below; /* ... of a stage below */
    fl_stream *stream; /* of the stage's work, in the order of a step */
    fl_device_clock clock;
    fl_stage *stage;
    fl_stage_input stage_input; /* stage 0 only */
    fl_op *ops;                 /* [2 * M] of a training step */
    fl_recv_queue forward_in, backward_in;
    fl_send_queue forward_out, backward_out;
    fl_channel *channels[4];
    fl_reduce reduce;
    fl_captured_step captured; /* the last micro-batch's backward with its sums */
    fl_affinity affinity;  /* of samples, in the run's stores of what frozen layers made of them */
    fl_batch_split now;    /* of the step at work */
    fl_batch_split coming; /* scratch for prefetching the next one */
    size_t *in_bytes;      /* [M] of the step at work: where a micro-batch enters this stage */
    size_t *out_bytes;     /* [M] where it leaves */
    int below, above;      /* ranks of the neighbours; -1: none */
    fl_mirror sums_mirror; /* fl_loss_sums of the micro-batches so far, which kernels add to */
    void *sums_memory;     /* its device memory, a few bytes that no budget counts; NULL: none */
    fl_loss_sums sums;     /* those that fl__pipeline_read_sums has read */
    fl_step_result times;  /* only its microseconds */
    double commit_sums[N_SUMS + FL_MAX_LAYERS];
    int64_t summed_step; /* whose gradients are complete and not applied; -1: none are */
    double lr;           /* of that step */
    double layer_squares[FL_MAX_LAYERS]; /* of this stage's layers */
    fl_nonfinite_search *search;         /* NULL but while a failed step is computed once more */
    fl_outputs_memory outputs;           /* the last stage's */
    fl_outputs_taker *take_outputs;      /* of batches that have no backward; NULL: nobody asks */
    void *taker;
    void *sample_losses; /* fl_loss_sums of each sample of a micro-batch that is predicted */
    size_t sample_losses_room;
    fl_stage_graph_report told; /* what fl_pipeline_graphs gave last */
    bool predicts;              /* a batch whose loss nobody asks for is at work */
};

/* ---- pipeline.c ---- */

int64_t fl__pipeline_deadline_us(const fl_pipeline *p);

/* Begin new sums of losses; wait for all work so far and read them. */
fl_status fl__pipeline_clear_sums(fl_pipeline *p) FL_MUST_CHECK;
fl_status fl__pipeline_read_sums(fl_pipeline *p) FL_MUST_CHECK;

/* All that this stage does of the batch that was shared out last. */
fl_status fl__pipeline_run_ops(fl_pipeline *p) FL_MUST_CHECK;

/* ---- pipeline_create.c ---- */

/* As fl_pipeline_wait, before memory is given back; a failure is logged only. */
void fl__pipeline_settle(fl_pipeline *p);

/* ---- nonfinite.c ---- */

/* The hooks of a step that is computed once more: the samples' inputs, read without the loader; and
 * a look at what a layer's forward, the loss and a layer's backward have left. */
fl_status fl__nonfinite_read(fl_pipeline *p, int slot, const fl_micro_batch *what,
                             const fl_tensor *input) FL_MUST_CHECK;
fl_status fl__nonfinite_forward(fl_pipeline *p, int slot) FL_MUST_CHECK;
fl_status fl__nonfinite_loss(fl_pipeline *p, int slot) FL_MUST_CHECK;
fl_status fl__nonfinite_backward(fl_pipeline *p, int slot, int layer) FL_MUST_CHECK;

#endif
