/* The checks of a loss: what it adds up, and its gradient against central differences. */
#ifndef FL_NN_CHECK_LOSS_H
#define FL_NN_CHECK_LOSS_H

#include "nn/model.h"

#include <frostline/check.h>

/* shape      [n_samples] what the last layer gives for each sample
 * targets    of those samples, with their offsets
 * n_failed   is added to
 * Returns    FL_ENOMEM; findings go to options->seen */
fl_status fl__check_loss(const fl_model *model, const fl_shape *shape, const fl_tensor *targets,
                         const fl_check_options *options, int *n_failed) FL_MUST_CHECK;

#endif
