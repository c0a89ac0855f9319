/* Samples of ids for tests of whole runs: sequences of tokens that follow a rule, and a transformer
 * that predicts the next one, with everything that text models have: learned positions, RMSNorm,
 * GELU by erf, dropout of attention's probabilities. */
#ifndef FL_TESTS_SUPPORT_DATA_TEXT_H
#define FL_TESTS_SUPPORT_DATA_TEXT_H

#include <frostline.h>

enum { TEXT_IDS = 23, TEXT_LONGEST = 40 };

/* n training and n / 4 test samples of 1 to TEXT_LONGEST tokens, each with its next token as
 * target. Free with fl_dataset_destroy. */
fl_status text_dataset(int64_t n, fl_dataset *out) FL_MUST_CHECK;

/* n_rows: of the embedding's table. */
fl_status text_model(int64_t blocks, float dropout, int64_t n_rows, fl_model **out) FL_MUST_CHECK;

#endif
