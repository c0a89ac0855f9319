/* Tokenized tables in files, so that the next run of a job need not tokenize again. */
#ifndef FL_DATA_TABLE_CACHE_H
#define FL_DATA_TABLE_CACHE_H

#include "data/table/labels.h"
#include "data/tokens/kept.h"
#include "data/tokens/samples.h"

/* The samples of one split. */
typedef struct fl_table_split {
    fl_token_samples tokens; /* without spans */
    int32_t *labels;         /* [tokens.n] classes; -1: no label */
} fl_table_split;

void fl__table_split_fini(fl_table_split *split);

/* What a file holds. */
typedef struct fl_table_tokens {
    fl_table_split split[2]; /* by fl_split; n 0: none */
    fl_table_labels labels;  /* names NULL: none */
} fl_table_tokens;

void fl__table_tokens_fini(fl_table_tokens *tokens);

/* Read the file of a key and check all of it.
 * n_ids    ids must be below it
 * types    whether tokens have types
 * Returns  as fl__kept_read; out is unchanged unless the file was read */
fl_status fl__table_cache_read(const char *path, const fl_kept_key *key, int32_t n_ids, bool types,
                               fl_table_tokens *out, bool *found) FL_MUST_CHECK;

/* As fl__kept_write. */
fl_status fl__table_cache_write(const char *path, const fl_kept_key *key,
                                const fl_table_tokens *tokens) FL_MUST_CHECK;

#endif
