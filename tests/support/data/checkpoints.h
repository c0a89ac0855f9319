/* Checkpoints of no run: valid values, and folders with them. */
#ifndef FL_TESTS_SUPPORT_DATA_CHECKPOINTS_H
#define FL_TESTS_SUPPORT_DATA_CHECKPOINTS_H

#include "control/checkpoint/manifest/manifest.h"

/* A valid checkpoint after `step` steps of a run with three layers on two workers, whose other
 * values depend on `seed`; free it with destroy_checkpoint. */
fl_checkpoint *make_checkpoint(int64_t step, unsigned seed);
void destroy_checkpoint(fl_checkpoint *checkpoint);

/* Write it and its files, of some hundred bytes each, into the folder DIR/step-... */
void write_checkpoint(const char *dir, fl_checkpoint *checkpoint);

#endif
