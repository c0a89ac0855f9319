/* Matrix products in fp32, by tiles in shared memory. A row of the result depends on its row of the
 * first factor and on the second, never on what else is in the micro-batch. */
#include "device/cuda/kernels/activation.cuh"
#include "device/cuda/kernels/parts.cuh"
#include "device/cuda/launches.h"

/* A block computes TILE x TILE elements, DEPTH products at a time; a thread EACH x EACH of them. */
enum { TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, TILE_THREADS = SIDE * SIDE };

/* y[i][j] = sum over k of a[i a_row + k a_k] b[k b_k + j b_col], and what is done with it. */
struct product {
    const float *a, *b;
    int64_t a_row, a_k, b_k, b_col;
    int64_t rows, cols, depth;
    float *y; /* [rows, cols] */
    bool add; /* to y */
    const float *bias, *residual;
    fl_activation activation;
    float *pre;
};

/* Store what stands at (i, j). */
static __device__ __forceinline__ void finish(const product &p, int64_t i, int64_t j, float x)
{
    int64_t at = i * p.cols + j;
    x += p.bias == nullptr ? 0.0f : p.bias[j];
    x += p.residual == nullptr ? 0.0f : p.residual[at];
    if (p.pre != nullptr) {
        p.pre[at] = x;
    }
    x = activation_of(p.activation, x).y;
    p.y[at] = p.add ? p.y[at] + x : x;
}

/* Copy a tile of a factor: [DEPTH][TILE], zeros where the factor ends. Neighbouring threads read
 * neighbouring elements, whichever way the factor lies. */
static __device__ __forceinline__ void fill_tile(float (*tile)[TILE + 1], const float *x,
                                                 int64_t step, int64_t k_step, int64_t first,
                                                 int64_t count, int64_t k_first, int64_t depth)
{
    bool along_k = k_step == 1;
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += TILE_THREADS) {
        int k = along_k ? e % DEPTH : e / TILE, i = along_k ? e / DEPTH : e % TILE;
        bool inside = first + i < count && k_first + k < depth;
        tile[k][i] = inside ? x[(first + i) * step + (k_first + k) * k_step] : 0.0f;
    }
}

static __global__ void __launch_bounds__(TILE_THREADS) product_kernel(product p)
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

static int multiply(const fl__cuda_queue *q, const product &p)
{
    dim3 grid((unsigned)parts_of(p.cols, TILE), (unsigned)parts_of(p.rows, TILE));
    return launch(product_kernel, grid, TILE_THREADS, q->stream, p);
}

int fl__cuda_linear(fl__cuda_queue *q, const fl_linear_args *a)
{
    product p = {};
    p.a = (const float *)a->in;
    p.a_row = a->w->cols;
    p.a_k = 1;
    p.b = a->w->data;
    p.b_k = 1;
    p.b_col = a->w->cols;
    p.rows = a->m;
    p.cols = a->w->rows;
    p.depth = a->w->cols;
    p.y = (float *)a->y;
    p.bias = a->bias == nullptr ? nullptr : a->bias->data;
    p.residual = (const float *)a->residual;
    p.activation = a->activation;
    p.pre = (float *)a->pre;
    return multiply(q, p);
}

int fl__cuda_linear_backward_input(fl__cuda_queue *q, const fl_linear_backward_input_args *a)
{
    product p = {};
    p.a = (const float *)a->grad_out;
    p.a_row = a->w->rows;
    p.a_k = 1;
    p.b = a->w->data;
    p.b_k = a->w->cols;
    p.b_col = 1;
    p.rows = a->m;
    p.cols = a->w->cols;
    p.depth = a->w->rows;
    p.y = (float *)a->grad_in;
    return multiply(q, p);
}

/* ---- the gradients of weights and biases ---- */

/* parts[chunk][n]: the sums of the columns over the rows of each chunk. */
static __global__ void column_parts_kernel(const float *x, int64_t m, int64_t n, float *parts)
{
    int64_t column = element_here(), first = (int64_t)blockIdx.y * CHUNK_ROWS;
    int64_t end = first + CHUNK_ROWS < m ? first + CHUNK_ROWS : m;
    if (column < n) {
        float sum = 0.0f;
        for (int64_t row = first; row < end; row++) {
            sum += x[row * n + column];
        }
        parts[(int64_t)blockIdx.y * n + column] = sum;
    }
}

static int add_columns(fl__cuda_queue *q, const fl_linear_backward_weights_args *a)
{
    int64_t n_chunks = parts_of(a->m, CHUNK_ROWS);
    float *parts = (float *)q->workspace;
    dim3 grid = blocks_for(a->n_out);
    grid.y = (unsigned)n_chunks;
    LAUNCH_TRY(launch(column_parts_kernel, grid, PASS_THREADS, q->stream,
                      (const float *)a->grad_out, a->m, a->n_out, parts));
    return launch(add_parts_kernel, blocks_for(a->n_out), PASS_THREADS, q->stream,
                  (const float *)parts, n_chunks, a->n_out, a->n_out, a->grad_bias);
}

int fl__cuda_linear_backward_weights(fl__cuda_queue *q, const fl_linear_backward_weights_args *a)
{
    q->needed_bytes = (size_t)(parts_of(a->m, CHUNK_ROWS) * a->n_out) * sizeof(float);
    if (a->grad_bias != nullptr && q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    if (a->grad_bias != nullptr) {
        LAUNCH_TRY(add_columns(q, a));
    }
    product p = {};
    p.a = (const float *)a->grad_out;
    p.a_row = 1;
    p.a_k = a->n_out;
    p.b = (const float *)a->in;
    p.b_k = a->n_in;
    p.b_col = 1;
    p.rows = a->n_out;
    p.cols = a->n_in;
    p.depth = a->m;
    p.y = a->grad_w;
    p.add = true;
    return a->grad_w == nullptr ? 0 : multiply(q, p);
}
