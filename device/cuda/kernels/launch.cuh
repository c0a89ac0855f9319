/* How the kernels are launched and what they share. Two compilers read these files: nvcc, and for
 * tests a C++ compiler with tests/shim/cuda_c.h before them, which runs a launch on the host. */
#ifndef FL_DEVICE_CUDA_KERNELS_LAUNCH_CUH
#define FL_DEVICE_CUDA_KERNELS_LAUNCH_CUH

#include <frostline/tensor.h>

#ifdef __CUDACC__

/* FL_SHARED(float, tile, [32][33]) declares an array of the block. */
#define FL_SHARED(type, name, size) __shared__ type name size

/* Before a loop whose arrays must stay in registers. */
#define FL_UNROLL _Pragma("unroll")

/* Run a kernel with blocks of `threads`; 0 or the runtime's error code. A grid without blocks does
 * nothing. */
template <typename... P, typename... A>
static int launch(void (*kernel)(P...), dim3 grid, unsigned threads, void *stream, A... arguments)
{
    if (grid.x == 0 || grid.y == 0) {
        return 0;
    }
    kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
    return static_cast<int>(cudaGetLastError());
}

/* Whether the device that the thread chose last multiplies bf16 values by tensor cores. */
static inline bool has_bf16_tensor_cores(void)
{
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 8;
}

/* sum += a b, by a warp together: mma.m16n8k16 of bf16 values, fp32 sums. How the elements lie in
 * the lanes: attention_tensor.cuh. Does nothing on a device without bf16 tensor cores. */
static __device__ __forceinline__ void mma_bf16(float sum[4], const uint32_t a[4],
                                                const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)sum, (void)a, (void)b;
#endif
}

#endif

enum { WARP = 32 };
#define ALL_LANES 0xFFFFFFFFu

/* Return the error of a launch, if it had one. */
#define LAUNCH_TRY(call)                                                                           \
    do {                                                                                           \
        int launch_error_ = (call);                                                                \
        if (launch_error_ != 0) {                                                                  \
            return launch_error_;                                                                  \
        }                                                                                          \
    } while (0)

static inline __host__ __device__ int64_t parts_of(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

/* ---- elements: computed in fp32, stored as fp32 or as bf16 ---- */

struct bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float load(const float *p)
{
    return *p;
}

static __device__ __forceinline__ float load(const bf16 *p)
{
    return __uint_as_float((uint32_t)p->bits << 16);
}

static __device__ __forceinline__ void store(float *p, float x)
{
    *p = x;
}

/* To the nearest, ties to even; a NaN stays one. */
static __device__ __forceinline__ void store(bf16 *p, float x)
{
    uint32_t bits = __float_as_uint(x);
    uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    p->bits = (uint16_t)((x != x ? bits | 0x400000u : rounded) >> 16);
}

/* ---- several elements of a thread, by loads and stores of 16 bytes where they are aligned ---- */

template <typename T, int N> struct alignas(16) element_pack {
    T at[N];
    static_assert(N * sizeof(T) % 16 == 0, "it is loaded as a whole");
};

static __device__ __forceinline__ bool is_aligned(const void *p)
{
    return (reinterpret_cast<uintptr_t>(p) & 15u) == 0;
}

/* How many of the N elements from `first` on there are. */
template <int N> static __device__ __forceinline__ int count_here(int64_t first, int64_t n)
{
    int64_t left = n - first;
    return left >= N ? N : left > 0 ? (int)left : 0;
}

/* x[0] .. x[n - 1]; the others stay as they are. */
template <int N, typename T>
static __device__ __forceinline__ void load_pack(const T *p, int n, float (&x)[N])
{
    if (n == N && is_aligned(p)) {
        const element_pack<T, N> pack = *reinterpret_cast<const element_pack<T, N> *>(p);
        FL_UNROLL
        for (int i = 0; i < N; i++) {
            x[i] = load(&pack.at[i]);
        }
        return;
    }
    FL_UNROLL
    for (int i = 0; i < N; i++) {
        if (i < n) {
            x[i] = load(p + i);
        }
    }
}

template <int N, typename T>
static __device__ __forceinline__ void store_pack(T *p, int n, const float (&x)[N])
{
    if (n == N && is_aligned(p)) {
        element_pack<T, N> pack;
        FL_UNROLL
        for (int i = 0; i < N; i++) {
            store(&pack.at[i], x[i]);
        }
        *reinterpret_cast<element_pack<T, N> *>(p) = pack;
        return;
    }
    FL_UNROLL
    for (int i = 0; i < N; i++) {
        if (i < n) {
            store(p + i, x[i]);
        }
    }
}

/* What a launch is compiled for: `then` sees the type of the activations as T. A device that gets
 * another type refuses it before the launch. */
#define FOR_DTYPE(dtype, then)                                                                     \
    do {                                                                                           \
        if ((dtype) == FL_BF16) {                                                                  \
            typedef bf16 T;                                                                        \
            then;                                                                                  \
        } else {                                                                                   \
            typedef float T;                                                                       \
            then;                                                                                  \
        }                                                                                          \
    } while (0)

/* ---- sums over a warp and over a block: the same bits in every thread, every time ---- */

template <typename V> static __device__ __forceinline__ V warp_sum(V x)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, lanes);
    }
    return x;
}

/* part: of the block, [WARP]. All threads of the block call it; afterwards `part` may be used
 * again.
 */
template <typename V> static __device__ __forceinline__ V block_sum(V x, V *part)
{
    unsigned warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) {
        part[warp] = x;
    }
    __syncthreads();
    V total = part[0];
    for (unsigned i = 1; i < n_warps; i++) {
        total += part[i];
    }
    __syncthreads();
    return total;
}

/* The element of a thread in a launch of one thread for each. */
static __device__ __forceinline__ int64_t element_here(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

enum { PASS_THREADS = 256, PASS_ELEMENTS = 8 /* of a thread, where each is treated by itself */ };

static inline dim3 blocks_for(int64_t n)
{
    return dim3((unsigned)parts_of(n, PASS_THREADS));
}

/* Of a launch of one thread for PASS_ELEMENTS. */
static inline dim3 blocks_of_passes(int64_t n)
{
    return blocks_for(parts_of(n, PASS_ELEMENTS));
}

#endif
