/* Matrix products by tiles in shared memory, added in fp32. A row of the result depends on its row
 * of the first factor and on the second, never on what else is in the micro-batch: for runs that
 * must agree to the last bit, and where there is no library. */
#include "device/cuda/kernels/activation.cuh"
#include "device/cuda/kernels/parts.cuh"
#include "device/cuda/launches.h"

/* A block computes TILE x TILE elements, DEPTH products at a time; a thread EACH x EACH of them. */
enum { TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, TILE_THREADS = SIDE * SIDE };

/* y[i][j] = sum over k of a[i a_row + k a_k] b[k b_k + j b_col], and what is done with it. */
template <typename A, typename B, typename Y> struct product {
    const A *a;
    const B *b;
    int64_t a_row, a_k, b_k, b_col;
    int64_t rows, cols, depth;
    const Y *added;
    const float *bias;
    fl_activation activation;
    Y *pre, *y; /* [rows, cols] */
};

template <typename A, typename B, typename Y>
static product<A, B, Y> product_of(const fl__cuda_product *from)
{
    product<A, B, Y> p = {};
    p.a = (const A *)from->a;
    p.b = (const B *)from->b;
    p.a_row = from->a_transposed ? 1 : from->depth;
    p.a_k = from->a_transposed ? from->rows : 1;
    p.b_k = from->b_transposed ? 1 : from->cols;
    p.b_col = from->b_transposed ? from->depth : 1;
    p.rows = from->rows;
    p.cols = from->cols;
    p.depth = from->depth;
    p.added = (const Y *)from->added;
    p.bias = (const float *)from->bias;
    p.activation = from->activation;
    p.pre = (Y *)from->pre;
    p.y = (Y *)from->y;
    return p;
}

/* Store what stands at (i, j). */
template <typename A, typename B, typename Y>
static __device__ __forceinline__ void finish(const product<A, B, Y> &p, int64_t i, int64_t j,
                                              float x)
{
    int64_t at = i * p.cols + j;
    x += p.bias == nullptr ? 0.0f : p.bias[j];
    x += p.added == nullptr ? 0.0f : load(p.added + at);
    if (p.pre != nullptr) {
        store(p.pre + at, x);
    }
    store(p.y + at, activation_of(p.activation, x).y);
}

/* Copy a tile of a factor: [DEPTH][TILE], zeros where the factor ends. Neighbouring threads read
 * neighbouring elements, whichever way the factor lies. */
template <typename T>
static __device__ __forceinline__ void fill_tile(float (*tile)[TILE + 1], const T *x, int64_t step,
                                                 int64_t k_step, int64_t first, int64_t count,
                                                 int64_t k_first, int64_t depth)
{
    bool along_k = k_step == 1;
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += TILE_THREADS) {
        int k = along_k ? e % DEPTH : e / TILE, i = along_k ? e / DEPTH : e % TILE;
        bool inside = first + i < count && k_first + k < depth;
        tile[k][i] = inside ? load(x + (first + i) * step + (k_first + k) * k_step) : 0.0f;
    }
}

template <typename A, typename B, typename Y>
static __global__ void __launch_bounds__(TILE_THREADS) product_kernel(product<A, B, Y> p)
{
    FL_SHARED(float, a, [DEPTH][TILE + 1]);
    FL_SHARED(float, b, [DEPTH][TILE + 1]);
    int64_t row = (int64_t)blockIdx.y * TILE, col = (int64_t)blockIdx.x * TILE;
    int down = (int)threadIdx.x / SIDE, across = (int)threadIdx.x % SIDE;
    float sum[EACH][EACH] = {};
    for (int64_t k = 0; k < p.depth; k += DEPTH) {
        fill_tile(a, p.a, p.a_row, p.a_k, row, p.rows, k, p.depth);
        fill_tile(b, p.b, p.b_col, p.b_k, col, p.cols, k, p.depth);
        __syncthreads();
        for (int d = 0; d < DEPTH; d++) {
            for (int i = 0; i < EACH; i++) {
                for (int j = 0; j < EACH; j++) {
                    sum[i][j] += a[d][down + i * SIDE] * b[d][across + j * SIDE];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++) {
        for (int j = 0; j < EACH; j++) {
            int64_t at_row = row + down + i * SIDE, at_col = col + across + j * SIDE;
            if (at_row < p.rows && at_col < p.cols) {
                finish(p, at_row, at_col, sum[i][j]);
            }
        }
    }
}

template <typename A, typename B, typename Y>
static int multiply(const fl__cuda_queue *q, const fl__cuda_product *p)
{
    dim3 grid((unsigned)parts_of(p->cols, TILE), (unsigned)parts_of(p->rows, TILE));
    return launch(product_kernel<A, B, Y>, grid, TILE_THREADS, q->stream, product_of<A, B, Y>(p));
}

int fl__cuda_multiply(fl__cuda_queue *q, const fl__cuda_product *p)
{
    if (p->a_dtype == FL_F32) {
        return multiply<float, float, float>(q, p);
    }
    if (p->b_dtype == FL_F32) {
        return multiply<bf16, float, bf16>(q, p);
    }
    return multiply<bf16, bf16, float>(q, p);
}

/* ---- the gradients of biases ---- */

/* parts[chunk][n]: the sums of the columns over the rows of each chunk. */
template <typename T>
static __global__ void column_parts_kernel(const T *x, int64_t m, int64_t n, float *parts)
{
    int64_t column = element_here(), first = (int64_t)blockIdx.y * CHUNK_ROWS;
    int64_t end = first + CHUNK_ROWS < m ? first + CHUNK_ROWS : m;
    if (column < n) {
        float sum = 0.0f;
        for (int64_t row = first; row < end; row++) {
            sum += load(x + row * n + column);
        }
        parts[(int64_t)blockIdx.y * n + column] = sum;
    }
}

int fl__cuda_column_sums(fl__cuda_queue *q, const fl__cuda_column_sums_args *a)
{
    int64_t n_chunks = parts_of(a->m, CHUNK_ROWS);
    q->needed_bytes = (size_t)(n_chunks * a->n) * sizeof(float);
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    float *parts = (float *)q->workspace;
    dim3 grid = blocks_for(a->n);
    grid.y = (unsigned)n_chunks;
    FOR_DTYPE(a->dtype, LAUNCH_TRY(launch(column_parts_kernel<T>, grid, PASS_THREADS, q->stream,
                                          (const T *)a->x, a->m, a->n, parts)));
    return launch(add_parts_kernel, blocks_for(a->n), PASS_THREADS, q->stream, (const float *)parts,
                  n_chunks, a->n, a->n, a->sums);
}
