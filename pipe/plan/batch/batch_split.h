/* How a global batch falls to the replicas, and within one replica to its micro-batches: in equal
 * shares of work, which is rows behind the first layer; and each sample, as far as that allows, to
 * a replica that reads from the store in which it is kept. */
#ifndef FL_PIPE_PLAN_BATCH_BATCH_SPLIT_H
#define FL_PIPE_PLAN_BATCH_BATCH_SPLIT_H

#include "autodp/affinity.h"
#include "pipe/cost/memory/sample_sizes.h"

/* One global batch: ids [n] in the sampler's order; copied where they are needed later. */
typedef struct fl_global_batch {
    fl_split split;
    int64_t epoch;
    int64_t step; /* optimizer steps so far */
    const int64_t *ids;
    int64_t n;
} fl_global_batch;

/* Of one batch at a time, for one replica. */
typedef struct fl_batch_split {
    const fl_sample_sizes *sizes; /* borrowed */
    const fl_affinity *affinity;
    int R, M, replica;
    fl_global_batch batch;
    int64_t begin, n;  /* this replica's part of the batch */
    int64_t n_targets; /* of the whole batch, like n_tokens */
    int64_t n_tokens;
    int32_t *work;          /* [max_batch] tokens of each sample */
    int64_t *dealt_ids;     /* [max_batch] the batch by replicas; unused where there is one store */
    int32_t *dealt_work;    /* [max_batch] */
    int *dealt_to;          /* [max_batch] */
    int64_t *room;          /* [R] */
    int64_t *replica_first; /* [R + 1] */
    int64_t *micro_first;   /* [M + 1] within this replica's part */
} fl_batch_split;

/* For batches of up to max_batch samples, over the replicas of `affinity`. FL_ENOMEM: it can be
 * ended all the same. */
fl_status fl_batch_split_init(fl_batch_split *shares, const fl_sample_sizes *sizes,
                              int64_t max_batch, const fl_affinity *affinity, int M,
                              int replica) FL_MUST_CHECK;
void fl_batch_split_fini(fl_batch_split *shares);

/* Split this batch: a function of its samples' sizes, the affinity and M alone. */
void fl_batch_split_run(fl_batch_split *shares, const fl_global_batch *batch);

/* Go over to another replica's part of the same batch. */
void fl_batch_split_turn(fl_batch_split *shares, int replica);

/* The samples [*n] of this replica, of any one, and of one of this replica's micro-batches;
 * borrowed from the batch, or from shares until the next split. */
const int64_t *fl_batch_split_mine(const fl_batch_split *shares, int64_t *n);
const int64_t *fl_batch_split_of(const fl_batch_split *shares, int replica, int64_t *n);
const int64_t *fl_batch_split_micro(const fl_batch_split *shares, int micro_batch, int64_t *n);

#endif
