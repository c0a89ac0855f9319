/* The tokens of a table's rows, encoded in threads. */
#ifndef FL_DATA_TABLE_ENCODE_H
#define FL_DATA_TABLE_ENCODE_H

#include "data/table/rows.h"

/* The samples of one split, one after another. */
typedef struct fl_table_split {
    int64_t n;
    int64_t *begin;  /* [n + 1] where the tokens of each sample begin */
    int32_t *ids;    /* [begin[n]] */
    uint8_t *types;  /* the same; NULL: not wanted */
    int32_t *labels; /* [n] classes; -1: no label */
} fl_table_split;

typedef struct fl_table_encoding {
    const fl_tokenizer *tokenizer;
    int64_t max_tokens;
    bool types;
    int n_threads; /* 0: as many as the process may use */
} fl_table_encoding;

/* Fill n, begin, ids and types. The result does not depend on the number of threads.
 * Returns FL_EFORMAT with file and line for a text without a token, FL_EINVAL for a max_tokens that
 * is too small, FL_ENOMEM; the message is that of the first row that fails. Nothing is held on
 * failure. */
fl_status fl__table_encode(const fl_table_rows *rows, const fl_table_encoding *encoding,
                           fl_table_split *out) FL_MUST_CHECK;

void fl__table_split_fini(fl_table_split *split);

#endif
