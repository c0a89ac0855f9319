/* Which samples make a global batch. Pure functions of (seed, epoch, cursor); O(1) memory whatever
 * the data set's size. */
#ifndef FL_AUTODP_SAMPLER_H
#define FL_AUTODP_SAMPLER_H

#include <frostline/job.h>
#include <frostline/status.h>

#include <stdint.h>

/* A seeded permutation of 0 .. n - 1, computed per index: a Feistel network over the smallest even
 * number of bits that holds n - 1, repeated until the result is below n (cycle walking). */
typedef struct fl_permutation {
    int64_t n;
    uint32_t half_bits;
    uint32_t key[8];
} fl_permutation;

void fl_permutation_init(fl_permutation *p, int64_t n, uint64_t seed, int64_t epoch);

/* 0 <= index < n. Threads: pure; any. */
int64_t fl_permutation_at(const fl_permutation *p, int64_t index);

/* The same for indices first .. first + n - 1: out [n]. Faster than one by one. */
void fl_permutation_range(const fl_permutation *p, int64_t first, int64_t n, int64_t *out);

/* The index of `value`: fl_permutation_at gives `value` there. Threads: pure; any. */
int64_t fl_permutation_index(const fl_permutation *p, int64_t value);

/* The run's position, in samples: the whole state that a run needs to continue. */
typedef struct fl_cursor {
    int64_t epoch;
    int64_t position; /* samples of this epoch already used */
} fl_cursor;

/* Samples of a global batch, which one step trains on: train.accumulate batches of train.batch. */
int64_t fl_sampler_batch(const fl_job *job);

/* Steps of one epoch: the last batch is smaller when batch does not divide n_samples. */
int64_t fl_sampler_steps_per_epoch(int64_t n_samples, int64_t batch);

/* The position after `steps` steps of a run. */
fl_cursor fl_sampler_after(int64_t n_samples, int64_t batch, int64_t steps);

/* The global batch at the cursor: ids [batch] out, *n out; *cursor moves past it (into the next
 * epoch after the last). */
void fl_sampler_next(uint64_t seed, int64_t n_samples, int64_t batch, fl_cursor *cursor,
                     int64_t *ids, int64_t *n);

#endif
