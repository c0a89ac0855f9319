/* The data set of kind squad: questions about contexts, whose answers are spans of them. A sample
 * is one window (windows.h): the ids of its tokens, without padding, FL_I32 [T, 1], or [T, 2] with
 * the token types in column 1. Its two targets are the rows where the answer begins and ends.
 * docs/data.md describes the files. */
#ifndef FL_DATA_SQUAD_SQUAD_DATASET_H
#define FL_DATA_SQUAD_SQUAD_DATASET_H

#include "data/squad/windows.h"

#include <frostline/dataset.h>

/* All texts are borrowed during the call. */
typedef struct fl_squad_options {
    const char *path[2];   /* by fl_split; NULL or "": this split is empty */
    const char *tokenizer; /* the folder that fl_tokenizer_open reads */
    int64_t max_tokens;    /* of a window, special ones included */
    int64_t stride;        /* tokens of a context that two windows share */
    bool types;            /* samples are [T, 2] */
    const char *cache;     /* a folder for windows, made where it is missing; NULL: none */
} fl_squad_options;

typedef struct fl_squad_info {
    int32_t n_ids;       /* ids are 0 .. n_ids - 1 */
    int64_t n_questions; /* of both splits; those that were left out are not counted */
    int64_t n_left_out;  /* training questions whose answers do not stand in their place */
    int64_t n_windows, n_tokens;
    bool impossible; /* some question of either split has no answer: the rules of SQuAD 2.0 */
    int64_t took_us; /* from the files to the windows */
    bool from_cache; /* they were made by an earlier run */
} fl_squad_info;

/* Open both files, tokenize them with the processors that the process may use, and close them.
 * Where `cache` has the windows of the same files, they are read instead; a file there that is
 * damaged is reported and made again.
 * Returns  FL_EIO, FL_EFORMAT, FL_EINVAL with the field of the job, the file, the place, what was
 *          found and what is allowed; FL_ENOTSUP for a tokenizer of another kind; FL_ENOMEM
 * info     may be NULL
 * Threads  any. The arrays do not change afterwards, so forked workers share them */
fl_status fl_dataset_squad_open(const fl_squad_options *options, fl_dataset *out,
                                fl_squad_info *info) FL_MUST_CHECK;

/* The facts of a data set of this kind, a split of it, and what stands around its texts, borrowed;
 * NULL for a data set of another kind. */
const fl_squad_info *fl_dataset_squad_info(const fl_dataset *dataset);
const fl_squad_split *fl_dataset_squad_split(const fl_dataset *dataset, fl_split split);
const fl_token_frame *fl_dataset_squad_frame(const fl_dataset *dataset);

#endif
