/* Lines of a text as samples of their own, to measure how well a language model predicts each. */
#ifndef FL_DATA_TEXT_LINES_DATASET_H
#define FL_DATA_TEXT_LINES_DATASET_H

#include "data/text/text_dataset.h"

/* A sample: a line, or a part of one that has more tokens than a block. */
typedef struct fl_line_part {
    int64_t line, n_lines; /* from 0; of the file */
    int64_t part, n_parts; /* from 0; of the line */
    int64_t n_tokens;      /* of the part: those that are targets, and the first one of the line */
    int64_t n_targets;     /* 0: a line of no token, or of one, which nothing predicts */
} fl_line_part;

/* Read the files, plain or gzip, and tokenize each line alone, without special tokens and without
 * its line feed. Sample i is line i as long as no line before it has parts. A line of n tokens has
 * the n - 1 targets from its second token on; options.max_tokens of them make a part.
 * Returns  as fl_dataset_text_open; FL_EFORMAT for a line that is too long or no UTF-8
 * Threads  any; as above */
fl_status fl_dataset_lines_open(const fl_text_options *options, fl_dataset *out) FL_MUST_CHECK;

/* What a sample of the data set is; false: the data set is of another kind. */
bool fl_dataset_line_part(const fl_dataset *dataset, fl_split split, int64_t id, fl_line_part *out);

#endif
