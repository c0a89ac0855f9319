/* Attention in bf16 on tensor cores: attention.cuh draws the way, attention_tensor.cuh the tiles.
 */
#include "device/cuda/kernels/attention_tensor.cuh"

#include <math.h>

/* ---- forward ---- */

/* The softmax of the lane's two rows so far. */
struct two_rows {
    float top[2], sum[2];
};

/* Take the scores of one more tile into the rows: s becomes the powers, and what was summed before
 * must be multiplied by shrink. A row sees the first key of the first tile, so `top` is finite from
 * then on. */
static __device__ __forceinline__ void grow_rows(two_rows *r, float s[SCORES][4], float shrink[2])
{
    FL_UNROLL
    for (int half = 0; half < 2; half++) {
        float top = r->top[half], sum = 0.0f;
        FL_UNROLL
        for (int j = 0; j < SCORES; j++) {
            top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
        }
        top = row_max<4>(top);
        FL_UNROLL
        for (int j = 0; j < SCORES; j++) {
            FL_UNROLL
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[j][i] = exp2f(s[j][i] - top);
                sum += s[j][i];
            }
        }
        shrink[half] = exp2f(r->top[half] - top);
        r->sum[half] = r->sum[half] * shrink[half] + row_sum<4>(sum);
        r->top[half] = top;
    }
}

template <int COLUMNS>
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    tensor_attention_kernel(attention_call<bf16> c)
{
    typedef tensor_tile<COLUMNS> tt;
    FL_SHARED(uint32_t, keys, [TENSOR_ACROSS * tt::WORDS]);
    FL_SHARED(uint32_t, values, [TENSOR_ACROSS * tt::WORDS]);
    tile_place p = place_here(c, TENSOR_SIDE);
    if (p.begin >= p.n) {
        return; /* the whole block */
    }
    int64_t stride = 3 * c.width, mine = p.begin + threadIdx.x / WARP * MMA_ROWS;
    const bf16 *x = c.qkv + p.first_token * stride + p.head * c.head_dim;
    uint32_t queries[tt::DEPTHS][4];
    load_rows<COLUMNS>(queries, x, stride, mine, p.n, c.head_dim);
    int64_t end = c.causal && p.begin + TENSOR_SIDE < p.n ? p.begin + TENSOR_SIDE : p.n;
    two_rows rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    float sums[tt::ACROSS][4] = {};
    for (int64_t first = 0; first < end; first += TENSOR_ACROSS) {
        load_words<COLUMNS>(keys, x + c.width, stride, first, p.n, c.head_dim);
        load_words<COLUMNS>(values, x + 2 * c.width, stride, first, p.n, c.head_dim);
        __syncthreads();
        float s[SCORES][4], shrink[2];
        multiply_tile<COLUMNS>(queries, keys, s);
        FL_UNROLL
        for (int j = 0; j < SCORES; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                int64_t query = mine + group_here() + half_of(i) * 8, key = first + column_of(j, i);
                bool seen = key < p.n && (!c.causal || key <= query);
                s[j][i] = seen ? s[j][i] * c.scale * LOG2_E : -INFINITY;
            }
        }
        grow_rows(&rows, s, shrink);
        FL_UNROLL
        for (int j = 0; j < tt::ACROSS; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                sums[j][i] *= shrink[half_of(i)];
            }
        }
        FL_UNROLL
        for (int j = 0; j < SCORES; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                int64_t query = mine + group_here() + half_of(i) * 8, key = first + column_of(j, i);
                s[j][i] *= mask_of(c, p, query, key);
            }
        }
        add_tile<COLUMNS>(s, values, sums);
        __syncthreads();
    }
    const float factor[2] = {1.0f / rows.sum[0], 1.0f / rows.sum[1]};
    store_rows<COLUMNS>(sums, factor, c.y + p.first_token * c.width + p.head * c.head_dim, c.width,
                        mine, p.n, c.head_dim);
    FL_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t query = mine + group_here() + half * 8;
        if (c.lse != nullptr && query < p.n && place_in_group() == 0) {
            c.lse[(p.first_token + query) * c.heads + p.head] =
                (rows.top[half] + log2f(rows.sum[half])) * LN_2;
        }
    }
}

static dim3 blocks_of(const attention_call<bf16> &c, int64_t n_samples)
{
    return dim3((unsigned)(c.tiles * c.heads * n_samples));
}

template <int COLUMNS> static int attend(const fl__cuda_queue *q, const fl_attention_args *a)
{
    attention_call<bf16> c = attention_call_of<bf16>(a, TENSOR_SIDE);
    return launch(tensor_attention_kernel<COLUMNS>, blocks_of(c, a->offsets.n_samples),
                  ATTENTION_THREADS, q->stream, c);
}

int fl__tensor_attention(const fl__cuda_queue *q, const fl_attention_args *a)
{
#define FL_THEN(columns) return attend<columns>(q, a)
    FOR_COLUMNS(a->width / a->heads, FL_THEN);
#undef FL_THEN
}

/* ---- backward: attention_backward.cu has the steps ---- */

/* From the products of queries and keys and of dY and values: the shares P M and the gradients dS.
 * The warp's rows are queries and the tile's are keys, or the other way round. */
template <bool ROWS_ARE_QUERIES>
static __device__ __forceinline__ void pair_scores(const attention_call<bf16> &c,
                                                   const tile_place &p, int64_t mine, int64_t first,
                                                   float s[SCORES][4], float g[SCORES][4])
{
    FL_UNROLL
    for (int j = 0; j < SCORES; j++) {
        FL_UNROLL
        for (int i = 0; i < 4; i++) {
            int64_t row = mine + group_here() + half_of(i) * 8, column = first + column_of(j, i);
            int64_t query = ROWS_ARE_QUERIES ? row : column, key = ROWS_ARE_QUERIES ? column : row;
            pair both = pair_of(c, p, query, key, s[j][i], g[j][i]);
            s[j][i] = both.kept;
            g[j][i] = both.grad_score;
        }
    }
}

template <int COLUMNS>
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    tensor_grad_queries_kernel(attention_call<bf16> c)
{
    typedef tensor_tile<COLUMNS> tt;
    FL_SHARED(uint32_t, keys, [TENSOR_ACROSS * tt::WORDS]);
    FL_SHARED(uint32_t, values, [TENSOR_ACROSS * tt::WORDS]);
    tile_place p = place_here(c, TENSOR_SIDE);
    if (p.begin >= p.n) {
        return;
    }
    int64_t stride = 3 * c.width, column = p.head * c.head_dim;
    int64_t mine = p.begin + threadIdx.x / WARP * MMA_ROWS;
    const bf16 *x = c.qkv + p.first_token * stride + column;
    uint32_t queries[tt::DEPTHS][4], grads[tt::DEPTHS][4];
    load_rows<COLUMNS>(queries, x, stride, mine, p.n, c.head_dim);
    load_rows<COLUMNS>(grads, c.grad_y + p.first_token * c.width + column, c.width, mine, p.n,
                       c.head_dim);
    int64_t end = c.causal && p.begin + TENSOR_SIDE < p.n ? p.begin + TENSOR_SIDE : p.n;
    float sums[tt::ACROSS][4] = {};
    for (int64_t first = 0; first < end; first += TENSOR_ACROSS) {
        load_words<COLUMNS>(keys, x + c.width, stride, first, p.n, c.head_dim);
        load_words<COLUMNS>(values, x + 2 * c.width, stride, first, p.n, c.head_dim);
        __syncthreads();
        float s[SCORES][4], g[SCORES][4];
        multiply_tile<COLUMNS>(queries, keys, s);
        multiply_tile<COLUMNS>(grads, values, g);
        pair_scores<true>(c, p, mine, first, s, g);
        add_tile<COLUMNS>(g, keys, sums);
        __syncthreads();
    }
    const float one[2] = {1.0f, 1.0f};
    store_rows<COLUMNS>(sums, one, c.grad_qkv + p.first_token * stride + column, stride, mine, p.n,
                        c.head_dim);
}

template <int COLUMNS>
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    tensor_grad_keys_kernel(attention_call<bf16> c)
{
    typedef tensor_tile<COLUMNS> tt;
    FL_SHARED(uint32_t, queries, [TENSOR_ACROSS * tt::WORDS]);
    FL_SHARED(uint32_t, grads, [TENSOR_ACROSS * tt::WORDS]);
    tile_place p = place_here(c, TENSOR_SIDE);
    if (p.begin >= p.n) {
        return;
    }
    int64_t stride = 3 * c.width, column = p.head * c.head_dim;
    int64_t mine = p.begin + threadIdx.x / WARP * MMA_ROWS;
    const bf16 *x = c.qkv + p.first_token * stride + column;
    const bf16 *grad_y = c.grad_y + p.first_token * c.width + column;
    uint32_t keys[tt::DEPTHS][4], values[tt::DEPTHS][4];
    load_rows<COLUMNS>(keys, x + c.width, stride, mine, p.n, c.head_dim);
    load_rows<COLUMNS>(values, x + 2 * c.width, stride, mine, p.n, c.head_dim);
    float to_keys[tt::ACROSS][4] = {}, to_values[tt::ACROSS][4] = {};
    for (int64_t first = c.causal ? p.begin : 0; first < p.n; first += TENSOR_ACROSS) {
        load_words<COLUMNS>(queries, x, stride, first, p.n, c.head_dim);
        load_words<COLUMNS>(grads, grad_y, c.width, first, p.n, c.head_dim);
        __syncthreads();
        float s[SCORES][4], g[SCORES][4];
        multiply_tile<COLUMNS>(keys, queries, s);
        multiply_tile<COLUMNS>(values, grads, g);
        pair_scores<false>(c, p, mine, first, s, g);
        add_tile<COLUMNS>(s, grads, to_values);
        add_tile<COLUMNS>(g, queries, to_keys);
        __syncthreads();
    }
    const float one[2] = {1.0f, 1.0f};
    bf16 *to = c.grad_qkv + p.first_token * stride + column;
    store_rows<COLUMNS>(to_keys, one, to + c.width, stride, mine, p.n, c.head_dim);
    store_rows<COLUMNS>(to_values, one, to + 2 * c.width, stride, mine, p.n, c.head_dim);
}

template <int COLUMNS>
static int attend_backward(const fl__cuda_queue *q, const fl_attention_backward_args *b,
                           const float *delta)
{
    attention_call<bf16> c = attention_call_of<bf16>(&b->forward, TENSOR_SIDE);
    c.grad_y = (const bf16 *)b->grad_y;
    c.grad_qkv = (bf16 *)b->grad_qkv;
    c.delta = delta;
    dim3 grid = blocks_of(c, b->forward.offsets.n_samples);
    LAUNCH_TRY(launch(tensor_grad_queries_kernel<COLUMNS>, grid, ATTENTION_THREADS, q->stream, c));
    return launch(tensor_grad_keys_kernel<COLUMNS>, grid, ATTENTION_THREADS, q->stream, c);
}

int fl__tensor_attention_backward(const fl__cuda_queue *q, const fl_attention_backward_args *b,
                                  const float *delta)
{
#define FL_THEN(columns) return attend_backward<columns>(q, b, delta)
    FOR_COLUMNS(b->forward.width / b->forward.heads, FL_THEN);
#undef FL_THEN
}
