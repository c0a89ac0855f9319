/* What a stage holds: shared by the files that run it and make it.
 *
 *     stage.c          micro-batches: begin, forward, loss, backward
 *     stage_create.c   from options to slots, scratch and tables, and back */
#ifndef FL_PIPE_STEP_STAGE_STATE_H
#define FL_PIPE_STEP_STAGE_STATE_H

#include "nn/exec.h"
#include "pipe/cost/batch_tables.h"
#include "pipe/step/stage.h"

/* One micro-batch between its forward and its backward. */
typedef struct fl_stage_slot {
    bool busy;
    fl_micro_batch what;
    fl_batch batch;
    fl_arena arena;
    fl_batch_tables tables;
    fl_tensor targets;    /* the last stage's */
    fl_tensor *at;        /* [n_layers + 1]: the stage's input and each layer's output */
    fl_exec_frame *frame; /* [n_layers] */
} fl_stage_slot;

/* Where one sample begins and ends, standing alone; its id. */
typedef struct fl_one_sample {
    int64_t id;
    int32_t out[2], targets[2];
} fl_one_sample;

struct fl_stage {
    fl_stage_options o;
    int n_layers;
    int64_t max_samples; /* of a micro-batch */
    fl_params params;
    fl_stage_slot *slots;
    unsigned char *slot_memory;
    unsigned char *scratch_memory;
    fl_arena scratch;
    void *grad[2];
    int grad_turn;    /* which of them holds the current gradient */
    fl_shape raw;     /* the raw shape for which `shapes` was computed; width 0: none yet */
    fl_shape *shapes; /* [n_layers + 1]: one sample at each boundary of the stage */
    bool ends_model;  /* the loss is this stage's */
    unsigned char *tables_memory; /* the slots' tables, then those of fl_stage_fill; NULL: in host
                                     memory */
    fl_batch_tables some;         /* of fl_stage_fill's samples */
    fl_stream *copy_stream;       /* on which tables go to the device; NULL: in host memory */
    void *one_memory;             /* device memory of `one`, which no budget counts; NULL: none */
    fl_mirror one;                /* fl_one_sample, of fl_stage_sample_loss */
    int n_busy, peak_busy;
};

/* Walk one sample's shape through the model up to and along this stage. Samples of one shape
 * follow each other in most data sets, so the last answer is kept. */
fl_status fl__stage_shapes_of(fl_stage *stage, const fl_shape *raw) FL_MUST_CHECK;

#endif
