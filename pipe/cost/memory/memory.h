/* The memory of a stage, counted before anything is allocated by running its layers on the null
 * device; the stage then allocates just that. */
#ifndef FL_PIPE_COST_MEMORY_MEMORY_H
#define FL_PIPE_COST_MEMORY_MEMORY_H

#include "pipe/cost/memory/sample_sizes.h"

#include <frostline/plan.h>

enum { FL_QUEUE_DEPTH = 2 }; /* messages under way at once between neighbouring stages, each way */

typedef struct fl_stage_memory {
    int64_t params_bytes; /* weights; gradients and moments of what trains */
    int64_t slot_bytes;   /* one micro-batch in flight: the stage's input, and all that is kept */
    int64_t n_slots;
    int64_t scratch_bytes; /* two gradient buffers that take turns, and one layer's temporaries */
    int64_t channel_bytes; /* send and receive buffers, host memory, as sockets need them */
    int64_t loader_bytes;  /* samples or cached activations read ahead, host memory */
    int64_t tables_bytes;  /* what kernels know of micro-batches; 0: in host memory */
    int64_t copies_bytes;  /* bf16 copies of weights, on a GPU */
    int64_t window_bytes;  /* cached rows of a micro-batch, on a device with memory of its own */
    int64_t tier_bytes;    /* cache.device */
    int64_t graphs_bytes;  /* the driver's for captured work, beyond FL_DEVICE_GRAPH_ROOM_BYTES */
    int64_t total_bytes;   /* all of it, with every slot */
    /* Contained in the above: the largest message from the stage below, and to the one above; one
     * gradient buffer. */
    int64_t in_bytes, out_bytes, grad_bytes;
} fl_stage_memory;

/* The memory of one layer for one micro-batch. Kept and scratch memory are rounded up to whole
 * arena pieces; in_bytes and out_bytes are those of the tensors. */
typedef struct fl_layer_memory {
    int64_t kept_bytes;    /* output and what it keeps, from its forward to its backward */
    int64_t scratch_bytes; /* most that forward, backward or evaluation borrow; the last layer's
                              covers the loss too */
    int64_t in_bytes, out_bytes;
    /* The same below the frost line: no backward follows, so its output is all that stays. */
    int64_t frozen_kept_bytes, frozen_scratch_bytes;
    /* Input and output of what is read ahead; 0: of 2 M micro-batches, as where all are alike. */
    int64_t in_ahead_bytes, out_ahead_bytes;
    /* Operations of its products, two a multiply-add: forward; backward; backward without the
     * gradient of its input, which the lowest layer that trains does not need. */
    int64_t forward_flops, backward_flops, lowest_backward_flops;
    int64_t n_samples, n_targets; /* of the micro-batch; one target a row unless more is known */
    /* The driver's memory for the layer's captured work in one slot, of all shapes, as the profile
     * has it; the same for any micro-batch. 0: unknown. */
    int64_t graph_bytes;
} fl_layer_memory;

/* memory [n_layers] out, for a micro-batch of n_samples samples of this shape. What layers take
 * for n samples is at most n times what they take for one. FL_EINVAL for more rows than a tensor's
 * offsets can count.
 * Threads: any that holds the model. */
fl_status fl_memory_measure(const fl_model *model, const fl_sample_shape *sample, int64_t n_samples,
                            fl_layer_memory *memory) FL_MUST_CHECK;

/* The same, for a process that is watched by another one: *layer is always the layer whose code
 * runs. */
fl_status fl_memory_measure_watched(const fl_model *model, const fl_sample_shape *sample,
                                    int64_t n_samples, fl_layer_memory *memory,
                                    volatile int *layer) FL_MUST_CHECK;

/* As fl_memory_measure, for every micro-batch within `capacity`. Each of its extents is measured
 * with as many of the longest samples as there can be, so what grows faster than the length counts
 * in full. Rows at a boundary are those of sizes->rows. */
fl_status fl_memory_measure_capacity(const fl_model *model, const fl_sample_sizes *sizes,
                                     const fl_capacity *capacity,
                                     fl_layer_memory *memory) FL_MUST_CHECK;

/* Set n_samples and n_targets of all layers. Pure. */
void fl_memory_set_counts(const fl_capacity *capacity, int n_layers, fl_layer_memory *memory);

/* Fill the bytes that are read ahead: in_ahead_bytes and out_ahead_bytes [of all layers]. Pure. */
void fl_memory_set_ahead(const fl_sample_sizes *sizes, fl_extent ahead, fl_layer_memory *memory);

/* One stage of a pipeline: stage `stage` of K has the layers first .. last - 1, and M micro-batches
 * a step. */
typedef struct fl_stage_place {
    fl_schedule schedule;
    int K, M, stage;
    int first, last;
} fl_stage_place;

/* That of stage `stage` of a plan. */
fl_stage_place fl_plan_stage(const fl_plan *plan, int stage);

/* Put together what a stage needs whose layers' `memory` was measured for one micro-batch, when the
 * model's first n_frozen layers are frozen: those have neither gradients nor moments. Pure. */
void fl_memory_stage(const fl_model *model, const fl_job *job, const fl_layer_memory *memory,
                     int n_frozen, const fl_stage_place *place, fl_stage_memory *out);

/* ---- the same for a planner that asks about thousands of runs of layers ---- */

enum { FL_MEMORY_LEVELS = 10 }; /* 2^(levels - 1) >= FL_MAX_LAYERS */

/* Sums and maxima over runs of layers, each asked for in O(1). About 100 KiB. */
typedef struct fl_memory_table {
    const fl_model *model;
    const fl_job *job;
    int n_frozen;
    int64_t n_weights[FL_MAX_LAYERS + 1]; /* below this layer, padding included */
    int64_t n_samples, n_targets;
    int64_t graph_bytes; /* of each layer, as in fl_layer_memory */
    int64_t kept_bytes[FL_MAX_LAYERS + 1];
    int64_t in_bytes[FL_MAX_LAYERS], out_bytes[FL_MAX_LAYERS];
    int64_t frozen_out_bytes;                             /* of the last frozen layer; 0: none */
    int64_t in_ahead_bytes;                               /* of the first layer */
    int64_t out_ahead_bytes_max[FL_MAX_LAYERS + 1];       /* of the layers below this one */
    int64_t scratch_max[FL_MEMORY_LEVELS][FL_MAX_LAYERS]; /* [l][i]: of layers i .. i + 2^l - 1 */
    int64_t out_max[FL_MEMORY_LEVELS][FL_MAX_LAYERS];
} fl_memory_table;

/* memory: what one sample takes. model and job are borrowed. At most FL_MAX_LAYERS layers, of which
 * the first n_frozen are frozen. */
void fl_memory_table_init(fl_memory_table *table, const fl_model *model, const fl_job *job,
                          const fl_layer_memory *memory, int n_frozen);

/* As fl_memory_stage for micro-batches of n_samples; never less than what it says. Pure. */
void fl_memory_table_stage(const fl_memory_table *table, int64_t n_samples,
                           const fl_stage_place *place, fl_stage_memory *out);

#endif
