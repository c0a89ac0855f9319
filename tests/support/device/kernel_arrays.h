/* Arguments of kernels, in the memory of a rig's device. After a failure, which r->status has,
 * these functions do nothing. */
#ifndef FL_TESTS_SUPPORT_DEVICE_KERNEL_ARRAYS_H
#define FL_TESTS_SUPPORT_DEVICE_KERNEL_ARRAYS_H

#include "support/device/kernel_cases.h"

/* Three samples of different length; widths that fill no vector. */
enum { SAMPLES = 3, TOKENS = 21, HEADS = 2, WIDTH = 22, OUT = 19 };

/* Device memory with a copy of `from`, waited for: the caller's memory may go. */
void *kernel_array(kernel_rig *r, const void *from, size_t size_bytes);

/* n floats in [-1, 1), one in eight of them too small to be normal. */
float *kernel_floats(kernel_rig *r, int64_t n);
double *kernel_doubles(kernel_rig *r, int64_t n);
int32_t *kernel_ints(kernel_rig *r, int64_t n, int32_t below);

fl_weight kernel_weight(kernel_rig *r, int64_t rows, int64_t cols);
fl_offsets kernel_offsets(kernel_rig *r);
fl_mask kernel_mask(kernel_rig *r);

#endif
