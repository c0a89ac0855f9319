/* Column sums are taken over chunks of rows, then over the chunks: the same bits every time. */
#ifndef FL_DEVICE_CUDA_KERNELS_PARTS_CUH
#define FL_DEVICE_CUDA_KERNELS_PARTS_CUH

#include "device/cuda/kernels/launch.cuh"

enum { CHUNK_ROWS = 64 };

/* sums[i] += the i-th entry of each of n_parts rows of n, in their order. */
static __global__ void add_parts_kernel(const float *parts, int64_t n_parts, int64_t n,
                                        int64_t stride, float *sums)
{
    int64_t i = element_here();
    if (i < n) {
        float total = sums[i];
        for (int64_t p = 0; p < n_parts; p++) {
            total += parts[p * stride + i];
        }
        sums[i] = total;
    }
}

#endif
