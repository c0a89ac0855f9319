/* Where a kernel that drops values finds the key of its mask: fl_mask in frostline/kernels.h. */
#ifndef FL_DEVICE_CUDA_KERNELS_MASK_CUH
#define FL_DEVICE_CUDA_KERNELS_MASK_CUH

#include "device/random/philox.h"

#include <frostline/kernels.h>

/* A launch's parameter: captured launches keep it, and the memory behind it changes. */
struct mask_source {
    const uint64_t *epoch_key_device; /* NULL: epoch_key */
    uint64_t epoch_key;
    int32_t layer, stream;
};

static inline mask_source mask_source_of(const fl_mask *m)
{
    mask_source s = {m->epoch_key_device, fl__epoch_key64(m->seed, m->epoch), m->layer, m->stream};
    return s;
}

static __device__ __forceinline__ uint64_t key_of(const mask_source &s)
{
    uint64_t epoch_key = s.epoch_key_device == nullptr ? s.epoch_key : *s.epoch_key_device;
    return fl__mask_key64(epoch_key, s.layer, s.stream);
}

#endif
