/* The checks of one layer, in the order in which they are made. */
#ifndef FL_NN_CHECK_LAYER_H
#define FL_NN_CHECK_LAYER_H

#include "nn/check/harness.h"

typedef struct fl__layer_check {
    fl__harness h;
    const fl_check_options *options;
    bool want_input; /* somebody needs the gradient of the input */
    int n_failed;
    float *out[2]; /* two results to compare, in the samples' order */
    float *grad_in[2];
    float *grad[FL__CHECK_PARAMS_MAX]; /* of the whole batch, for f */
    float *whole_grad_in;
    double error; /* of the gradient that was just compared */
} fl__layer_check;

/* Check a layer of a model alone and report each result to options->seen.
 * shape, input   as fl__harness_init takes them
 * want_input     whether the gradient of the input is checked; raw samples need none
 * n_failed       is added to
 * Returns        FL_ENOMEM, FL_EINVAL if the layer cannot be checked at all */
fl_status fl__check_layer(const fl_model *model, int layer, const fl_shape *shape, int n_samples,
                          const void *input, bool want_input, const fl_check_options *options,
                          int *n_failed) FL_MUST_CHECK;

/* gradient.c: the gradient that backward gave for values v [n] (the input's, or a parameter's)
 * against central differences. FL_EINVAL with a sentence that tells where they differ.
 * index     of the parameter; -1: the input
 * scale     typical size of a step of one value, by that of the others
 * cols      of the tensor, for messages */
fl_status fl__check_gradient(fl__layer_check *c, int index, float *v, const float *grad, int64_t n,
                             int64_t cols, double scale) FL_MUST_CHECK;

#endif
