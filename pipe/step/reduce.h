/* The gradients of a stage as buckets, started from the top down while lower layers still run
 * backward, and the squared norms of what came out. */
#ifndef FL_PIPE_STEP_REDUCE_H
#define FL_PIPE_STEP_REDUCE_H

#include "autodp/group/group.h"
#include "pipe/state/params.h"

typedef struct fl_reduce {
    fl_params *params; /* borrowed */
    int n;
    fl_bucket **bucket; /* [n], the topmost layers first */
    int *lowest_layer;  /* [n]: a bucket is complete when this layer's backward is done */
    int started;
    int replica, R;
} fl_reduce;

/* Cut the trainable layers into buckets of at least bucket_bytes, whole layers each. With R = 1
 * there are none. owners [R]: who holds these layers, by group index.
 * id_base: buckets get the ids id_base, id_base + 1, ... */
fl_status fl_reduce_init(fl_reduce *reduce, fl_params *params, fl_group *group, const int *owners,
                         int R, int replica, int64_t bucket_bytes, uint32_t id_base) FL_MUST_CHECK;
void fl_reduce_fini(fl_reduce *reduce);

/* The stream's work so far completes all micro-batches' gradients of `layer`: start the buckets
 * that are complete then. */
fl_status fl_reduce_layer_done(fl_reduce *reduce, fl_stream *stream, int layer) FL_MUST_CHECK;

/* Wait for all buckets; later work of the stream finds the sums. Ready for the next step. */
fl_status fl_reduce_wait(fl_reduce *reduce, fl_stream *stream, int64_t deadline_us) FL_MUST_CHECK;

/* This replica's share of each layer's squared norm: the R shares add up to the layer's. One pass
 * over a Rth of the gradients, whatever the number of layers. Waits for the stream.
 * squares  [last - first] out, of the stage's layers; 0 for a frozen one */
fl_status fl_reduce_norms(fl_reduce *reduce, fl_stream *stream, double *squares) FL_MUST_CHECK;

#endif
