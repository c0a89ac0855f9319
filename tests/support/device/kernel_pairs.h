/* Every kernel on two devices, over many shapes: what they compute must agree. Unlike kernel_cases,
 * which compares bits, this is for devices that round in another order. */
#ifndef FL_TESTS_SUPPORT_DEVICE_KERNEL_PAIRS_H
#define FL_TESTS_SUPPORT_DEVICE_KERNEL_PAIRS_H

#include "device/device.h"

/* Samples of a micro-batch, and widths. */
typedef struct pair_shape {
    const char *name;
    int64_t n_samples;
    int32_t offsets[6]; /* [n_samples + 1] */
    int64_t heads, width;
} pair_shape;

/* NULL behind the last: one token, empty samples, no token at all, sizes that fill no tile, ... */
const pair_shape *pair_shape_at(int index);

/* The device table's name of a kernel, and the variant of its call; NULL behind the last. */
const char *pair_kernel_at(int index);

/* Whether its call depends on the shape. */
bool pair_kernel_has_shapes(int index);

/* Run kernel `index` on `got` with activations of `dtype`, and on `want`, a CPU device, with the
 * same values in fp32. Every array of the call must agree within
 * `tolerance` of the largest value of want's array (or of 1). FL_EINTERNAL names the array and the
 * element. */
fl_status pair_run(int index, const pair_shape *shape, fl_dtype dtype, fl_device *got,
                   fl_device *want, double tolerance) FL_MUST_CHECK;

#endif
