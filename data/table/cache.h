/* Tokenized tables in files, so that the next run of a job need not tokenize again. */
#ifndef FL_DATA_TABLE_CACHE_H
#define FL_DATA_TABLE_CACHE_H

#include "data/table/encode.h"
#include "data/table/labels.h"

/* All that decides what a file holds, hashed: the content of the tables, the tokenizer, the
 * settings, the program. */
typedef struct fl_table_key {
    uint64_t hash[2];
} fl_table_key;

/* What a file holds. */
typedef struct fl_table_tokens {
    fl_table_split split[2]; /* by fl_split; n 0: none */
    fl_table_labels labels;  /* names NULL: none */
} fl_table_tokens;

void fl__table_tokens_fini(fl_table_tokens *tokens);

/* The file of a key. path [PATH_MAX] out; false if the path is too long. */
bool fl__table_cache_path(const char *folder, const fl_table_key *key, char *path);

/* Read the file and check all of it.
 * n_ids    ids must be below it
 * types    whether tokens have types
 * *found   out: false where there is no such file, which is no failure
 * Returns  FL_EIO, FL_EFORMAT with the path and the reason, FL_ENOMEM; out is then unchanged */
fl_status fl__table_cache_read(const char *path, const fl_table_key *key, int32_t n_ids, bool types,
                               fl_table_tokens *out, bool *found) FL_MUST_CHECK;

/* Write the file beside its place, then rename it: a reader sees all of it or nothing. The folder
 * is made. FL_EIO; nothing is left behind then. */
fl_status fl__table_cache_write(const char *path, const fl_table_key *key,
                                const fl_table_tokens *tokens) FL_MUST_CHECK;

#endif
