/* Attention, forward: attention.cuh draws the way. */
#include "device/cuda/kernels/attention.cuh"

#include <math.h>

/* The softmax of a row so far: its largest score and the sum of the powers. */
struct row_state {
    float top, sum;
};

/* Take the scores of one more tile of keys into the row: s becomes the powers, and what was summed
 * before must be multiplied by the result. A row sees the first key of the first tile, so `top` is
 * finite from then on. */
template <int COLUMNS>
static __device__ __forceinline__ float grow_row(row_state *r, float s[tiling<COLUMNS>::ACROSS])
{
    typedef tiling<COLUMNS> tl;
    float top = r->top, sum = 0.0f;
    for (int j = 0; j < tl::ACROSS; j++) {
        top = fmaxf(top, s[j]);
    }
    top = row_max<tl::LANES>(top);
    for (int j = 0; j < tl::ACROSS; j++) {
        s[j] = exp2f(s[j] - top);
        sum += s[j];
    }
    float shrink = exp2f(r->top - top);
    r->sum = r->sum * shrink + row_sum<tl::LANES>(sum);
    r->top = top;
    return shrink;
}

template <int COLUMNS, typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS) attention_kernel(attention_call<T> c)
{
    typedef tiling<COLUMNS> tl;
    FL_SHARED(float, queries, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, keys, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, values, [tl::SIDE * tl::ROW]);
    FL_SHARED(float, powers, [tl::SIDE][tl::SIDE + 1]);
    tile_place p = place_here(c, tl::SIDE);
    if (p.begin >= p.n) {
        return; /* the whole block */
    }
    int row = (int)threadIdx.x / tl::LANES, lane = (int)threadIdx.x % tl::LANES;
    int64_t query = p.begin + row, stride = 3 * c.width;
    const T *x = c.qkv + p.first_token * stride + p.head * c.head_dim;
    load_tile<COLUMNS>(queries, x, stride, p.begin, p.n, c.head_dim);
    int64_t end = c.causal && p.begin + tl::SIDE < p.n ? p.begin + tl::SIDE : p.n;
    row_state state = {-INFINITY, 0.0f};
    float sums[tl::EACH] = {};
    for (int64_t first = 0; first < end; first += tl::SIDE) {
        load_tile<COLUMNS>(keys, x + c.width, stride, first, p.n, c.head_dim);
        load_tile<COLUMNS>(values, x + 2 * c.width, stride, first, p.n, c.head_dim);
        __syncthreads();
        float s[tl::ACROSS];
        int64_t key = first + lane * tl::ACROSS;
        multiply_rows<COLUMNS>(queries, keys, row, lane * tl::ACROSS, s);
        for (int j = 0; j < tl::ACROSS; j++) {
            bool seen = key + j < p.n && (!c.causal || key + j <= query);
            s[j] = seen ? s[j] * c.scale * LOG2_E : -INFINITY;
        }
        float shrink = grow_row<COLUMNS>(&state, s);
        for (int i = 0; i < tl::EACH; i++) {
            sums[i] *= shrink;
        }
        for (int j = 0; j < tl::ACROSS; j++) {
            powers[row][lane * tl::ACROSS + j] = s[j] * mask_of(c, p, query, key + j);
        }
        __syncwarp(); /* a row belongs to lanes of one warp */
        add_weighted<COLUMNS>(powers[row], values, lane, sums);
        __syncthreads();
    }
    if (query >= p.n) {
        return;
    }
    int64_t token = p.first_token + query;
    T *y = c.y + token * c.width + p.head * c.head_dim;
    for (int i = 0; i < tl::EACH && lane + i * tl::LANES < c.head_dim; i++) {
        store(y + lane + i * tl::LANES, sums[i] / state.sum);
    }
    if (c.lse != nullptr && lane == 0) {
        c.lse[token * c.heads + p.head] = (state.top + log2f(state.sum)) * LN_2;
    }
}

template <int COLUMNS, typename T>
static int attend(const fl__cuda_queue *q, const fl_attention_args *a)
{
    attention_call<T> c = attention_call_of<T>(a, tiling<COLUMNS>::SIDE);
    return launch(attention_kernel<COLUMNS, T>,
                  dim3((unsigned)(c.tiles * c.heads * a->offsets.n_samples)), ATTENTION_THREADS,
                  q->stream, c);
}

int fl__cuda_attention(fl__cuda_queue *q, const fl_attention_args *a)
{
    if (a->dtype == FL_BF16 && has_bf16_tensor_cores()) {
        return fl__tensor_attention(q, a);
    }
#define FL_THEN(columns) FOR_DTYPE(a->dtype, return (attend<columns, T>(q, a)))
    FOR_COLUMNS(a->width / a->heads, FL_THEN);
#undef FL_THEN
}
