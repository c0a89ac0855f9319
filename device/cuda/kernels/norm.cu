/* LayerNorm and RMSNorm, a warp for each row. Mean and variance take two sweeps over a row:
 * E[x^2] - E[x]^2 would cancel. */
#include "device/cuda/kernels/parts.cuh"
#include "device/cuda/launches.h"

enum { ROWS_A_BLOCK = 4 };

static dim3 blocks_for_rows(int64_t m)
{
    return dim3((unsigned)parts_of(m, ROWS_A_BLOCK));
}

/* The row of a warp. */
static __device__ __forceinline__ int64_t row_here(void)
{
    return (int64_t)blockIdx.x * ROWS_A_BLOCK + threadIdx.x / WARP;
}

/* ---- forward ---- */

/* Elements of a row that a lane takes at once: 16 bytes. */
template <typename T> struct lane_elements {
    enum { N = 16 / sizeof(T) };
};

/* Write in + residual, if anybody wants it, and return where the row to normalize now stands. Each
 * lane reads later only what it writes here. */
template <typename T>
static __device__ const T *sum_row(const T *in, const T *residual, T *sum, T *y, int64_t n)
{
    enum { N = lane_elements<T>::N };
    T *to = sum != nullptr ? sum : residual != nullptr ? y : nullptr;
    if (to == nullptr || (residual == nullptr && to == in)) {
        return in;
    }
    for (int64_t i = threadIdx.x % WARP * N; i < n; i += WARP * N) {
        int here = count_here<N>(i, n);
        float x[N] = {}, other[N] = {};
        load_pack(in + i, here, x);
        if (residual != nullptr) {
            load_pack(residual + i, here, other);
        }
        FL_UNROLL
        for (int k = 0; k < N; k++) {
            x[k] = residual == nullptr ? x[k] : x[k] + other[k];
        }
        store_pack(to + i, here, x);
    }
    return to;
}

/* The lanes' parts of the sum of a row, or of the squares of its distances from `centre`. */
template <bool SQUARES, typename T>
static __device__ __forceinline__ float row_sum(const T *x, float centre, int64_t n)
{
    enum { N = lane_elements<T>::N };
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % WARP * N; i < n; i += WARP * N) {
        int here = count_here<N>(i, n);
        float v[N] = {};
        load_pack(x + i, here, v);
        FL_UNROLL
        for (int k = 0; k < N; k++) {
            float centred = v[k] - centre;
            sum += k >= here ? 0.0f : SQUARES ? centred * centred : v[k];
        }
    }
    return warp_sum(sum);
}

/* beta NULL: RMSNorm */
template <typename T>
static __global__ void norm_kernel(const T *in, const T *residual, const float *gamma,
                                   const float *beta, float epsilon, T *sum, T *y, float *mean,
                                   float *rstd, int64_t m, int64_t n)
{
    enum { N = lane_elements<T>::N };
    int64_t row = row_here(), lane = threadIdx.x % WARP;
    if (row >= m) {
        return;
    }
    const T *x = sum_row(in + row * n, residual == nullptr ? nullptr : residual + row * n,
                         sum == nullptr ? nullptr : sum + row * n, y + row * n, n);
    float centre = beta == nullptr ? 0.0f : row_sum<false>(x, 0.0f, n) / (float)n;
    float scale = 1.0f / sqrtf(row_sum<true>(x, centre, n) / (float)n + epsilon);
    for (int64_t i = lane * N; i < n; i += WARP * N) {
        int here = count_here<N>(i, n);
        float v[N] = {}, factor[N] = {}, shift[N] = {};
        load_pack(x + i, here, v);
        load_pack(gamma + i, here, factor);
        if (beta != nullptr) {
            load_pack(beta + i, here, shift);
        }
        FL_UNROLL
        for (int k = 0; k < N; k++) {
            float normal = (v[k] - centre) * scale * factor[k];
            v[k] = beta == nullptr ? normal : normal + shift[k];
        }
        store_pack(y + row * n + i, here, v);
    }
    if (lane == 0) {
        if (mean != nullptr) {
            mean[row] = centre;
        }
        if (rstd != nullptr) {
            rstd[row] = scale;
        }
    }
}

static int norm(const fl__cuda_queue *q, const fl_norm_args *a, const float *beta, float *mean)
{
    FOR_DTYPE(a->dtype,
              return launch(norm_kernel<T>, blocks_for_rows(a->m), ROWS_A_BLOCK * WARP, q->stream,
                            (const T *)a->in, (const T *)a->residual, (const float *)a->gamma->data,
                            beta, a->epsilon, (T *)a->sum, (T *)a->y, mean, a->rstd, a->m, a->n));
}

int fl__cuda_layernorm(fl__cuda_queue *q, const fl_norm_args *a)
{
    return norm(q, a, a->beta->data, a->mean);
}

int fl__cuda_rmsnorm(fl__cuda_queue *q, const fl_norm_args *a)
{
    return norm(q, a, nullptr, nullptr);
}

/* ---- backward: gamma and beta ---- */

enum { ROW_GROUPS = 8 };

/* A lane takes lane_elements columns, the warps of a block take turns at the rows of one chunk. The
 * block's sums go to parts [chunk][2][n]: for gamma, then for beta. mean NULL: RMSNorm, whose
 * second half is not written. */
template <typename T>
static __global__ void norm_parts_kernel(const T *grad_y, const T *in, const float *mean,
                                         const float *rstd, float *parts, int64_t m, int64_t n)
{
    enum { N = lane_elements<T>::N };
    FL_SHARED(float, gamma_sums, [ROW_GROUPS][N * WARP]);
    FL_SHARED(float, beta_sums, [ROW_GROUPS][N * WARP]);
    int64_t block_column = (int64_t)blockIdx.x * N * WARP;
    int64_t column = block_column + threadIdx.x % WARP * N;
    int64_t first = (int64_t)blockIdx.y * CHUNK_ROWS;
    int64_t end = first + CHUNK_ROWS < m ? first + CHUNK_ROWS : m;
    int group = (int)threadIdx.x / WARP, here = count_here<N>(column, n);
    float for_gamma[N] = {}, for_beta[N] = {};
    for (int64_t row = first + group; row < end && here > 0; row += ROW_GROUPS) {
        float grad[N] = {}, x[N] = {};
        float centre = mean == nullptr ? 0.0f : mean[row], scale = rstd[row];
        load_pack(grad_y + row * n + column, here, grad);
        load_pack(in + row * n + column, here, x);
        FL_UNROLL
        for (int k = 0; k < N; k++) {
            for_gamma[k] += grad[k] * (x[k] - centre) * scale;
            for_beta[k] += grad[k];
        }
    }
    FL_UNROLL
    for (int k = 0; k < N; k++) {
        gamma_sums[group][k * WARP + threadIdx.x % WARP] = for_gamma[k];
        beta_sums[group][k * WARP + threadIdx.x % WARP] = for_beta[k];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < N * WARP; i += ROW_GROUPS * WARP) {
        int64_t of = block_column + i % WARP * N + i / WARP;
        float gamma_sum = gamma_sums[0][i], beta_sum = beta_sums[0][i];
        for (int g = 1; g < ROW_GROUPS; g++) {
            gamma_sum += gamma_sums[g][i];
            beta_sum += beta_sums[g][i];
        }
        if (of < n) {
            parts[(2 * (int64_t)blockIdx.y) * n + of] = gamma_sum;
        }
        if (of < n && mean != nullptr) {
            parts[(2 * (int64_t)blockIdx.y + 1) * n + of] = beta_sum;
        }
    }
}

/* ---- backward: the input ---- */

/* With h = (x - mean) rstd and d = grad_y gamma:
 *   LayerNorm  grad_x = rstd (d - mean(d) - h mean(d h))
 *   RMSNorm    grad_x = rstd (d - h mean(d h))
 * d and h of a lane's elements from i on: */
template <typename T>
static __device__ __forceinline__ void
load_row(const T *grad_y, const T *in, const float *gamma, float centre, float scale, int64_t i,
         int64_t n, float (&d)[lane_elements<T>::N], float (&h)[lane_elements<T>::N])
{
    enum { N = lane_elements<T>::N };
    int here = count_here<N>(i, n);
    float grad[N] = {}, x[N] = {}, factor[N] = {};
    load_pack(grad_y + i, here, grad);
    load_pack(in + i, here, x);
    load_pack(gamma + i, here, factor);
    FL_UNROLL
    for (int k = 0; k < N; k++) {
        d[k] = grad[k] * factor[k];
        h[k] = (x[k] - centre) * scale;
    }
}

template <typename T>
static __global__ void norm_input_kernel(const T *grad_y, const T *in, const float *gamma,
                                         const float *mean, const float *rstd,
                                         const T *grad_residual, T *grad_in, int64_t m, int64_t n)
{
    enum { N = lane_elements<T>::N };
    int64_t row = row_here(), lane = threadIdx.x % WARP;
    if (row >= m) {
        return;
    }
    const T *g = grad_y + row * n, *x = in + row * n;
    float centre = mean == nullptr ? 0.0f : mean[row], scale = rstd[row];
    float sum_d = 0.0f, sum_dh = 0.0f, d[N], h[N];
    for (int64_t i = lane * N; i < n; i += WARP * N) {
        load_row(g, x, gamma, centre, scale, i, n, d, h);
        FL_UNROLL
        for (int k = 0; k < N; k++) { /* beyond the row, d is zero */
            sum_d += d[k];
            sum_dh += d[k] * h[k];
        }
    }
    float mean_d = mean == nullptr ? 0.0f : warp_sum(sum_d) / (float)n;
    float mean_dh = warp_sum(sum_dh) / (float)n;
    for (int64_t i = lane * N; i < n; i += WARP * N) {
        int here = count_here<N>(i, n);
        float other[N] = {};
        load_row(g, x, gamma, centre, scale, i, n, d, h);
        if (grad_residual != nullptr) {
            load_pack(grad_residual + row * n + i, here, other);
        }
        FL_UNROLL
        for (int k = 0; k < N; k++) {
            float grad = (d[k] - mean_d - h[k] * mean_dh) * scale;
            d[k] = grad_residual == nullptr ? grad : grad + other[k];
        }
        store_pack(grad_in + row * n + i, here, d);
    }
}

/* Gamma and beta first: grad_in may be grad_y. */
template <typename T>
static int norm_backward(fl__cuda_queue *q, const fl_norm_backward_args *a, const float *mean,
                         float *grad_beta)
{
    int64_t n_chunks = parts_of(a->m, CHUNK_ROWS);
    q->needed_bytes = (size_t)(2 * n_chunks * a->n) * sizeof(float);
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    float *parts = (float *)q->workspace;
    if (a->grad_gamma != nullptr || grad_beta != nullptr) {
        LAUNCH_TRY(launch(norm_parts_kernel<T>,
                          dim3((unsigned)parts_of(a->n, WARP * lane_elements<T>::N),
                               (unsigned)n_chunks),
                          ROW_GROUPS * WARP, q->stream, (const T *)a->grad_y, (const T *)a->in,
                          mean, a->rstd, parts, a->m, a->n));
    }
    if (a->grad_gamma != nullptr) {
        LAUNCH_TRY(launch(add_parts_kernel, blocks_for(a->n), PASS_THREADS, q->stream,
                          (const float *)parts, n_chunks, a->n, 2 * a->n, a->grad_gamma));
    }
    if (grad_beta != nullptr) {
        LAUNCH_TRY(launch(add_parts_kernel, blocks_for(a->n), PASS_THREADS, q->stream,
                          (const float *)parts + a->n, n_chunks, a->n, 2 * a->n, grad_beta));
    }
    return a->grad_in == nullptr
               ? 0
               : launch(norm_input_kernel<T>, blocks_for_rows(a->m), ROWS_A_BLOCK * WARP, q->stream,
                        (const T *)a->grad_y, (const T *)a->in, (const float *)a->gamma->data, mean,
                        a->rstd, (const T *)a->grad_residual, (T *)a->grad_in, a->m, a->n);
}

int fl__cuda_layernorm_backward(fl__cuda_queue *q, const fl_norm_backward_args *a)
{
    FOR_DTYPE(a->dtype, return norm_backward<T>(q, a, a->mean, a->grad_beta));
}

int fl__cuda_rmsnorm_backward(fl__cuda_queue *q, const fl_norm_backward_args *a)
{
    FOR_DTYPE(a->dtype, return norm_backward<T>(q, a, nullptr, nullptr));
}
