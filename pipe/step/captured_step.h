/* The backward of a step's last micro-batch together with the all-reduces of its buckets, as one
 * graph: sums run beside the backward of lower layers, and the host starts none of them.
 *
 *     commit point of step t        all members could           step t + 1: all capture it, and
 *                                                               compute as before
 *     commit point of step t + 1    all members have it         step t + 2 and later: all launch it
 *     otherwise, and behind other work than steps               as before
 *
 * Whether an all-reduce is captured is one matter of all its owners, and so is each launch. So the
 * commit point, at which all members meet anyway, sums up how many could and how many have. */
#ifndef FL_PIPE_STEP_CAPTURED_STEP_H
#define FL_PIPE_STEP_CAPTURED_STEP_H

#include "autodp/group/group.h"
#include "pipe/step/reduce.h"
#include "pipe/step/stage/stage.h"

#include <stdint.h>

typedef enum fl_step_way { FL_STEP_BY_PIECES, FL_STEP_CAPTURES, FL_STEP_LAUNCHES } fl_step_way;

/* What the members that could, and those that have captured, add up to. Pure. */
fl_step_way fl_step_way_next(double n_ready, double n_captured, int n_members);

typedef struct fl_captured_step {
    fl_group *group;
    fl_stage *stage; /* borrowed, as the rest */
    fl_reduce *reduce;
    fl_stream *stream;
    int64_t deadline_ms;
    bool equal;         /* all samples are: batches of one size are cut alike */
    bool sums;          /* this member has buckets; others do as the members that have */
    int n_cuts;         /* micro-batches in all replicas */
    fl_step_way way;    /* of the step at work */
    fl_step_way agreed; /* of the next one, if its batch has as many samples */
    int64_t n;          /* samples of the batch */
    bool ready, failed; /* this member could; it never will any more */
    fl_captured *graph; /* NULL: none */
} fl_captured_step;

/* A step of a batch of n samples begins. */
void fl_captured_step_begin(fl_captured_step *c, int64_t n);

/* In place of fl_stage_backward, of the last micro-batch. by_pieces: as layer_done of that. */
fl_status fl_captured_step_backward(fl_captured_step *c, int slot, bool want_grad_in, void *to,
                                    fl_stage_layer_done *by_pieces, void *context,
                                    fl_tensor *grad_in) FL_MUST_CHECK;

/* What this member adds at the commit point, and what follows from the sums. */
void fl_captured_step_put(const fl_captured_step *c, double *ready, double *captured);
void fl_captured_step_agree(fl_captured_step *c, double n_ready, double n_captured, int n_members);

/* Other work runs between two steps, on all members: the next one is computed by pieces, and what
 * was captured is captured anew. */
void fl_captured_step_interrupt(fl_captured_step *c);

/* Before the buckets are destroyed. */
void fl_captured_step_fini(fl_captured_step *c);

#endif
