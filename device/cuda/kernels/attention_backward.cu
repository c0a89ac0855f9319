/* Attention, backward: attention.cuh draws the way. With P the probabilities, M the mask and S the
 * scaled scores:
 *
 *   1. delta = sum of y dY over a head's columns      a warp for each (token, head)
 *   2. P = 2^(S - lse)   dP = (dY V^T) M              recomputed by 3 and 4 (attention.cuh:
 * pair_of) dS = P (dP - delta) scale
 *   3. dQ = dS K                                      a block for each tile of queries
 *   4. dV = (P M)^T dY   dK = dS^T Q                  a block for each tile of keys */
#include "device/cuda/kernels/attention.cuh"

/* ---- 1 ---- */

enum { DELTAS_A_BLOCK = 4 };

template <typename T>
static __global__ void delta_kernel(const T *y, const T *grad_y, int64_t n, int64_t head_dim,
                                    float *delta)
{
    int64_t at = (int64_t)blockIdx.x * DELTAS_A_BLOCK + threadIdx.x / WARP;
    if (at >= n) {
        return; /* the whole warp */
    }
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % WARP; i < head_dim; i += WARP) {
        sum += load(y + at * head_dim + i) * load(grad_y + at * head_dim + i);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) {
        delta[at] = sum;
    }
}

/* ---- 3 ---- */

template <int COLUMNS, typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS) grad_queries_kernel(attention_call<T> c)
{
    typedef tiling<COLUMNS> tl;
    FL_SHARED(float, queries, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, grads, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, keys, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, values, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, grad_scores, [tl::SIDE][tl::SIDE + 1]);
    tile_place p = place_here(c, tl::SIDE);
    if (p.begin >= p.n) {
        return;
    }
    int row = (int)threadIdx.x / tl::LANES, lane = (int)threadIdx.x % tl::LANES;
    int64_t query = p.begin + row, stride = 3 * c.width, column = p.head * c.head_dim;
    const T *x = c.qkv + p.first_token * stride + column;
    load_tile<COLUMNS>(queries, x, stride, p.begin, p.n, c.head_dim);
    load_tile<COLUMNS>(grads, c.grad_y + p.first_token * c.width + column, c.width, p.begin, p.n,
                       c.head_dim);
    int64_t end = c.causal && p.begin + tl::SIDE < p.n ? p.begin + tl::SIDE : p.n;
    float sums[tl::EACH] = {};
    for (int64_t first = 0; first < end; first += tl::SIDE) {
        load_tile<COLUMNS>(keys, x + c.width, stride, first, p.n, c.head_dim);
        load_tile<COLUMNS>(values, x + 2 * c.width, stride, first, p.n, c.head_dim);
        __syncthreads();
        float s[tl::ACROSS], g[tl::ACROSS];
        multiply_rows<COLUMNS>(queries, keys, row, lane * tl::ACROSS, s);
        multiply_rows<COLUMNS>(grads, values, row, lane * tl::ACROSS, g);
        for (int j = 0; j < tl::ACROSS; j++) {
            int at = lane * tl::ACROSS + j;
            grad_scores[row][at] = pair_of(c, p, query, first + at, s[j], g[j]).grad_score;
        }
        __syncwarp();
        add_weighted<COLUMNS>(grad_scores[row], keys, lane, sums);
        __syncthreads();
    }
    T *to = c.grad_qkv + (p.first_token + query) * stride + column;
    for (int i = 0; i < tl::EACH && query < p.n && lane + i * tl::LANES < c.head_dim; i++) {
        store(to + lane + i * tl::LANES, sums[i]);
    }
}

/* ---- 4 ---- */

template <int COLUMNS, typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS) grad_keys_kernel(attention_call<T> c)
{
    typedef tiling<COLUMNS> tl;
    FL_SHARED(float, queries, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, grads, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, keys, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, values, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, shares, [tl::SIDE][tl::SIDE + 1]);
    FL_SHARED(float, grad_scores, [tl::SIDE][tl::SIDE + 1]);
    tile_place p = place_here(c, tl::SIDE);
    if (p.begin >= p.n) {
        return;
    }
    int row = (int)threadIdx.x / tl::LANES, lane = (int)threadIdx.x % tl::LANES;
    int64_t key = p.begin + row, stride = 3 * c.width, column = p.head * c.head_dim;
    const T *x = c.qkv + p.first_token * stride + column;
    const T *grad_y = c.grad_y + p.first_token * c.width + column;
    load_tile<COLUMNS>(keys, x + c.width, stride, p.begin, p.n, c.head_dim);
    load_tile<COLUMNS>(values, x + 2 * c.width, stride, p.begin, p.n, c.head_dim);
    float to_key[tl::EACH] = {}, to_value[tl::EACH] = {};
    for (int64_t first = c.causal ? p.begin : 0; first < p.n; first += tl::SIDE) {
        load_tile<COLUMNS>(queries, x, stride, first, p.n, c.head_dim);
        load_tile<COLUMNS>(grads, grad_y, c.width, first, p.n, c.head_dim);
        __syncthreads();
        float s[tl::ACROSS], g[tl::ACROSS];
        multiply_rows<COLUMNS>(keys, queries, row, lane * tl::ACROSS, s);
        multiply_rows<COLUMNS>(values, grads, row, lane * tl::ACROSS, g);
        for (int j = 0; j < tl::ACROSS; j++) {
            int at = lane * tl::ACROSS + j;
            pair both = pair_of(c, p, first + at, key, s[j], g[j]);
            shares[row][at] = both.kept;
            grad_scores[row][at] = both.grad_score;
        }
        __syncwarp();
        add_weighted<COLUMNS>(shares[row], grads, lane, to_value);
        add_weighted<COLUMNS>(grad_scores[row], queries, lane, to_key);
        __syncthreads();
    }
    T *to = c.grad_qkv + (p.first_token + key) * stride + column;
    for (int i = 0; i < tl::EACH && key < p.n && lane + i * tl::LANES < c.head_dim; i++) {
        store(to + c.width + lane + i * tl::LANES, to_key[i]);
        store(to + 2 * c.width + lane + i * tl::LANES, to_value[i]);
    }
}

/* ---- all ---- */

template <int COLUMNS, typename T>
static int attend_backward(const fl__cuda_queue *q, const fl_attention_backward_args *b)
{
    const fl_attention_args *a = &b->forward;
    const fl_offsets *o = &a->offsets;
    attention_call<T> c = attention_call_of<T>(a, tiling<COLUMNS>::SIDE);
    float *delta = (float *)q->workspace;
    int64_t n_deltas = o->host[o->n_samples] * a->heads;
    c.grad_y = (const T *)b->grad_y;
    c.grad_qkv = (T *)b->grad_qkv;
    c.delta = delta;
    LAUNCH_TRY(launch(delta_kernel<T>, dim3((unsigned)parts_of(n_deltas, DELTAS_A_BLOCK)),
                      DELTAS_A_BLOCK * WARP, q->stream, (const T *)c.y, c.grad_y, n_deltas,
                      c.head_dim, delta));
    if (sizeof(T) == sizeof(bf16) && has_bf16_tensor_cores()) {
        return fl__tensor_attention_backward(q, b, delta);
    }
    dim3 grid((unsigned)(c.tiles * c.heads * o->n_samples));
    LAUNCH_TRY(launch(grad_queries_kernel<COLUMNS, T>, grid, ATTENTION_THREADS, q->stream, c));
    return launch(grad_keys_kernel<COLUMNS, T>, grid, ATTENTION_THREADS, q->stream, c);
}

int fl__cuda_attention_backward(fl__cuda_queue *q, const fl_attention_backward_args *b)
{
    const fl_attention_args *a = &b->forward;
    q->needed_bytes = (size_t)(a->offsets.host[a->offsets.n_samples] * a->heads) * sizeof(float);
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
#define FL_THEN(columns) FOR_DTYPE(a->dtype, return (attend_backward<columns, T>(q, b)))
    FOR_COLUMNS(a->width / a->heads, FL_THEN);
#undef FL_THEN
}
