/* What the kernels that work on lists of tensors take. Plain values, for C and for CUDA C. */
#ifndef FL_DEVICE_UPDATES_H
#define FL_DEVICE_UPDATES_H

#include <stdint.h>

/* Constants of one optimizer step, of all its tensors. */
typedef struct fl_adamw_step {
    float lr, beta1, beta2, epsilon;
    float correction1, correction2; /* 1 - beta^t */
    float grad_scale;               /* from clipping */
} fl_adamw_step;

typedef struct fl_sgd_step {
    float lr, momentum, grad_scale;
} fl_sgd_step;

/* One tensor of an optimizer step; g is only read. */
typedef struct fl_update {
    float *w;         /* [n] */
    const float *g;   /* [n] */
    float *moment[2]; /* [n] each: AdamW's two, or SGD's momentum and NULL */
    int64_t n;
    float weight_decay;
    float rate; /* factor on the step's learning rate; 1 for all of it */
} fl_update;

/* One sum of squares: *out is overwritten. */
typedef struct fl_square_sum {
    const float *x; /* [n] */
    int64_t n;
    double *out; /* device memory */
} fl_square_sum;

#endif
