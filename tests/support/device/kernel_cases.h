/* One call of every kernel, on any device: to compare two devices, or to make each call fail. */
#ifndef FL_TESTS_SUPPORT_DEVICE_KERNEL_CASES_H
#define FL_TESTS_SUPPORT_DEVICE_KERNEL_CASES_H

#include "device/device.h"

/* Device memory of one case, with what the host put into it. */
enum { CASE_ARRAYS_MAX = 24 };

typedef struct kernel_rig {
    fl_device *device; /* borrowed */
    fl_stream *stream;
    int n_arrays;
    struct {
        void *memory;
        size_t size_bytes;
    } array[CASE_ARRAYS_MAX];
    fl_status status; /* of the first failure */
} kernel_rig;

typedef struct kernel_case {
    const char *kernel; /* its name in the device table */
    fl_status (*run)(kernel_rig *rig);
} kernel_case;

/* NULL behind the last. */
const kernel_case *kernel_case_at(int index);

/* Run a case: its arrays are filled with random numbers, denormals among them, the kernel runs, and
 * everything comes back. *out: all arrays one after another, which the caller frees with fl_free;
 * untouched on failure. */
fl_status kernel_case_run(const kernel_case *c, fl_device *device, fl_stream *stream,
                          unsigned char **out, size_t *size_bytes);

#endif
