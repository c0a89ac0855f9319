/* The data set of kind text: a raw text, tokenized when it is opened and cut into blocks. A sample
 * is a block of T ids, FL_I32 [T, 1], and its T targets are the ids that follow each of them: what
 * a language model learns. docs/data.md describes the files. */
#ifndef FL_DATA_TEXT_TEXT_DATASET_H
#define FL_DATA_TEXT_TEXT_DATASET_H

#include <frostline/dataset.h>

enum { FL_TEXT_TOKENS_MAX = 1 << 20 }; /* of a block */

/* All texts are borrowed during the call. */
typedef struct fl_text_options {
    const char *path[2];   /* by fl_split; NULL or "": this split is empty */
    const char *tokenizer; /* the folder that fl_tokenizer_open reads */
    int64_t max_tokens;    /* of a block, 1 to FL_TEXT_TOKENS_MAX; only a file's last is shorter */
} fl_text_options;

typedef struct fl_text_info {
    int32_t n_ids;       /* ids are 0 .. n_ids - 1 */
    int32_t end_id;      /* of GPT-2's token between two texts, <|endoftext|>; -1: no such token */
    int64_t n_tokens[2]; /* of each split's file */
} fl_text_info;

/* FL_EINVAL without a file, or for blocks of an impossible size. */
fl_status fl__text_check_options(const fl_text_options *options) FL_MUST_CHECK;

/* Read both files, plain or gzip, and tokenize them. Block i of a file has its tokens i T .. i T +
 * T - 1, and the targets one further: every token but the first is a target once.
 * Returns  FL_EIO, FL_EFORMAT with the file, the place, what was found and what is allowed,
 *          FL_EINVAL for options, FL_ENOTSUP for a tokenizer that is not implemented, FL_ENOMEM
 * info     may be NULL
 * Threads  any. The arrays do not change afterwards, so forked workers share them. */
fl_status fl_dataset_text_open(const fl_text_options *options, fl_dataset *out,
                               fl_text_info *info) FL_MUST_CHECK;

/* The facts of a data set of this kind, borrowed; NULL for one of another kind. */
const fl_text_info *fl_dataset_text_info(const fl_dataset *dataset);

#endif
