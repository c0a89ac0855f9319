/* The time of the next use of each sample, a function of seed and epoch. The cache keeps the values
 * that are needed soonest.
 *
 * Time counts uses of samples: in each epoch the n_train training samples in the sampler's order,
 * then the n_test test samples in theirs. Keys number training samples first, then test samples. */
#ifndef FL_PIPE_STEP_INPUT_NEXT_USE_H
#define FL_PIPE_STEP_INPUT_NEXT_USE_H

#include <stdint.h>

typedef struct fl_next_use {
    uint64_t seed;
    int64_t n_train;
    int64_t n_test;     /* 0: no evaluation */
    int64_t last_epoch; /* of the run */
    int64_t last_train; /* training samples that it uses */
} fl_next_use;

/* A run of n_steps steps of `batch` samples. Pure. */
void fl_next_use_init(fl_next_use *future, uint64_t seed, int64_t n_train, int64_t n_test,
                      int64_t batch, int64_t n_steps);

/* The time at which sample `position` of the epoch is used; n_train: that of the first test
 * sample. */
int64_t fl_next_use_time(const fl_next_use *future, int64_t epoch, int64_t position);

/* As fl_cache_next_use wants them; context is an fl_next_use. Threads: pure; any. */
int64_t fl_next_use_of(const void *context, int64_t key, int64_t now);
int64_t fl_next_use_key_at(const void *context, int64_t time);

#endif
