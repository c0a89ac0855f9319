/* How large micro-batches get, in samples and in tokens. Both count: of two micro-batches with the
 * same tokens, one may have a few long samples and the other many short ones. Pure values. */
#ifndef FL_PIPE_COST_MEMORY_EXTENT_H
#define FL_PIPE_COST_MEMORY_EXTENT_H

#include <stdint.h>

/* Of a micro-batch, or of a larger part of a batch. */
typedef struct fl_extent {
    int64_t samples;
    int64_t tokens; /* rows of the raw input */
} fl_extent;

enum { FL_CAPACITY_EXTENTS = 8 };

/* The largest micro-batches of a plan: none has more samples and none has more tokens than one of
 * these. Where all samples have one length, there is one extent. */
typedef struct fl_capacity {
    int n;
    fl_extent at[FL_CAPACITY_EXTENTS]; /* [n] by rising tokens and falling samples */
    int64_t n_targets;                 /* of the micro-batch that has the most */
    fl_extent ahead;                   /* what the first stage of a replica reads ahead at most */
} fl_capacity;

/* The capacity of plans whose micro-batches have at most `samples` samples of `tokens` tokens each.
 * M: micro-batches of a step. */
fl_capacity fl_capacity_equal(int64_t samples, int64_t tokens, int64_t n_targets, int M);

/* Make room for one more micro-batch. When there are more extents than a capacity holds, two
 * neighbours become one that contains both. */
void fl_capacity_add(fl_capacity *capacity, fl_extent extent);

/* The most samples of a micro-batch, and the most tokens. */
int64_t fl_capacity_samples(const fl_capacity *capacity);
int64_t fl_capacity_tokens(const fl_capacity *capacity);

/* An upper bound of a quantity that adds up over samples, such as the rows at a boundary between
 * layers: so much for each sample, and so much for each of its tokens. */
typedef struct fl_growth {
    double per_sample, per_token;
} fl_growth;

/* The growth of which value[i] is the most that a sample of length[i] tokens has: straight from the
 * shortest to the longest, and lifted where some length between has more. length [n] rises. */
fl_growth fl_growth_over(const int64_t *length, const int64_t *value, int64_t n);

int64_t fl_growth_at(const fl_growth *growth, fl_extent extent);

#endif
