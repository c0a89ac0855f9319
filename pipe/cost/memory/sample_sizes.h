/* The sizes of all samples of a run, asked for once before it starts: what micro-batches will hold
 * is computed from them. */
#ifndef FL_PIPE_COST_MEMORY_SAMPLE_SIZES_H
#define FL_PIPE_COST_MEMORY_SAMPLE_SIZES_H

#include "pipe/cost/memory/extent.h"

#include <frostline/dataset.h>
#include <frostline/model.h>

/* What a sample is: what enters the first layer, and what the loss compares with. */
typedef struct fl_sample_shape {
    fl_shape input;
    int64_t n_targets;
    fl_dtype target_dtype;
} fl_sample_shape;

/* What the data set promises as its longest sample. What its max_shape() fails with. */
fl_status fl_sample_shape_max(const fl_dataset *dataset, fl_sample_shape *out) FL_MUST_CHECK;

/* Samples are numbered as in the data set, by split. */
typedef struct fl_sample_sizes {
    bool equal;           /* all samples have one length, and as many targets */
    fl_shape longest;     /* the raw sample with the most tokens */
    int64_t shortest;     /* tokens of the shortest */
    int64_t most_targets; /* of a sample */
    fl_dtype target_dtype;
    int64_t most_work;           /* rows of a sample behind the first layer */
    int64_t least_work;          /* at least 1 */
    double tokens_per_work;      /* of the length that has the most */
    int64_t count[2];            /* samples of a split */
    double mean_tokens;          /* of a training sample */
    double mean_square;          /* of a training sample's tokens */
    int32_t *tokens[2];          /* [count] raw; NULL where all are equal, like what follows */
    int32_t *work[2];            /* [count] rows behind the first layer: by these batches are cut */
    int32_t *n_targets[2];       /* [count] */
    int n_layers;                /* of the model */
    fl_growth *rows;             /* [n_layers + 1] at each boundary; 0: the raw input */
    size_t *row_bytes;           /* [n_layers + 1] */
    int64_t n_lengths, *lengths; /* [n_lengths] the lengths that occur, ascending */
} fl_sample_sizes;

/* Ask for the sizes of the first n_train training samples and the first n_test test samples. Where
 * a sample breaks what the data set promises: FL_EINVAL, and the message names it: no tokens, more
 * than max_shape allows, or another width or type. *out is NULL after a failure. */
fl_status fl_sample_sizes_create(const fl_model *model, const fl_dataset *dataset, int64_t n_train,
                                 int64_t n_test, fl_sample_sizes **out) FL_MUST_CHECK;
void fl_sample_sizes_destroy(fl_sample_sizes **sizes);

/* A sample with the most tokens and the most targets that there are. Pure. */
fl_sample_shape fl_sample_longest(const fl_sample_sizes *sizes);

/* A sample of this many tokens. Where the longest has as many targets for each row of the model's
 * output, as in classification, language models and regression, this one has them too; else as many
 * targets as any sample. What layers' shape() fail with. */
fl_status fl_sample_of_length(const fl_model *model, const fl_sample_sizes *sizes, int64_t tokens,
                              fl_sample_shape *out) FL_MUST_CHECK;

/* Of one sample. Pure. */
int64_t fl_sample_tokens(const fl_sample_sizes *sizes, fl_split split, int64_t id);
int64_t fl_sample_work(const fl_sample_sizes *sizes, fl_split split, int64_t id);
int64_t fl_sample_n_targets(const fl_sample_sizes *sizes, fl_split split, int64_t id);

#endif
