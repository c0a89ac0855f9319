/* A CUDA device over a plugin, for tests. Include after cmocka.h. */
#ifndef FL_TESTS_SUPPORT_DEVICE_CUDA_DEVICE_H
#define FL_TESTS_SUPPORT_DEVICE_CUDA_DEVICE_H

#include "device/cuda/cuda.h"

enum { CUDA_BUDGET = 1 << 20 };

static inline fl_device *device_of(const fl_cuda_plugin *plugin)
{
    fl_device *d = NULL;
    if (fl_device_cuda_create(&(fl_cuda_options){.plugin = plugin, .budget_bytes = CUDA_BUDGET},
                              &d) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

#endif
