#include "device/cuda/kernels/launch.cuh"
#include "tests/shim/faults.h"

enum { THREADS = 64 };

static __global__ void sum_of_block(const float *x, float *y, bool skip_barrier)
{
    FL_SHARED(float, part, [THREADS]);
    unsigned t = threadIdx.x;
    part[t] = x[blockIdx.x * THREADS + t];
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (half == THREADS / 2 || !skip_barrier) {
            __syncthreads();
        }
        if (t < half) {
            part[t] += part[t + half];
        }
    }
    __syncthreads();
    y[blockIdx.x * THREADS + t] = part[0];
}

int fault_block_sum(const float *x, float *y, int blocks, bool skip_barrier)
{
    return launch(sum_of_block, dim3((unsigned)blocks), THREADS, nullptr, x, y, skip_barrier);
}

static __global__ void warp_exchange(const float *x, float *y, bool skip_barrier)
{
    FL_SHARED(float, part, [WARP]);
    unsigned t = threadIdx.x;
    part[t] = x[t];
    if (!skip_barrier) {
        __syncwarp();
    }
    y[t] = part[WARP - 1 - t];
}

int fault_warp_exchange(const float *x, float *y, bool skip_barrier)
{
    return launch(warp_exchange, dim3(1), WARP, nullptr, x, y, skip_barrier);
}

static __global__ void copy(const float *x, float *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        y[i] = x[i];
    }
}

int fault_copy(const float *x, float *y, int64_t n, int64_t beyond)
{
    unsigned blocks = (unsigned)((n + beyond + THREADS - 1) / THREADS);
    return launch(copy, dim3(blocks), THREADS, nullptr, x, y, n + beyond);
}

static __global__ void divergent_barrier(int first_late)
{
    if ((int)threadIdx.x >= first_late) {
        return;
    }
    __syncthreads();
}

int fault_divergent_barrier(int first_late)
{
    return launch(divergent_barrier, dim3(1), THREADS, nullptr, first_late);
}

static __global__ void divergent_shuffle(void)
{
    if (threadIdx.x % 2 == 0) {
        (void)__shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
    }
}

int fault_divergent_shuffle(void)
{
    return launch(divergent_shuffle, dim3(1), WARP, nullptr);
}

static __global__ void read_unwritten(float *y, int unwritten)
{
    FL_SHARED(float, part, [THREADS]);
    int t = (int)threadIdx.x;
    if (t < THREADS - unwritten) {
        part[t] = 1.0f;
    }
    __syncthreads();
    y[t] = part[THREADS - 1 - t];
}

int fault_unwritten(float *y, int unwritten)
{
    return launch(read_unwritten, dim3(1), THREADS, nullptr, y, unwritten);
}

static __global__ void read_beyond(float *y, int beyond)
{
    FL_SHARED(float, part, [THREADS]);
    int t = (int)threadIdx.x;
    part[t] = 1.0f;
    __syncthreads();
    y[t] = part[t + beyond];
}

int fault_shared_bounds(float *y, int beyond)
{
    return launch(read_beyond, dim3(1), THREADS, nullptr, y, beyond);
}

static __global__ void count(int *sum, bool atomic)
{
    if (atomic) {
        atomicAdd(sum, 1);
    } else {
        *sum += 1;
    }
}

int fault_count(int *sum, bool atomic)
{
    return launch(count, dim3(2), THREADS, nullptr, sum, atomic);
}

static __global__ void write_after_read(float *y, int writer)
{
    float x = y[0] + 1.0f;
    if ((int)threadIdx.x == writer) {
        y[0] = x;
    }
}

int fault_write_after_read(float *y, int writer)
{
    return launch(write_after_read, dim3(1), THREADS, nullptr, y, writer);
}

static __global__ void shuffles(const double *x, double *y, int from)
{
    unsigned t = threadIdx.x;
    y[t] = __shfl_xor_sync(0xFFFFFFFFu, x[t], from);
    y[WARP + t] = __shfl_down_sync(0xFFFFFFFFu, x[t], from);
    y[2 * WARP + t] = __shfl_sync(0xFFFFFFFFu, x[t], from);
    y[3 * WARP + t] = __popc(__ballot_sync(0xFFFFFFFFu, (int)t >= from));
}

int fault_shuffles(const double *x, double *y, int from)
{
    return launch(shuffles, dim3(1), WARP, nullptr, x, y, from);
}

/* Elements (row, column) and (row, column + 1) of a matrix as one word. */
static __device__ uint32_t pair_at(const float *x, int width, int row, int column, bool down)
{
    bf16 low, high;
    store(&low, x[row * width + column]);
    store(&high, down ? x[(row + 1) * width + column] : x[row * width + column + 1]);
    return (uint32_t)low.bits | (uint32_t)high.bits << 16;
}

static __global__ void tensor_product(const float *a, const float *b, float *sum, int absent)
{
    int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t left[4], right[2];
    float sums[4];
    if (lane == absent) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        left[i] = pair_at(a, 16, g + i % 2 * 8, 2 * t + i / 2 * 8, false);
        sums[i] = sum[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    }
    for (int i = 0; i < 2; i++) {
        right[i] = pair_at(b, 8, 2 * t + i * 8, g, true);
    }
    mma_bf16(sums, left, right);
    for (int i = 0; i < 4; i++) {
        sum[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
    }
}

int fault_tensor_product(const float *a, const float *b, float *sum, int absent)
{
    return launch(tensor_product, dim3(1), WARP, nullptr, a, b, sum, absent);
}
