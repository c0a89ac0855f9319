/* Checkpoints of no run: valid values, and folders with them. */
#ifndef FL_TESTS_SUPPORT_DATA_CHECKPOINTS_H
#define FL_TESTS_SUPPORT_DATA_CHECKPOINTS_H

#include "control/checkpoint/manifest/manifest.h"

/* A valid checkpoint after `step` steps of a run with three layers on two workers, whose other
 * values depend on `seed`; free it with destroy_checkpoint. */
fl_checkpoint *make_checkpoint(int64_t step, unsigned seed);
void destroy_checkpoint(fl_checkpoint *checkpoint);

/* The same with two files in its list, which are nowhere. */
fl_checkpoint *make_listed_checkpoint(int64_t step, unsigned seed);

/* Everything but the job, which is a pointer: that one by its text. */
void assert_same_checkpoint(const fl_checkpoint *a, const fl_checkpoint *b);

/* Write it and its files, of some hundred bytes each, into the folder DIR/step-... */
void write_checkpoint(const char *dir, fl_checkpoint *checkpoint);

#endif
