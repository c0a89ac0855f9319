/* The activations and their slopes, in fp32, within 1e-6 of PyTorch's. */
#ifndef FL_DEVICE_CUDA_KERNELS_ACTIVATION_CUH
#define FL_DEVICE_CUDA_KERNELS_ACTIVATION_CUH

#include "device/cuda/kernels/launch.cuh"

#include <frostline/kernels.h>

/* f(x) and f'(x). */
struct activated {
    float y, slope;
};

/* x s with s = 1 / (1 + e^(-2 u)) and u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form of GELU
 * with one exponential. Beyond 10, s is 0 or 1 to the last bit. */
static __device__ __forceinline__ activated gelu_tanh(float x)
{
    const float two_u = 1.5957691216f;
    float near = fminf(fmaxf(x, -10.0f), 10.0f), square = near * near;
    float e = expf(-two_u * near * (1.0f + 0.044715f * square));
    float s = 1.0f / (1.0f + e);
    float slope_of_2u = two_u * (1.0f + 3.0f * 0.044715f * square);
    return activated{x * s, s + (near * s) * (e * s) * slope_of_2u};
}

static __device__ __forceinline__ activated gelu_erf(float x)
{
    /* erfc keeps its accuracy where 1 + erf would cancel. */
    float share = 0.5f * erfcf(-0.7071067812f * x);
    float density = 0.3989422804f * expf(-0.5f * x * x);
    return activated{x * share, share + x * density};
}

static __device__ __forceinline__ activated silu(float x)
{
    float near = fmaxf(x, -87.0f), e = expf(-near), s = 1.0f / (1.0f + e);
    return activated{x * s, s + (near * s) * (e * s)};
}

static __device__ __forceinline__ activated activation_of(fl_activation kind, float x)
{
    switch (kind) {
    case FL_ACT_GELU_TANH:
        return gelu_tanh(x);
    case FL_ACT_GELU_ERF:
        return gelu_erf(x);
    case FL_ACT_TANH: {
        float y = tanhf(x);
        return activated{y, 1.0f - y * y};
    }
    case FL_ACT_SILU:
        return silu(x);
    case FL_ACT_NONE:
        break;
    }
    return activated{x, 1.0f};
}

#endif
