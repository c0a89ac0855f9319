/* Hashes of frozen layers' weights, which name what the cache keeps. They lie in memory that all
 * workers of a run share: a layer is hashed once while it is frozen, by one of the workers that
 * read the cache, and each of them reads the result. */
#ifndef FL_PIPE_STEP_INPUT_WEIGHT_PRINTS_H
#define FL_PIPE_STEP_INPUT_WEIGHT_PRINTS_H

#include "pipe/state/params.h"

typedef struct fl_weight_prints fl_weight_prints;

/* Before the workers are forked. FL_ENOMEM. */
fl_status fl_weight_prints_create(int n_layers, fl_weight_prints **out) FL_MUST_CHECK;
void fl_weight_prints_destroy(fl_weight_prints **prints);

/* out [n_frozen]: the hash of each layer below the frost line; params holds them all. Hashes what
 * no worker has hashed yet, beginning at another layer on each of n_readers that do so at the same
 * time, so that they share the work. */
fl_status fl_weight_prints_get(fl_weight_prints *prints, const fl_params *params, int n_frozen,
                               int reader, int n_readers, uint64_t *out) FL_MUST_CHECK;

/* Every worker calls it as it switches to a plan, before it votes for another: from n_frozen on
 * layers train, and their hashes hold no longer. */
void fl_weight_prints_forget(fl_weight_prints *prints, int n_frozen);

/* Bytes of weights that the run's workers have hashed so far: for tests and benchmarks. */
int64_t fl_weight_prints_hashed_bytes(const fl_weight_prints *prints);

#endif
