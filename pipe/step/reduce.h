/* The gradients of a stage as buckets, started from the top down while lower layers still run
 * backward, and the squared norms of what came out. Each tied parameter that trains has a bucket of
 * its own, over the owners of all its uses; these are started last, in the same order on every
 * worker, so that no two workers wait for each other in different buckets. */
#ifndef FL_PIPE_STEP_REDUCE_H
#define FL_PIPE_STEP_REDUCE_H

#include "autodp/group/group.h"
#include "pipe/state/params.h"

#include <frostline/plan.h>

typedef struct fl_reduce {
    fl_params *params; /* borrowed */
    int n;
    fl_bucket **bucket; /* [n], the topmost layers first */
    int *lowest_layer;  /* [n]: a bucket is complete when this layer's backward is done */
    int started, captured;
    int replica, R;
} fl_reduce;

/* Cut the trainable layers of this stage into buckets of at least bucket_bytes, whole layers each.
 * With R = 1 there are only those of ties between stages. */
fl_status fl_reduce_init(fl_reduce *reduce, fl_params *params, fl_group *group, const fl_plan *plan,
                         fl_place place, int64_t bucket_bytes) FL_MUST_CHECK;
void fl_reduce_fini(fl_reduce *reduce);

/* The work so far of the parameters' stream completes all micro-batches' gradients of `layer`:
 * start the buckets that are complete then. */
fl_status fl_reduce_layer_done(fl_reduce *reduce, int layer) FL_MUST_CHECK;

/* Whether all buckets can be part of captured work. There is at least one. */
bool fl_reduce_can_capture(const fl_reduce *reduce);

/* As fl_reduce_layer_done, while the stream is captured; then, before the capture ends, let what is
 * captured later find the sums. After a failure, too. */
fl_status fl_reduce_capture_layer(fl_reduce *reduce, int layer, int64_t deadline_us) FL_MUST_CHECK;
fl_status fl_reduce_capture_join(fl_reduce *reduce) FL_MUST_CHECK;

/* All buckets were launched as part of captured work: fl_reduce_wait follows. */
fl_status fl_reduce_launched(fl_reduce *reduce) FL_MUST_CHECK;

/* Wait for all buckets; later work of the stream finds the sums. Ready for the next step. */
fl_status fl_reduce_wait(fl_reduce *reduce, int64_t deadline_us) FL_MUST_CHECK;

/* This replica's share of each layer's squared norm: the R shares add up to the layer's. One pass
 * over a Rth of the gradients, whatever the number of layers. A tied parameter counts once, for the
 * first layer that uses it. Waits for the stream.
 * squares  [last - first] out, of the stage's layers; 0 for a frozen one */
fl_status fl_reduce_norms(fl_reduce *reduce, double *squares) FL_MUST_CHECK;

#endif
