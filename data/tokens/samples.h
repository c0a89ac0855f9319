/* Texts as tokens, one after another in flat arrays, without padding. */
#ifndef FL_DATA_TOKENS_SAMPLES_H
#define FL_DATA_TOKENS_SAMPLES_H

#include "data/tokenizer/tokenizer.h"

/* A struct of zeros holds nothing. */
typedef struct fl_token_samples {
    int64_t n;
    int64_t *begin;       /* [n + 1] where the tokens of each text begin */
    int32_t *ids;         /* [begin[n]] */
    uint8_t *types;       /* the same; NULL: not wanted */
    fl_token_span *spans; /* the same; NULL: not wanted */
} fl_token_samples;

void fl__token_samples_fini(fl_token_samples *samples);

/* The tokens of all texts; of the text i; of the longest text. */
int64_t fl__token_samples_total(const fl_token_samples *samples);
int64_t fl__token_samples_length(const fl_token_samples *samples, int64_t i);
int64_t fl__token_samples_longest(const fl_token_samples *samples);

/* Whether the arrays of samples that were read from a file fit together: n_tokens of them in all,
 * at least `least` tokens in each, ids below n_ids. */
bool fl__token_samples_are_sound(const fl_token_samples *samples, int64_t n_tokens, int64_t least,
                                 int32_t n_ids);

/* A hash of the content, mixed into `hash`. */
uint64_t fl__token_samples_hash(const fl_token_samples *samples, uint64_t hash);

#endif
