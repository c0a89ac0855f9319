/* Softmax attention over a ragged micro-batch, without a matrix of all scores: what its two ways
 * share. Source: Dao, "FlashAttention-2", arXiv 2307.08691; unlike there, the gradients of queries
 * and of keys have a kernel each, which costs the scores once more and needs no atomics, so the
 * same bits come out every time.
 *
 * A block of 128 threads takes one tile of SIDE rows of one (sample, head) and walks over tiles of
 * SIDE others: queries against keys, and in the way back to keys and values, keys against queries.
 * A row of the tile belongs to 128 / SIDE neighbouring lanes of a warp. Of the scores of a row,
 * each lane has ACROSS that lie side by side; of its columns, each lane has every LANES-th.
 *
 * The result of a row depends on its sample alone. Scores are kept times log2(e). */
#ifndef FL_DEVICE_CUDA_KERNELS_ATTENTION_CUH
#define FL_DEVICE_CUDA_KERNELS_ATTENTION_CUH

#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/mask.cuh"
#include "device/cuda/launches.h"
#include "device/offsets.h"

enum { ATTENTION_THREADS = 128 };
#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

/* The tiling for heads of at most COLUMNS columns. */
template <int COLUMNS> struct tiling {
    enum {
        SIDE = COLUMNS <= 64 ? 32 : 16,
        LANES = ATTENTION_THREADS / SIDE,
        ACROSS = SIDE / LANES,
        EACH = COLUMNS / LANES, /* columns of a lane */
        ROW = COLUMNS + 1       /* of shared memory, so that rows begin in different banks */
    };
};

/* What a launch is about; NULL where a way does not need it. */
template <typename T> struct attention_call {
    const T *qkv;
    const int32_t *offsets;
    int64_t heads, width, head_dim, tiles;
    bool causal;
    float scale;
    mask_source mask;
    int32_t threshold; /* 0: nothing is dropped */
    float keep_scale;
    const int64_t *sample_ids;
    T *y;
    float *lse;
    const T *grad_y;
    const float *delta; /* [n_tokens, heads]: the sum of y * grad_y over the head's columns */
    T *grad_qkv;
};

template <typename T>
static attention_call<T> attention_call_of(const fl_attention_args *a, int side)
{
    attention_call<T> c = {};
    c.qkv = (const T *)a->qkv;
    c.offsets = a->offsets.device;
    c.heads = a->heads;
    c.width = a->width;
    c.head_dim = a->width / a->heads;
    c.tiles = parts_of(fl__longest_sample(&a->offsets), side);
    c.causal = a->causal;
    c.scale = a->scale;
    if (a->mask.p > 0.0f) {
        const fl_mask *m = &a->mask;
        mask_rate rate = mask_rate_of(m->p);
        c.mask = mask_source_of(m);
        c.threshold = rate.threshold;
        c.keep_scale = rate.scale;
        c.sample_ids = m->sample_ids_device;
    }
    c.y = (T *)a->y;
    c.lse = a->lse;
    return c;
}

/* One (sample, head), and the tile of a block. */
struct tile_place {
    int64_t sample, head, first_token, n; /* n: tokens of the sample */
    int64_t begin;                        /* the tile's first row within the sample */
};

template <typename T>
static __device__ __forceinline__ tile_place place_here(const attention_call<T> &c, int side)
{
    tile_place p;
    int64_t at = blockIdx.x;
    p.begin = at % c.tiles * side;
    p.head = at / c.tiles % c.heads;
    p.sample = at / c.tiles / c.heads;
    p.first_token = c.offsets[p.sample];
    p.n = c.offsets[p.sample + 1] - p.first_token;
    return p;
}

/* Rows begin .. begin + SIDE - 1 of a matrix whose rows are `stride` apart, into shared memory;
 * zeros beyond the sample and beyond the head. x: the sample's first row, at the head's first
 * column. */
template <int COLUMNS, typename T>
static __device__ __forceinline__ void load_tile(float *tile, const T *x, int64_t stride,
                                                 int64_t begin, int64_t n, int64_t head_dim)
{
    typedef tiling<COLUMNS> tl;
    for (int e = (int)threadIdx.x; e < tl::SIDE * COLUMNS; e += ATTENTION_THREADS) {
        int row = e / COLUMNS, column = e % COLUMNS;
        bool inside = begin + row < n && column < head_dim;
        tile[row * tl::ROW + column] = inside ? load(x + (begin + row) * stride + column) : 0.0f;
    }
}

/* products[j] = row `row` of a times row first + j of b. */
template <int COLUMNS>
static __device__ __forceinline__ void multiply_rows(const float *a, const float *b, int row,
                                                     int first,
                                                     float products[tiling<COLUMNS>::ACROSS])
{
    typedef tiling<COLUMNS> tl;
    for (int j = 0; j < tl::ACROSS; j++) {
        products[j] = 0.0f;
    }
    for (int d = 0; d < COLUMNS; d++) {
        float x = a[row * tl::ROW + d];
        for (int j = 0; j < tl::ACROSS; j++) {
            products[j] += x * b[(first + j) * tl::ROW + d];
        }
    }
}

/* sums[i] += the sum over the tile's rows of weights[row] times their column of this lane. */
template <int COLUMNS>
static __device__ __forceinline__ void add_weighted(const float *weights, const float *tile,
                                                    int lane, float sums[tiling<COLUMNS>::EACH])
{
    typedef tiling<COLUMNS> tl;
    for (int row = 0; row < tl::SIDE; row++) {
        float w = weights[row];
        for (int i = 0; i < tl::EACH; i++) {
            sums[i] += w * tile[row * tl::ROW + lane + i * tl::LANES];
        }
    }
}

/* The mask of one probability: 0, or what a kept one is multiplied by. */
template <typename T>
static __device__ __forceinline__ float mask_of(const attention_call<T> &c, const tile_place &p,
                                                int64_t query, int64_t key)
{
    if (c.threshold == 0) {
        return 1.0f;
    }
    uint64_t k = fl__mix64(key_of(c.mask), (uint64_t)p.head), sample = (uint64_t)c.sample_ids[p.sample];
    fl__four_words drawn = fl__philox((uint32_t)(key / 8), (uint32_t)query, (uint32_t)sample,
                                      (uint32_t)(sample >> 32), (uint32_t)k, (uint32_t)(k >> 32));
    uint32_t word = drawn.word[key % 8 / 2];
    uint32_t bits = key % 2 == 0 ? word & 0xFFFFu : word >> MASK_BITS;
    return (int32_t)bits >= c.threshold ? c.keep_scale : 0.0f;
}

/* Whether a query sees a key: both within the sample. */
template <typename T>
static __device__ __forceinline__ bool sees(const attention_call<T> &c, const tile_place &p,
                                            int64_t query, int64_t key)
{
    return query < p.n && key < p.n && (!c.causal || key <= query);
}

/* The largest, or the sum, over the lanes of a row. */
template <int LANES> static __device__ __forceinline__ float row_max(float x)
{
    for (int lanes = 1; lanes < LANES; lanes *= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, lanes));
    }
    return x;
}

template <int LANES> static __device__ __forceinline__ float row_sum(float x)
{
    for (int lanes = 1; lanes < LANES; lanes *= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, lanes);
    }
    return x;
}

/* What one query and one key have to do with each other; zeros where it does not see the key. */
struct pair {
    float kept;       /* P M */
    float grad_score; /* dS */
};

/* score, grad: the products of query and key, and of the query's dY and the key's value */
template <typename T>
static __device__ __forceinline__ pair pair_of(const attention_call<T> &c, const tile_place &p,
                                               int64_t query, int64_t key, float score, float grad)
{
    if (!sees(c, p, query, key)) {
        return pair{0.0f, 0.0f};
    }
    int64_t at = (p.first_token + query) * c.heads + p.head;
    float share = exp2f((score * c.scale - c.lse[at]) * LOG2_E);
    float mask = mask_of(c, p, query, key);
    return pair{share * mask, share * (grad * mask - c.delta[at]) * c.scale};
}

/* attention_tensor.cu: the same in bf16 on tensor cores. delta: as step 1 of the way back has it */
int fl__tensor_attention(const fl__cuda_queue *q, const fl_attention_args *a);
int fl__tensor_attention_backward(const fl__cuda_queue *q, const fl_attention_backward_args *b,
                                  const float *delta);

/* THEN(COLUMNS) for heads of head_dim columns. */
#define FOR_COLUMNS(head_dim, THEN)                                                                \
    do {                                                                                           \
        if ((head_dim) <= 32) {                                                                    \
            THEN(32);                                                                              \
        } else if ((head_dim) <= 64) {                                                             \
            THEN(64);                                                                              \
        } else {                                                                                   \
            THEN(FL__CUDA_HEAD_MAX);                                                               \
        }                                                                                          \
    } while (0)

#endif
