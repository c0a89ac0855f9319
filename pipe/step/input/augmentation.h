/* How training samples are augmented once blocks are frozen: the cache asks for the same samples in
 * every epoch. Pure. */
#ifndef FL_PIPE_STEP_INPUT_AUGMENTATION_H
#define FL_PIPE_STEP_INPUT_AUGMENTATION_H

#include <frostline/job.h>

/* The epoch by which a sample is augmented: with cache.augment freeze always the same one, once
 * blocks are frozen. */
int64_t fl_augment_epoch(const fl_job *job, int F, int64_t epoch);

/* Whether samples are augmented: with cache.augment stop only until blocks are frozen. */
bool fl_augment_applies(const fl_job *job, int F);

#endif
