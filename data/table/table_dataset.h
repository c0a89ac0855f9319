/* The data set of kind table: text and labels of a TSV, CSV or JSONL file, tokenized when it is
 * opened. A sample is the ids of its tokens, without padding: FL_I32, [T, 1], or [T, 2] with the
 * token types in column 1. docs/data.md describes the files. */
#ifndef FL_DATA_TABLE_TABLE_DATASET_H
#define FL_DATA_TABLE_TABLE_DATASET_H

#include <frostline/dataset.h>

#include <stdbool.h>

/* The most classes of a table. */
enum { FL_TABLE_CLASSES_MAX = 10000 };

/* All texts are borrowed during the call. */
typedef struct fl_table_options {
    const char *path[2]; /* by fl_split; NULL or "": this split is empty */
    /* Columns: the name in the first line, or a number from 1. Where all are numbers, the file has
     * no line of names. JSONL has names only */
    const char *text;
    const char *pair;      /* NULL: one text a sample */
    const char *label;     /* NULL: no labels, every class is -1 */
    const char *tokenizer; /* the folder that fl_tokenizer_open reads */
    int64_t max_tokens;    /* of a sample, special ones included; the longer text is cut first */
    bool types;            /* samples are [T, 2] */
    /* [n_labels] the label of each class; NULL: the training file's labels, sorted. A label that
     * is not among them is an error */
    const char *const *labels;
    int n_labels;
    const char *cache; /* a folder for tokenized rows, made where it is missing; NULL: none */
    /* Class -1 where a file has no column `label`, or a row a label that is not among `labels` */
    bool labels_optional;
} fl_table_options;

typedef struct fl_table_info {
    int32_t n_ids;             /* ids are 0 .. n_ids - 1 */
    int n_classes;             /* 0: no labels */
    const char *const *labels; /* [n_classes] as the file spells them; borrowed */
    int64_t n_rows, n_tokens;  /* of both splits */
    int64_t took_us;           /* from the files to the tokens */
    bool from_cache;           /* they were tokenized by an earlier run */
} fl_table_info;

/* Open both files, tokenize all rows with the processors that the process may use, and close the
 * files. Where `cache` has the tokens of the same tables, they are read instead; a file there that
 * is damaged is reported and made again.
 * Returns  FL_EIO, FL_EFORMAT, FL_EINVAL with the field of the job, the file, the line, what was
 *          found and what is allowed; FL_ENOTSUP for a tokenizer of another kind; FL_ENOMEM
 * info     may be NULL; borrowed from the data set
 * Threads  any. The arrays do not change afterwards, so forked workers share them */
fl_status fl_dataset_table_open(const fl_table_options *options, fl_dataset *out,
                                fl_table_info *info) FL_MUST_CHECK;

/* The facts of a data set of this kind, borrowed; NULL for one of another kind. */
const fl_table_info *fl_dataset_table_info(const fl_dataset *dataset);

#endif
