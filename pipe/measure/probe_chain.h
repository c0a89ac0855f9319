/* A chain of layers to be timed: each kind of a model's layers a few times, in the model's order,
 * with weights, samples and memory of its own. Layers that are alike stand for each other; there
 * are as many of a kind as it takes to be larger than the caches. */
#ifndef FL_PIPE_MEASURE_PROBE_CHAIN_H
#define FL_PIPE_MEASURE_PROBE_CHAIN_H

#include "nn/exec.h"
#include "pipe/cost/memory/batch_tables.h"
#include "pipe/cost/memory/memory.h"
#include "pipe/measure/probe.h"

/* One layer of the chain. */
typedef struct fl_probe_layer {
    int layer, kind; /* kind: the model's first layer that is like it */
    fl_layer_params params;
    fl_tensor in, out; /* in: the output of the layer before, where the model has such a pair */
    /* [2][n_large + 1] of the chain's tables: the samples as they are, and all as short as the
     * shortest of them */
    int32_t *in_offsets, *out_offsets;
    fl_exec_frame frame;
} fl_probe_layer;

typedef struct fl_chain {
    const fl_probe_options *o; /* borrowed */
    int n_layers;              /* of the model */
    int kind_of[FL_MAX_LAYERS];
    fl_layer_memory memory[FL_MAX_LAYERS]; /* for n_large samples */
    int copies;                            /* most of one kind */
    int n;
    fl_probe_layer *at;     /* [n] */
    int64_t n_large;        /* samples of the largest micro-batch there may be */
    fl_batch_tables tables; /* of n_large samples: four boundaries for each layer of the chain */
    void *tables_memory;
    fl_shape *raw;    /* [n_large] */
    int64_t shortest; /* tokens of a raw sample, of these */
    bool ragged;      /* they differ in length */
    fl_arena tensors, keep, scratch;
    void *grad[2]; /* each holds the largest boundary */
    fl_tensor targets;
    int64_t max_targets;
    fl_loss_sums *sums; /* device memory */
} fl_chain;

/* Takes memory from options->device. On failure the chain holds what it has until fini. */
fl_status fl_chain_init(fl_chain *chain, const fl_probe_options *options) FL_MUST_CHECK;
void fl_chain_fini(fl_chain *chain);

/* Let every tensor hold the first n_samples <= n_large samples, each as long as it is, or all as
 * short as the shortest. Returns the tokens of the raw samples. */
int64_t fl_chain_resize(fl_chain *chain, int64_t n_samples, bool is_short);

#endif
