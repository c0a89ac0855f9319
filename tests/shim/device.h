/* A device whose kernels are the CUDA ones, run by the shim. */
#ifndef FL_TESTS_SHIM_DEVICE_H
#define FL_TESTS_SHIM_DEVICE_H

#include "device/device.h"

/* A CPU device in everything but its kernels. A launch that the shim stops fails with FL_EINTERNAL
 * and the shim's line. Its memory is host memory, and no other memory than its own may be given to
 * kernels. One at a time. */
fl_status shim_device_create(fl_device **out) FL_MUST_CHECK;

#endif
