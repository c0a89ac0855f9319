/* Where a value first stopped being finite, in a step whose loss or gradient norm is not.
 *
 * A normal step looks at two numbers that it has anyway. Only a step that failed is computed once
 * more, from the same weights and samples, with a look at every tensor on the way. */
#ifndef FL_PIPE_STEP_NONFINITE_H
#define FL_PIPE_STEP_NONFINITE_H

#include <frostline/status.h>

#include <stdint.h>

/* What holds the first value that is infinite or not a number. "First" is the order of the
 * computation: layers from the first to the last, the loss, layers from the last to the first. */
typedef enum fl_nonfinite_where {
    FL_NONFINITE_NOWHERE = 0,  /* computed once more, every value is finite */
    FL_NONFINITE_INPUT = 1,    /* a sample, as the data set gave it */
    FL_NONFINITE_WEIGHT = 2,   /* a parameter of the layer, before the step */
    FL_NONFINITE_OUTPUT = 3,   /* what the layer's forward wrote */
    FL_NONFINITE_LOSS = 4,     /* the loss, or its gradient */
    FL_NONFINITE_GRADIENT = 5, /* what the layer's backward wrote or added to */
} fl_nonfinite_where;

typedef struct fl_nonfinite {
    fl_nonfinite_where where;
    int32_t layer;  /* from 0; -1: the loss, or nowhere */
    int32_t rank;   /* the worker that computes it; -1: nowhere */
    int64_t sample; /* whose rows hold the value; -1: it belongs to no single sample */
} fl_nonfinite;

/* The finding as one number, the smaller the earlier, and back. 0 is nowhere. Pure. */
double fl_nonfinite_key(fl_nonfinite_where where, int layer, int n_layers);
void fl_nonfinite_of_key(double key, int n_layers, fl_nonfinite *out);

typedef struct fl_nonfinite_search fl_nonfinite_search;

#endif
