/* Where the state of layers comes from when workers begin: drawn numbers, a safetensors file
 * (pipe/state/weights/init_weights.h), or a checkpoint (pipe/state/checkpoint/checkpoint_source.h).
 * Each worker reads the tensors of its own layers only, one at a time. */
#ifndef FL_PIPE_STATE_STATE_SOURCE_H
#define FL_PIPE_STATE_STATE_SOURCE_H

#include <frostline/model.h>

#include <stdbool.h>

/* Parts of a layer's state: a parameter's weight; its k-th moment is FL_STATE_MOMENT + k. */
enum { FL_STATE_WEIGHT = 0, FL_STATE_MOMENT = 1 };

typedef struct fl_state_source {
    void *self;
    /* One part of parameter `index` of `layer`: host [rows * cols]. Threads: one at a time. */
    fl_status (*read)(void *self, int layer, int index, int part, float *host);
    bool has_moments; /* false: all moments are 0, and none is read */
} fl_state_source;

/* The weights that a seed draws; the moments are 0. */
typedef struct fl_drawn_state {
    const fl_model *model;
    uint64_t seed;
} fl_drawn_state;

/* Borrows *drawn. */
fl_state_source fl_drawn_source(fl_drawn_state *drawn);

#endif
