/* Tiles of attention as the operands of mma.m16n8k16. With g = lane / 4 and t = lane % 4, a lane of
 * a warp has, two elements in each word,
 *
 *   of a left factor [16][16]:  rows g and g + 8, columns 2t, 2t + 1, 2t + 8 and 2t + 9
 *   of a right factor [16][8]:  column g, rows 2t, 2t + 1, 2t + 8 and 2t + 9
 *   of a sum [16][8]:           rows g and g + 8, columns 2t and 2t + 1
 *
 * Two sums that lie side by side are a left factor once they are rounded: probabilities never leave
 * their lanes.
 *
 * A block has SIDE rows, of which each of its four warps has 16, and walks over tiles of ACROSS
 * others in shared memory. */
#ifndef FL_DEVICE_CUDA_KERNELS_ATTENTION_TENSOR_CUH
#define FL_DEVICE_CUDA_KERNELS_ATTENTION_TENSOR_CUH

#include "device/cuda/kernels/attention.cuh"

enum {
    MMA_ROWS = 16,
    MMA_COLUMNS = 8,
    MMA_DEPTH = 16,
    TENSOR_SIDE = MMA_ROWS * ATTENTION_THREADS / WARP,
    TENSOR_ACROSS = 32,
    SCORES = TENSOR_ACROSS / MMA_COLUMNS, /* sums of a warp's rows and a tile */
};

/* Elements of a row of shared memory: rows begin in different banks. */
template <int COLUMNS> struct tensor_tile {
    enum { WORDS = COLUMNS / 2 + 4, DEPTHS = COLUMNS / MMA_DEPTH, ACROSS = COLUMNS / MMA_COLUMNS };
};

static __device__ __forceinline__ int group_here(void)
{
    return (int)threadIdx.x % WARP / 4;
}

static __device__ __forceinline__ int place_in_group(void)
{
    return (int)threadIdx.x % 4;
}

/* The place of element i of a sum: its row is group_here() + half_of(i) * 8. */
static __device__ __forceinline__ int half_of(int i)
{
    return i / 2;
}

static __device__ __forceinline__ int column_of(int tile, int i)
{
    return tile * MMA_COLUMNS + 2 * place_in_group() + i % 2;
}

static __device__ __forceinline__ uint32_t pack(float first, float second)
{
    bf16 low, high;
    store(&low, first);
    store(&high, second);
    return (uint32_t)low.bits | (uint32_t)high.bits << 16;
}

/* Elements (row, column) and (row, column + 1); zeros beyond the sample and beyond the head. x: the
 * sample's first row, at the head's first column */
static __device__ __forceinline__ uint32_t pair_from(const bf16 *x, int64_t stride, int64_t row,
                                                     int64_t n, int64_t column, int64_t head_dim)
{
    const bf16 *at = x + row * stride + column;
    uint32_t low = row < n && column < head_dim ? at[0].bits : 0u;
    uint32_t high = row < n && column + 1 < head_dim ? at[1].bits : 0u;
    return low | high << 16;
}

/* Rows begin .. begin + TENSOR_ACROSS - 1 of a matrix into shared memory. */
template <int COLUMNS>
static __device__ __forceinline__ void load_words(uint32_t *tile, const bf16 *x, int64_t stride,
                                                  int64_t begin, int64_t n, int64_t head_dim)
{
    for (int e = (int)threadIdx.x; e < TENSOR_ACROSS * COLUMNS / 2; e += ATTENTION_THREADS) {
        int row = e / (COLUMNS / 2), word = e % (COLUMNS / 2);
        tile[row * tensor_tile<COLUMNS>::WORDS + word] =
            pair_from(x, stride, begin + row, n, 2 * word, head_dim);
    }
}

/* The warp's rows as left factors, from row `first` on. */
template <int COLUMNS>
static __device__ __forceinline__ void load_rows(uint32_t rows[tensor_tile<COLUMNS>::DEPTHS][4],
                                                 const bf16 *x, int64_t stride, int64_t first,
                                                 int64_t n, int64_t head_dim)
{
    FL_UNROLL
    for (int k = 0; k < tensor_tile<COLUMNS>::DEPTHS; k++) {
        FL_UNROLL
        for (int i = 0; i < 4; i++) {
            int64_t row = first + group_here() + i % 2 * 8;
            int column = k * MMA_DEPTH + 2 * place_in_group() + i / 2 * 8;
            rows[k][i] = pair_from(x, stride, row, n, column, head_dim);
        }
    }
}

/* sums = the warp's rows times the rows of the tile. */
template <int COLUMNS>
static __device__ __forceinline__ void
multiply_tile(const uint32_t rows[tensor_tile<COLUMNS>::DEPTHS][4], const uint32_t *tile,
              float sums[SCORES][4])
{
    FL_UNROLL
    for (int j = 0; j < SCORES; j++) {
        FL_UNROLL
        for (int i = 0; i < 4; i++) {
            sums[j][i] = 0.0f;
        }
        const uint32_t *row = tile + (j * MMA_COLUMNS + group_here()) * tensor_tile<COLUMNS>::WORDS;
        FL_UNROLL
        for (int k = 0; k < tensor_tile<COLUMNS>::DEPTHS; k++) {
            int word = k * MMA_DEPTH / 2 + place_in_group();
            const uint32_t right[2] = {row[word], row[word + 4]};
            mma_bf16(sums[j], rows[k], right);
        }
    }
}

/* Element (row, column) of a tile. */
template <int COLUMNS>
static __device__ __forceinline__ uint32_t half_at(const uint32_t *tile, int row, int column)
{
    uint32_t word = tile[row * tensor_tile<COLUMNS>::WORDS + column / 2];
    return column % 2 == 0 ? word & 0xFFFFu : word >> 16;
}

/* sums += weights times the tile; weights: of the warp's rows and the rows of the tile. */
template <int COLUMNS>
static __device__ __forceinline__ void add_tile(const float weights[SCORES][4],
                                                const uint32_t *tile,
                                                float sums[tensor_tile<COLUMNS>::ACROSS][4])
{
    FL_UNROLL
    for (int k = 0; k < TENSOR_ACROSS / MMA_DEPTH; k++) {
        const float *low = weights[2 * k], *high = weights[2 * k + 1];
        const uint32_t left[4] = {pack(low[0], low[1]), pack(low[2], low[3]),
                                  pack(high[0], high[1]), pack(high[2], high[3])};
        int row = k * MMA_DEPTH + 2 * place_in_group();
        FL_UNROLL
        for (int j = 0; j < tensor_tile<COLUMNS>::ACROSS; j++) {
            int column = j * MMA_COLUMNS + group_here();
            uint32_t right[2];
            FL_UNROLL
            for (int i = 0; i < 2; i++) {
                right[i] = half_at<COLUMNS>(tile, row + i * 8, column) |
                           half_at<COLUMNS>(tile, row + i * 8 + 1, column) << 16;
            }
            mma_bf16(sums[j], left, right);
        }
    }
}

/* Store the warp's rows from row `first` on, each times its factor. to: the sample's first row, at
 * the head's first column */
template <int COLUMNS>
static __device__ __forceinline__ void store_rows(const float sums[tensor_tile<COLUMNS>::ACROSS][4],
                                                  const float factor[2], bf16 *to, int64_t stride,
                                                  int64_t first, int64_t n, int64_t head_dim)
{
    FL_UNROLL
    for (int j = 0; j < tensor_tile<COLUMNS>::ACROSS; j++) {
        FL_UNROLL
        for (int i = 0; i < 4; i++) {
            int64_t row = first + group_here() + half_of(i) * 8;
            int column = column_of(j, i);
            if (row < n && column < head_dim) {
                store(to + row * stride + column, sums[j][i] * factor[half_of(i)]);
            }
        }
    }
}

#endif
