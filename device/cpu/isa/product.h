/* Small products on operands that lie in the cache as they are: attention's. Large ones are packed
 * and blocked in gemm.c. */
#ifndef FL_DEVICE_CPU_ISA_PRODUCT_H
#define FL_DEVICE_CPU_ISA_PRODUCT_H

#include "device/cpu/isa/simd.h"

#include <stdbool.h>

/* y[i * y_row + j] (+)= sum over k < depth of a[i * a_row + k * a_k] * b[k * b_k + j], j < cols. Of
 * each row of b, whole vectors may be read. */
typedef struct product {
    const float *a;
    int64_t a_row, a_k;
    const float *b;
    int64_t b_k, depth;
    float *y;
    int64_t y_row, cols;
    bool add; /* to y */
} product;

/* For rows i < m. */
void FL_ISA_NAME(multiply)(int64_t m, product p);

#endif
