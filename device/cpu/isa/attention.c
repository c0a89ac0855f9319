/* Softmax attention of one (sample, head), without a matrix of all scores.
 *
 * Queries are taken in blocks of QUERIES. The scores of a block stand turned over, [key][query], a
 * query in each vector lane: then the largest score, the sum of the powers and, backward, delta are
 * sums down the columns, and no step adds across lanes. Lanes beyond the last query hold finite
 * numbers that nobody reads.
 *
 *   forward     1. turned = Q^T (scaled)   2. S^T = K Q^T    3. P^T = softmax   4. Y = P V
 *   backward    5. P^T = 2^(S^T - lse)     6. dP^T = V dY^T  7. delta = sum of P dP over the keys
 *               8. dV += P^T dY            9. dS^T = P (dP - delta) scale
 *              10. dQ = dS K              11. dK += dS^T Q
 *
 * Scores are kept times log2(e), so that the powers are of two. Probabilities are recomputed in the
 * way back from lse, as in Dao et al., arXiv 2205.14135. The result of a row depends on its sample
 * alone. */
#include "device/cpu/isa/passes.h"
#include "device/cpu/isa/tile.h"

#include <math.h>

/* Rows of a tile two vectors wide that the registers hold: 28 of 32 with AVX-512, 12 of 16
 * elsewhere.
 */
#if FL_LANES == 16
#define FL_TILE_ROWS 14
#else
#define FL_TILE_ROWS 6
#endif
enum { QUERIES = 2 * LANES, TILE_ROWS = FL_TILE_ROWS, TILE_COLS = 2 * LANES };

/* X(rows) for each height of a tile. */
#if FL_LANES == 16
#define FL_TALL_TILES(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define FL_TALL_TILES(X)
#endif
#define FL_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) FL_TALL_TILES(X)

static const float log2_e = 1.44269504f, ln_2 = 0.693147181f;

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

static int64_t padded(int64_t head_dim)
{
    return (head_dim + LANES - 1) / LANES * LANES;
}

size_t FL_ISA_NAME(attention_workspace)(int64_t n_tokens, int64_t head_dim, bool backward)
{
    /* turned q (and dY), S^T (and dP^T), padded rows of v (and q, k, dY) */
    int64_t floats = (head_dim + n_tokens) * QUERIES + n_tokens * padded(head_dim);
    if (backward) {
        floats = 2 * (head_dim + n_tokens) * QUERIES + 3 * n_tokens * padded(head_dim);
    }
    return (size_t)floats * sizeof(float);
}

static float *take(float **workspace, int64_t floats)
{
    float *p = *workspace;
    *workspace += floats;
    return p;
}

/* ---- products ---- */

typedef struct product {
    const float *a;
    int64_t a_row, a_k;
    const float *b;
    int64_t b_k, depth;
    float *y;
    int64_t y_row, cols;
    bool add; /* to y */
} product;

FL_INLINE void tile(const int count, const int vecs, const product *p)
{
    vf sum[TILE_ROWS * 2];
#pragma GCC unroll 28
    for (int i = 0; i < count * vecs; i++) {
        sum[i] = (vf){0};
    }
    tile_sums(count, vecs, p->a, p->a_row, p->a_k, p->b, p->b_k, p->depth, sum);
#pragma GCC unroll 14
    for (int i = 0; i < count; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            float *y = p->y + i * p->y_row + v * LANES;
            int64_t left = p->cols - v * LANES;
            vf x = sum[i * vecs + v];
            v_store_left(y, p->add ? (vf)(v_load_left(y, left) + x) : x, left);
        }
    }
}

static void run_tile(int64_t count, const product *p)
{
    if (p->cols > LANES) {
        switch (count) {
#define FL_TILE_CASE(n)                                                                            \
    case n:                                                                                        \
        tile(n, 2, p);                                                                             \
        break;
            FL_TILES(FL_TILE_CASE)
#undef FL_TILE_CASE
        }
    } else {
        switch (count) {
#define FL_TILE_CASE(n)                                                                            \
    case n:                                                                                        \
        tile(n, 1, p);                                                                             \
        break;
            FL_TILES(FL_TILE_CASE)
#undef FL_TILE_CASE
        }
    }
}

/* y[m, cols] (+)= a b, in tiles of nearly equal height. */
static void multiply(int64_t m, product p)
{
    int64_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS;
    const float *a = p.a;
    float *y = p.y;
    for (int64_t cols = p.cols; p.cols > 0; p.cols -= TILE_COLS) {
        int64_t j = cols - p.cols, row = 0;
        for (int64_t t = 0; t < tiles; t++) {
            int64_t end = m * (t + 1) / tiles;
            p.a = a + row * p.a_row;
            p.y = y + row * p.y_row + j;
            run_tile(end - row, &p);
            row = end;
        }
        p.b += TILE_COLS;
    }
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
static void turn(const float *x, int64_t row, const block *b, int64_t head_dim, float scale,
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
static rows whole_rows(const float *x, int64_t row, int64_t n, int64_t head_dim, float **workspace)
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

static block block_at(const fl__attention_head *h, int64_t first)
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
static void scores(const fl__attention_head *h, const block *b, const float *turned, float *s)
{
    multiply(b->n_keys, (product){.a = h->k,
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

/* ---- 3: softmax down the columns ---- */

FL_INLINE void softmax(const bool causal, const fl__attention_head *h, const block *b, int64_t lane,
                       float *s)
{
    vf top = v_all(-INFINITY), sum = {0};
    for (int64_t key = 0; key < b->n_keys; key++) {
        top = v_max(top, seen(causal, b, key, lane, v_load(s + key * QUERIES), -INFINITY));
    }
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = s + key * QUERIES;
        vf p = seen(causal, b, key, lane, v_exp2(v_load(at) - top), 0.0f);
        sum += p;
        v_store(at, p);
    }
    vf share = 1.0f / sum;
    for (int64_t key = 0; key < b->n_keys; key++) {
        v_store(s + key * QUERIES, v_load(s + key * QUERIES) * share);
    }
    if (h->lse != NULL) {
        float lse[LANES];
        v_store(lse, (top + v_log2(sum)) * ln_2);
        for (int64_t i = 0; i < LANES && lane + i < b->count; i++) {
            h->lse[(b->first + lane + i) * h->heads] = lse[i];
        }
    }
}

void FL_ISA_NAME(attention)(const fl__attention_head *h, float *workspace)
{
    float scale = log2_e / sqrtf((float)h->head_dim);
    float *turned = take(&workspace, h->head_dim * QUERIES);
    float *s = take(&workspace, h->n_tokens * QUERIES);
    rows v = whole_rows(h->v, 3 * h->width, h->n_tokens, h->head_dim, &workspace);
    for (int64_t first = 0; first < h->n_tokens; first += QUERIES) {
        block b = block_at(h, first);
        turn(h->q, 3 * h->width, &b, h->head_dim, scale, turned);
        scores(h, &b, turned, s);
        for (int64_t lane = 0; lane < b.vectors * LANES; lane += LANES) {
            if (h->causal) {
                softmax(true, h, &b, lane, s + lane);
            } else {
                softmax(false, h, &b, lane, s + lane);
            }
        }
        multiply(b.count, (product){.a = s,
                                    .a_row = 1,
                                    .a_k = QUERIES,
                                    .b = v.at,
                                    .b_k = v.row,
                                    .depth = b.n_keys,
                                    .y = h->y + first * h->width,
                                    .y_row = h->width,
                                    .cols = h->head_dim});
    }
}

/* ---- backward ---- */

/* 5, 7 and 9: s becomes P, and dP becomes dS. Both dP and so delta and dS come with the scale of
 * the scores, which the turned dY brings along. */
FL_INLINE void grad_scores(const bool causal, const fl__attention_head *h, const block *b,
                           int64_t lane, float *s, float *ds)
{
    float lse[LANES] = {0};
    for (int64_t i = 0; i < LANES && lane + i < b->count; i++) {
        lse[i] = h->lse_in[(b->first + lane + i) * h->heads];
    }
    vf top = v_load(lse) * log2_e, delta = {0};
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = s + key * QUERIES;
        vf p = seen(causal, b, key, lane, v_exp2(v_load(at) - top), 0.0f);
        delta += p * v_load(ds + key * QUERIES);
        v_store(at, p);
    }
    for (int64_t key = 0; key < b->n_keys; key++) {
        float *at = ds + key * QUERIES;
        v_store(at, v_load(s + key * QUERIES) * (v_load(at) - delta));
    }
}

/* 8 and 11: grad[key] (+)= sum over the block's queries of s[key][query] x[query]. Keys that a
 * block is the first to see start from nothing. */
static void to_keys(const block *b, const float *s, rows x, int64_t row, int64_t head_dim,
                    float *grad, bool causal)
{
    product p = {
        .a = s,
        .a_row = QUERIES,
        .a_k = 1,
        .b = x.at + b->first * x.row,
        .b_k = x.row,
        .depth = b->count,
        .y = grad,
        .y_row = row,
        .cols = head_dim,
        .add = b->first > 0,
    };
    int64_t known = !causal || b->first == 0 ? b->n_keys : b->first;
    multiply(known, p);
    if (known < b->n_keys) {
        p.a += known * QUERIES;
        p.y += known * row;
        p.add = false;
        multiply(b->n_keys - known, p);
    }
}

typedef struct backward_work {
    float *turned_q, *turned_g, *s, *ds;
    rows q, k, g;
    float scale;
} backward_work;

static void backward_block(const fl__attention_head *h, const backward_work *w, const block *b)
{
    int64_t row = 3 * h->width, D = h->head_dim;
    turn(h->q, row, b, D, w->scale * log2_e, w->turned_q);
    turn(h->grad_y, h->width, b, D, w->scale, w->turned_g);
    scores(h, b, w->turned_q, w->s);
    multiply(b->n_keys, (product){.a = h->v,
                                  .a_row = row,
                                  .a_k = 1,
                                  .b = w->turned_g,
                                  .b_k = QUERIES,
                                  .depth = D,
                                  .y = w->ds,
                                  .y_row = QUERIES,
                                  .cols = b->vectors * LANES});
    for (int64_t lane = 0; lane < b->vectors * LANES; lane += LANES) {
        if (h->causal) {
            grad_scores(true, h, b, lane, w->s + lane, w->ds + lane);
        } else {
            grad_scores(false, h, b, lane, w->s + lane, w->ds + lane);
        }
    }
    to_keys(b, w->s, w->g, row, D, h->grad_v, h->causal);
    to_keys(b, w->ds, w->q, row, D, h->grad_k, h->causal);
    multiply(b->count, (product){.a = w->ds,
                                 .a_row = 1,
                                 .a_k = QUERIES,
                                 .b = w->k.at,
                                 .b_k = w->k.row,
                                 .depth = b->n_keys,
                                 .y = h->grad_q + b->first * row,
                                 .y_row = row,
                                 .cols = D});
}

void FL_ISA_NAME(attention_backward)(const fl__attention_head *h, float *workspace)
{
    int64_t row = 3 * h->width, T = h->n_tokens, D = h->head_dim;
    backward_work w = {
        .turned_q = take(&workspace, D * QUERIES),
        .turned_g = take(&workspace, D * QUERIES),
        .s = take(&workspace, T * QUERIES),
        .ds = take(&workspace, T * QUERIES),
        .q = whole_rows(h->q, row, T, D, &workspace),
        .k = whole_rows(h->k, row, T, D, &workspace),
        .g = whole_rows(h->grad_y, h->width, T, D, &workspace),
        .scale = 1.0f / sqrtf((float)D),
    };
    for (int64_t first = 0; first < T; first += QUERIES) {
        block b = block_at(h, first);
        backward_block(h, &w, &b);
    }
}
