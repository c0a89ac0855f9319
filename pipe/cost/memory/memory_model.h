/* The memory of layers as a function of the micro-batch, for a planner that asks about thousands of
 * micro-batches of samples of different length. It is measured once, with the shortest and with the
 * longest sample. */
#ifndef FL_PIPE_COST_MEMORY_MEMORY_MODEL_H
#define FL_PIPE_COST_MEMORY_MEMORY_MODEL_H

#include "pipe/cost/memory/memory.h"

/* Of a micro-batch of UNIT samples; whole arena pieces, since UNIT pieces are a multiple of what an
 * arena rounds to. */
typedef struct fl_memory_model {
    const fl_sample_sizes *sizes; /* borrowed */
    fl_layer_memory *base;        /* [n_layers] what does not grow with the samples */
    fl_layer_memory *shortest; /* [n_layers] what all samples of the least length take beside it */
    fl_layer_memory *longest;  /* [n_layers] and those of the greatest */
} fl_memory_model;

/* Where memory grows faster than the length, as a square does, the line from the shortest to the
 * longest sample lies above it; where it grows more slowly, every sample counts as the longest.
 * Free with fl_memory_model_destroy. Threads: any that holds the model. */
fl_status fl_memory_model_create(const fl_model *model, const fl_sample_sizes *sizes,
                                 fl_memory_model **out) FL_MUST_CHECK;
void fl_memory_model_destroy(fl_memory_model **model);

/* memory [n_layers] out: of every micro-batch within `capacity`. Not less than what
 * fl_memory_measure_capacity counts, as long as a layer takes at most FL_MEMORY_PIECES pieces.
 * Pure. */
enum { FL_MEMORY_PIECES = 16 };
void fl_memory_model_at(const fl_memory_model *model, const fl_capacity *capacity,
                        fl_layer_memory *memory);

/* Replace the operations of each layer by those of a training sample in the mean: a square of the
 * length, as attention has it, counts as the mean square. Pure. */
fl_status fl_memory_mean_flops(const fl_model *model, const fl_sample_sizes *sizes,
                               fl_layer_memory *memory_one) FL_MUST_CHECK;

#endif
