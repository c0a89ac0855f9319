/* What a stage holds: shared by the files that run it and make it.
 *
 *     stage.c          micro-batches: forward and backward
 *     stage_begin.c    micro-batches: their samples, laid out for every layer
 *     stage_fill.c     some of their samples, up to where micro-batches enter
 *     stage_loss.c     the loss, of a micro-batch or of one of its samples
 *     stage_create.c   from options to slots, scratch and tables, and back
 *     stage_shapes.c   micro-batches that look alike to the device
 *     stage_graphs.c   layers that are captured for a shape and launched again */
#ifndef FL_PIPE_STEP_STAGE_STAGE_STATE_H
#define FL_PIPE_STEP_STAGE_STAGE_STATE_H

#include "nn/exec.h"
#include "pipe/cost/memory/batch_tables.h"
#include "pipe/step/stage/stage.h"

typedef struct fl_stage_shape fl_stage_shape;

/* One micro-batch between its forward and its backward. */
typedef struct fl_stage_slot {
    bool busy;
    fl_micro_batch what;
    fl_batch batch;
    fl_arena arena;
    fl_batch_tables tables;
    fl_tensor targets;             /* the last stage's */
    fl_tensor *at;                 /* [n_layers + 1]: the stage's input and each layer's output */
    fl_exec_frame *frame;          /* [n_layers] */
    int64_t raw_rows, raw_longest; /* of its samples, before the first layer of the model */
    /* What layers see: the same, or with further samples behind it that make up its shape. */
    fl_stage_shape *shape; /* NULL: as it is */
    bool by_graph;         /* its layers are launched as graphs */
    int label;             /* as fl_stage_label gives it */
    fl_tensor *run;        /* [n_layers + 1] */
    fl_batch run_batch;
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
    bool *cuts; /* [n_layers]: backward is captured in pieces that end with these layers */
    fl_stage_shape *shapes_seen[FL_STAGE_SHAPES];
    int n_shapes;
    fl_stage_graph_report graphs;
};

/* Walk one sample's shape through the model up to and along this stage. Samples of one shape
 * follow each other in most data sets, so the last answer is kept. */
fl_status fl__stage_shapes_of(fl_stage *stage, const fl_shape *raw) FL_MUST_CHECK;

/* Layers from the one where micro-batches enter; those from i = high down to low, numbered within
 * the stage. asked: as fl_exec.batch_asked. */
fl_status fl__stage_run_forward(fl_stage *stage, fl_stage_slot *s, void *to,
                                bool *asked) FL_MUST_CHECK;
fl_status fl__stage_run_backward(fl_stage *stage, fl_stage_slot *s, int high, int low,
                                 bool want_grad_in, void *to, bool *asked) FL_MUST_CHECK;

/* What a layer needs to run for the slot's micro-batch. */
fl_exec fl__stage_exec(fl_stage *stage, fl_stage_slot *s, int layer);

/* The micro-batch has left the stage. */
void fl__stage_end_slot(fl_stage *stage, fl_stage_slot *s);

/* ---- stage_begin.c ---- */

/* A tensor of the tables' samples, but for its data, rows and type. */
fl_tensor fl__stage_tensor_at(const fl_batch_tables *tables, int boundary);

/* Memory for what enters the stage, at the begin of the slot's. */
fl_status fl__stage_take_entry(fl_stage *stage, fl_stage_slot *s) FL_MUST_CHECK;

static inline size_t fl__tensor_bytes(const fl_tensor *t)
{
    return (size_t)(t->n_tokens * t->width) * fl_dtype_size(t->dtype);
}

/* ---- stage_shapes.c ---- */

/* What a slot holds of a shape. */
typedef struct fl__stage_capture {
    bool warm;            /* it was computed call by call, so that nothing is missing any more */
    int n_tries;          /* captures */
    fl_graph *forward;    /* NULL: none yet */
    fl_graph **backward;  /* [pieces of backward] */
    fl_exec_frame *frame; /* [n_layers] as the captured forward left them */
} fl__stage_capture;

/* Microseconds of the device for a forward or a backward, one way. */
typedef struct fl__shape_times {
    int n;
    double us;
} fl__shape_times;

/* Micro-batches that look alike to the device: with as many samples and rows at each boundary, and
 * no longer a sample. */
struct fl_stage_shape {
    bool training;
    int64_t n_samples;
    int64_t *rows, *longest; /* [n_layers + 1] */
    int32_t *offsets;        /* [n_layers + 1][n_samples + 1] of samples as long as allowed */
    int n_seen;
    fl_stage_way way;
    fl__shape_times calls, launches;
    fl__stage_capture *capture; /* [n_slots] */
};

/* After the samples of slot s were laid out: choose the shape in which its layers run and whether
 * they are launched as graphs, and lay out the samples that make up the shape. */
fl_status fl__stage_choose_shape(fl_stage *stage, fl_stage_slot *s) FL_MUST_CHECK;

/* Rows behind the micro-batch's own, in memory of its tensor at boundary i, become zeros. */
fl_status fl__stage_clear_rest(fl_stage *stage, const fl_stage_slot *s, int i,
                               void *data) FL_MUST_CHECK;
void fl__stage_shapes_destroy(fl_stage *stage);

/* ---- stage_graphs.c ---- */

/* As the run functions above for a slot whose layers are launched as graphs; where that fails, they
 * run call by call. */
fl_status fl__stage_launch_forward(fl_stage *stage, fl_stage_slot *s) FL_MUST_CHECK;
fl_status fl__stage_launch_backward(fl_stage *stage, fl_stage_slot *s, bool want_grad_in,
                                    fl_stage_layer_done *layer_done, void *context,
                                    int slot_index) FL_MUST_CHECK;
int fl__stage_n_pieces(const fl_stage *stage);

static inline void fl__stage_count_call(fl_stage *stage, bool by_graph)
{
    stage->graphs.calls += stage->o.device->ops->has_graphs && !by_graph ? 1 : 0;
}

/* No shape is launched as graphs any more; the message of this thread's last failure is the reason.
 */
void fl__stage_give_up_graphs(fl_stage *stage);
void fl__stage_drop_graphs(fl_stage *stage, fl_stage_shape *shape);

#endif
