/* Samples of different length for tests of whole runs: sequences of feature rows, as long as the
 * sentences of SST-2 (4 to 60 tokens, most of them short), and transformers that take them. */
#ifndef FL_TESTS_SUPPORT_DATA_RAGGED_H
#define FL_TESTS_SUPPORT_DATA_RAGGED_H

#include <frostline.h>

enum { RAGGED_WIDTH = 16, RAGGED_CLASSES = 4, RAGGED_SHORTEST = 4, RAGGED_LONGEST = 60 };

/* Tokens of a sample. */
typedef int64_t ragged_length(fl_split split, int64_t id);

ragged_length ragged_like_sst2;   /* 4 to 60, with a mean near 14 */
ragged_length ragged_all_ones;    /* 1 */
ragged_length ragged_one_giant;   /* 1 to 3, but sample 7 has 60 */
ragged_length ragged_two_lengths; /* 4 or 60 */

/* n training and n / 4 test samples. per_token: each token has a target of its own; otherwise each
 * sample has one. Free with fl_dataset_destroy. */
fl_status ragged_dataset(int64_t n, ragged_length *length, bool per_token,
                         fl_dataset *out) FL_MUST_CHECK;

/* Blocks of attention and MLP over features that a linear layer maps to 24. per_token: a class for
 * each token; otherwise one for each sample, behind an attention of its first token alone. */
fl_status ragged_model(int64_t blocks, float dropout, bool per_token, fl_model **out) FL_MUST_CHECK;

#endif
