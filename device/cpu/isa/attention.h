/* Softmax attention of one (sample, head), without a matrix of all scores: what its two ways
 * (attention.c, attention_backward.c) share.
 *
 * Queries are taken in blocks of QUERIES. The scores of a block stand turned over, [key][query], a
 * query in each vector lane: then the largest score, the sum of the powers and, backward, delta are
 * sums down the columns, and no step adds across lanes. Lanes beyond the last query hold finite
 * numbers that nobody reads.
 *
 *   forward     1. turned = Q^T (scaled)   2. S^T = K Q^T    3. P^T = softmax   4. Y = P V
 *   backward    5. P^T = 2^(S^T - lse)     6. dP^T = V dY^T  7. delta = sum of P dP over the keys
 *               8. dV += P^T dY            9. dS^T = P (dP - delta)
 *              10. dQ = dS K              11. dK += dS^T Q
 *
 * Scores are kept times log2(e), so that the powers are of two; their scale comes into dS with a
 * scaled dY in 6. Backward recomputes the probabilities from lse, as in Dao et al., arXiv
 * 2205.14135. Dropout multiplies P by the mask before 4 and 8, and dP before 7; the way back draws
 * the mask again. The result of a row depends on its sample alone. */
#ifndef FL_DEVICE_CPU_ISA_ATTENTION_H
#define FL_DEVICE_CPU_ISA_ATTENTION_H

#include "device/cpu/isa/isa.h"
#include "device/cpu/isa/philox.h"
#include "device/cpu/isa/product.h"
#include "device/cpu/isa/tile.h"

#include <math.h>

enum { QUERIES = 2 * LANES };

#define FL_LOG2_E 1.44269504f
#define FL_LN_2 0.693147181f

/* Rows of `cols` floats, `row` apart, of which whole vectors may be read. */
typedef struct rows {
    const float *at;
    int64_t row;
} rows;

/* One block of queries. */
typedef struct block {
    int64_t first, count; /* queries */
    int64_t n_keys;       /* that any of them sees */
    int64_t vectors;      /* of lanes that hold queries: 1 or 2 */
} block;

static inline int64_t padded(int64_t head_dim)
{
    return (head_dim + LANES - 1) / LANES * LANES;
}

static inline float *take(float **workspace, int64_t floats)
{
    float *p = *workspace;
    *workspace += floats;
    return p;
}

/* ---- 1: operands as the products want them ---- */

/* One block of LANES queries and as many columns; what is not there becomes zero. */
FL_INLINE void turn_block(const bool whole, const float *x, int64_t row, int64_t queries,
                          int64_t cols, float scale, float *turned)
{
    vf v[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        const float *from = x + i * row;
        v[i] = whole ? v_load(from) : i < queries ? v_load_left(from, cols) : (vf){0};
        v[i] *= scale;
    }
    v_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        if (whole || i < cols) {
            v_store(turned + i * QUERIES, v[i]);
        }
    }
}

/* turned[c][query] = x[query][c] * scale. Lanes beyond the last query hold zeros, or that query. */
static inline void turn(const float *x, int64_t row, const block *b, int64_t head_dim, float scale,
                        float *turned)
{
    for (int64_t lane = 0; lane < b->vectors * LANES; lane += LANES) {
        const float *from = x + (b->first + lane) * row;
        int64_t queries = b->count - lane;
        for (int64_t c = 0; c < head_dim && queries > 1; c += LANES) {
            float *to = turned + c * QUERIES + lane;
            if (queries >= LANES && head_dim - c >= LANES) {
                turn_block(true, from + c, row, LANES, LANES, scale, to);
            } else {
                turn_block(false, from + c, row, queries, head_dim - c, scale, to);
            }
        }
        for (int64_t c = 0; c < head_dim && queries == 1; c++) {
            v_store(turned + c * QUERIES + lane, v_all(from[c] * scale));
        }
    }
}

/* Rows of which whole vectors may be read: x itself, or a copy with zeros at the end. */
static inline rows whole_rows(const float *x, int64_t row, int64_t n, int64_t head_dim,
                              float **workspace)
{
    if (head_dim % LANES == 0) {
        return (rows){x, row};
    }
    int64_t width = padded(head_dim);
    float *copy = take(workspace, n * width);
    for (int64_t i = 0; i < n; i++) {
        memcpy(copy + i * width, x + i * row, (size_t)head_dim * sizeof *x);
        memset(copy + i * width + head_dim, 0, (size_t)(width - head_dim) * sizeof *x);
    }
    return (rows){copy, width};
}

static inline block block_at(const fl__attention_head *h, int64_t first)
{
    int64_t left = h->n_tokens - first;
    int64_t count = left < QUERIES ? left : QUERIES;
    return (block){
        .first = first,
        .count = count,
        .n_keys = h->causal ? first + count : h->n_tokens,
        .vectors = count > LANES ? 2 : 1,
    };
}

/* The scores of a block: S^T = K Q^T. */
static inline void scores(const fl__attention_head *h, const block *b, const float *turned,
                          float *s)
{
    FL_ISA_NAME(multiply)
    (b->n_keys, (product){.a = h->k,
                          .a_row = 3 * h->width,
                          .a_k = 1,
                          .b = turned,
                          .b_k = QUERIES,
                          .depth = h->head_dim,
                          .y = s,
                          .y_row = QUERIES,
                          .cols = b->vectors * LANES});
}

/* x in the lanes whose query sees key `key`, `otherwise` in those whose query comes before it.
 * Elsewhere than in a causal block's own keys, all do. */
FL_INLINE vf seen(const bool causal, const block *b, int64_t key, int64_t lane, vf x,
                  float otherwise)
{
    if (!causal || key <= b->first) {
        return x;
    }
    const vi number = FL_LANES_OF(FL_LANE_NUMBER, 0);
    return v_select(number < (int32_t)(key - b->first - lane), v_all(otherwise), x);
}

/* ---- dropout of probabilities ---- */

/* The mask of one head. */
typedef struct dropping {
    philox_keys keys;
    mask_rate rate;
    uint64_t sample;
} dropping;

FL_INLINE dropping dropping_of(const fl__attention_head *h)
{
    dropping d = {.rate = mask_rate_of(h->drop), .sample = (uint64_t)h->sample};
    philox_keys_of(h->drop_key, &d.keys);
    return d;
}

enum { KEYS_A_DRAW = 8 };

/* The number of an even 32-bit lane plus x, as the lower half of a 64-bit lane. */
#define FL_EVEN_LANE(lane, x) ((lane) % 2 == 0 ? (lane) + (x) : 0)

/* The bits of the queries query .. query + LANES - 1 and of the keys 8 key_block .. 8 key_block +
 * 7: words[j / 2] has those of key j in its lower half for even j, else in its upper half. */
FL_INLINE void draw_mask(const dropping *d, int64_t query, int64_t key_block, vu words[4])
{
    const vu numbers = FL_LANES_OF(FL_EVEN_LANE, 0);
    const vq zero = {0};
    vq even = (vq)numbers + (uint64_t)query;
    vq lower[4] = {zero + (uint64_t)key_block, even, zero + d->sample, zero + (d->sample >> 32)};
    vq upper[4] = {lower[0], even + 1u, lower[2], lower[3]};
    philox(lower, &d->keys);
    philox(upper, &d->keys);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        words[i] = (vu)((lower[i] & 0xFFFFFFFFu) | upper[i] << 32);
    }
}

/* Lanes in which key j of the drawn eight is kept. */
FL_INLINE vi kept_lanes(const dropping *d, const vu words[4], int j)
{
    vu word = words[j / 2];
    vu bits = j % 2 == 0 ? (vu)(word & 0xFFFFu) : (vu)(word >> MASK_BITS);
    return (vi)bits >= d->rate.threshold;
}

#endif
