/* CUDA C for a C++ compiler: included before each file of device/cuda/kernels. Only what these
 * files use is here. */
#ifndef FL_TESTS_SHIM_CUDA_C_H
#define FL_TESTS_SHIM_CUDA_C_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define _Noreturn [[noreturn]]
#include "tests/shim/capture.h"
#include "tests/shim/parts.h"
#undef _Noreturn

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define FL_UNROLL

#define threadIdx (shim_thread_idx())
#define blockIdx (shim_block_idx())
#define blockDim (shim_block_dim())
#define gridDim (shim_grid_dim())

/* FL_SHARED(float, tile, [32][33]) is __shared__ float tile[32][33]. */
#define FL_SHARED(type, name, size)                                                                \
    typedef type name##_array size;                                                                \
    name##_array &name =                                                                           \
        *(name##_array *)shim_shared(__FILE__, __LINE__, #name, sizeof(name##_array))

#define __syncthreads() shim_sync_block(__FILE__, __LINE__)
#define __syncwarp() ((void)shim_sync_warp(__FILE__, __LINE__, SHIM_SYNC, 0xFFFFFFFFu, 0, 0))
#define __ballot_sync(mask, value)                                                                 \
    ((unsigned)shim_sync_warp(__FILE__, __LINE__, SHIM_BALLOT, mask, (value) ? 1 : 0, 0))
#define __popc(bits) __builtin_popcount(bits)
#define __shfl_xor_sync(mask, value, lanes)                                                        \
    shim_shuffle(__FILE__, __LINE__, SHIM_XOR, mask, value, lanes)
#define __shfl_down_sync(mask, value, lanes)                                                       \
    shim_shuffle(__FILE__, __LINE__, SHIM_DOWN, mask, value, lanes)
#define __shfl_sync(mask, value, lane)                                                             \
    shim_shuffle(__FILE__, __LINE__, SHIM_FROM, mask, value, lane)

#define mma_bf16(sum, a, b) shim_mma(__FILE__, __LINE__, sum, a, b)
#define has_bf16_tensor_cores() shim_has_tensor_cores()

template <typename T>
static inline T shim_shuffle(const char *file, int line, shim_warp_op op, uint32_t mask, T value,
                             int argument)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = shim_sync_warp(file, line, op, mask, bits, argument);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

/* The old value. Threads of a launch run one at a time, so a load and a store will do. */
template <typename T> __attribute__((no_sanitize("thread"), noinline)) T atomicAdd(T *at, T value)
{
    shim_access(at, sizeof *at, SHIM_ATOMIC);
    T old = *at;
    *at = old + value;
    return old;
}

static inline float __uint_as_float(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

/* kernel<<<grid, block, 0, stream>>>(arguments...) */
#define launch(...) shim_launch_kernel(__FILE__, __LINE__, __VA_ARGS__)

template <typename... P, typename... A>
static inline int shim_launch_kernel(const char *file, int line, void (*kernel)(P...), dim3 grid,
                                     unsigned block, void *stream, A... arguments)
{
    auto call = [=]() { kernel(arguments...); };
    return shim_launch_on(
        stream, file, line, shim_dim{grid.x, grid.y, grid.z}, shim_dim{block, 1, 1},
        [](void *c) { (*static_cast<decltype(call) *>(c))(); }, &call, sizeof call);
}

#endif
