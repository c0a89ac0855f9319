/* Matrix products of bf16 numbers, summed in fp32: gemm.c's way, on pairs of numbers.
 *
 *   1. b is cut and packed into panels as there, but a panel holds pairs: those of the depths 2 p
 *      and 2 p + 1 of a column in one lane. Weights are fp32 in memory and are rounded here;
 *   2. the rows of a are taken as they lie where their depth is contiguous. Where it is not (the
 *      gradient of a weight), a block of them is packed into pairs, too, and summed over the depth;
 *   3. each tile's sums begin at the bias, or where the block of depth before has left them in the
 *      workspace, and stay in registers. They end rounded in y, in the workspace where an
 *      activation or another block follows, or added to an fp32 matrix.
 *
 * A sum runs over the pairs in order (v_dot2), through blocks of depth as well: its bits depend on
 * its row and its column alone. A matrix that is added to gets one sum for each block; the cuts
 * depend on the depth alone. */
#include "device/cpu/isa/activation.h"
#include "device/cpu/isa/element.h"
#include "device/cpu/isa/passes.h"
#include "device/cpu/isa/tile.h"

#if FL_LANES == 16
#define FL_TILE_VECS 4
#else
#define FL_TILE_VECS 2
#endif
enum { TILE_ROWS = 6, TILE_VECS = FL_TILE_VECS, TILE_COLS = TILE_VECS * LANES };

/* In pairs: the depth and the size of a block of b, and the size of a block of a. */
enum { BLOCK_DEPTH = 512, BLOCK_SIZE = 64 * 1024, ROWS_SIZE = 32 * 1024 };

/* How a product is cut; depths in pairs. */
typedef struct cuts {
    int64_t all, depth, width, rows;
} cuts;

static cuts cuts_of(const fl__gemm_bf16 *g)
{
    cuts c = {.all = (g->k + 1) / 2};
    c.depth = fl__even_cut(c.all, BLOCK_DEPTH, 1);
    c.width = fl__even_cut(g->n, BLOCK_SIZE / c.depth / TILE_COLS * TILE_COLS, TILE_COLS);
    c.rows = fl__even_cut(g->m, ROWS_SIZE / c.depth / TILE_ROWS * TILE_ROWS, TILE_ROWS);
    return c;
}

/* What the workspace holds, in 32-bit words. */
enum {
    PANELS = BLOCK_SIZE + BLOCK_DEPTH * TILE_COLS,
    PACKED_ROWS = ROWS_SIZE + BLOCK_DEPTH * (TILE_ROWS + LANES)
};

/* Sums between two blocks of depth are kept only where y cannot hold them. */
static bool keeps_sums(const fl__gemm_bf16 *g, const cuts *c)
{
    return g->y != NULL && c->depth < c->all;
}

size_t FL_ISA_NAME(gemm_bf16_workspace)(const fl__gemm_bf16 *g)
{
    if (g->m == 0 || g->n == 0 || g->k == 0) {
        return 0;
    }
    cuts c = cuts_of(g);
    int64_t sums = keeps_sums(g, &c) ? g->m * c.width : 0;
    return (size_t)(PANELS + PACKED_ROWS + sums) * sizeof(uint32_t);
}

/* ---- 1 and 2: pairs ---- */

FL_INLINE void u_store(uint32_t *p, vu x)
{
    *(vu_any *)p = x;
}

/* Columns are contiguous: to[p * room + j] is the pair of rows 2 p and 2 p + 1 of x at column j;
 * zeros beyond the last column and beyond the last of `depth` rows. */
FL_INLINE void pack_straight(const fl_dtype type, const void *x, int64_t x_k, int64_t depth,
                             int64_t cols, int64_t room, uint32_t *to)
{
    for (int64_t k = 0; k < depth; k += 2) {
        int64_t at = k * x_k;
        for (int64_t j = 0; j < room; j += LANES) {
            vu lower = h_of_left(type, x, at + j, cols - j);
            vu upper = {0};
            if (k + 1 < depth) {
                upper = h_of_left(type, x, at + x_k + j, cols - j);
            }
            u_store(to + j, lower | upper << 16);
        }
        to += room;
    }
}

/* Columns are apart, depth is contiguous: LANES columns x 2 LANES of depth, turned over. */
FL_INLINE void turn_block(const bool whole, const float *b, int64_t b_col, int64_t depth,
                          int64_t cols, uint32_t *panel)
{
    vf x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        const float *from = b + i * b_col;
        int64_t left = whole ? 2 * LANES : i < cols ? depth : 0;
        x[i] = (vf)pairs_of(v_load_left(from, left), v_load_left(from + LANES, left - LANES));
    }
    v_transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        if (whole || 2 * i < depth) {
            u_store(panel + i * TILE_COLS, (vu)x[i]);
        }
    }
}

static void pack_turned(const float *b, int64_t b_col, int64_t depth, int64_t cols, uint32_t *panel)
{
    for (int64_t j = 0; j < TILE_COLS; j += LANES) {
        for (int64_t k = 0; k < depth; k += 2 * LANES) {
            const float *from = b + j * b_col + k;
            uint32_t *to = panel + k / 2 * TILE_COLS + j;
            if (depth - k >= 2 * LANES && cols - j >= LANES) {
                turn_block(true, from, b_col, 2 * LANES, LANES, to);
            } else {
                turn_block(false, from, b_col, depth - k, cols - j, to);
            }
        }
    }
}

/* Depths [k, k + depth) of columns [col, col + cols). */
static void pack(const fl__gemm_bf16 *g, int64_t k, int64_t depth, int64_t col, int64_t cols,
                 uint32_t *panels)
{
    for (int64_t j = 0; j < cols; j += TILE_COLS) {
        int64_t at = k * g->b_k + (col + j) * g->b_col;
        if (g->b_col != 1) {
            pack_turned((const float *)g->b + at, g->b_col, depth, cols - j, panels);
        } else if (g->b_type == FL_BF16) {
            pack_straight(FL_BF16, (const uint16_t *)g->b + at, g->b_k, depth, cols - j, TILE_COLS,
                          panels);
        } else {
            pack_straight(FL_F32, (const float *)g->b + at, g->b_k, depth, cols - j, TILE_COLS,
                          panels);
        }
        panels += (depth + 1) / 2 * TILE_COLS;
    }
}

/* sums[i] += the sum over the depth of packed row i. */
static void sum_packed(const uint32_t *packed, int64_t pairs, int64_t room, float *sums, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vf s = v_load_left(sums + i, n - i);
        for (int64_t p = 0; p < pairs; p++) {
            vu pair = *(const vu_any *)(packed + p * room + i);
            s += (vf)(pair << 16);
            s += (vf)(pair & 0xFFFF0000u);
        }
        v_store_left(sums + i, s, n - i);
    }
}

/* Rows of a as a tile reads them: pair p of row i lies at `at` + i * row + p * pair, in bytes. */
typedef struct pair_rows {
    const unsigned char *at;
    int64_t row, pair;
    bool odd; /* the last pair has only its first number */
} pair_rows;

/* Rows [row, end), depths [k, k + depth). first: these columns are the first ones. */
static pair_rows rows_of(const fl__gemm_bf16 *g, int64_t row, int64_t end, int64_t k, int64_t depth,
                         bool first, uint32_t *packed)
{
    const uint16_t *a = g->a + row * g->a_row + k * g->a_k;
    if (g->a_row != 1) {
        return (pair_rows){(const unsigned char *)a, 2 * g->a_row, 4, depth % 2 == 1};
    }
    int64_t room = (end - row + LANES - 1) / LANES * LANES;
    pack_straight(FL_BF16, a, g->a_k, depth, end - row, room, packed);
    if (first && g->a_sums != NULL) {
        sum_packed(packed, (depth + 1) / 2, room, g->a_sums + row, end - row);
    }
    return (pair_rows){(const unsigned char *)packed, 4, 4 * room, false};
}

/* ---- 3: one tile ---- */

/* The sums of row i begin at from + i * from_row (NULL: zero). They go rounded to y (not NULL),
 * with `start` added, or to `sums`, added to what is there where `add`. */
typedef struct place {
    pair_rows a;
    const uint32_t *panel;
    int64_t pairs, cols;
    const float *from;
    int64_t from_row;
    const uint16_t *start;
    uint16_t *y;
    int64_t y_row; /* of start, too */
    float *sums;
    int64_t sums_row;
    bool add;
} place;

FL_INLINE vu all_of(const unsigned char *p)
{
    uint32_t pair;
    memcpy(&pair, p, sizeof pair);
    return pair - (vu){0};
}

FL_INLINE vu first_of(const unsigned char *p)
{
    uint16_t number;
    memcpy(&number, p, sizeof number);
    return (uint32_t)number - (vu){0};
}

FL_INLINE void add_pair(const int rows, const bool odd, const place *p, int64_t k, vf *sum)
{
    const unsigned char *a = p->a.at + k * p->a.pair;
    vu right[TILE_VECS];
#pragma GCC unroll 4
    for (int v = 0; v < TILE_VECS; v++) {
        right[v] = *(const vu_any *)(p->panel + k * TILE_COLS + v * LANES);
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        vu left = odd ? first_of(a + i * p->a.row) : all_of(a + i * p->a.row);
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECS; v++) {
            sum[i * TILE_VECS + v] = v_dot2(sum[i * TILE_VECS + v], left, right[v]);
        }
    }
}

FL_INLINE void end_tile(const int rows, const int64_t cols, const place *p, const vf *sum)
{
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECS; v++) {
            int64_t left = cols - v * LANES, at = i * p->y_row + v * LANES;
            vf x = sum[i * TILE_VECS + v];
            if (p->y != NULL) {
                if (p->start != NULL) {
                    x += e_load_left(FL_BF16, p->start, at, left);
                }
                e_store_left(FL_BF16, p->y, at, x, left);
            } else {
                float *to = p->sums + i * p->sums_row + v * LANES;
                v_store_left(to, p->add ? (vf)(v_load_left(to, left) + x) : x, left);
            }
        }
    }
}

FL_INLINE void tile(const int rows, const int64_t cols, const place *p)
{
    vf sum[TILE_ROWS * TILE_VECS];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECS; v++) {
            sum[i * TILE_VECS + v] =
                p->from == NULL
                    ? (vf){0}
                    : v_load_left(p->from + i * p->from_row + v * LANES, cols - v * LANES);
        }
    }
    int64_t whole = p->pairs - p->a.odd;
    for (int64_t k = 0; k < whole; k++) {
        add_pair(rows, false, p, k, sum);
    }
    if (p->a.odd) {
        add_pair(rows, true, p, whole, sum);
    }
    end_tile(rows, cols, p, sum);
}

static void run_tile(int rows, const place *p)
{
    if (rows == TILE_ROWS && p->cols >= TILE_COLS) {
        tile(TILE_ROWS, TILE_COLS, p);
        return;
    }
    switch (rows) {
#define FL_TILE_CASE(count)                                                                        \
    case count:                                                                                    \
        tile(count, p->cols, p);                                                                   \
        break;
        FL_TILE_CASE(1)
        FL_TILE_CASE(2)
        FL_TILE_CASE(3)
        FL_TILE_CASE(4)
        FL_TILE_CASE(5)
        FL_TILE_CASE(6)
#undef FL_TILE_CASE
    }
}

/* y and pre at row `at` from the sums of a tile. */
FL_INLINE void activate_tile(const fl_activation kind, int rows, int64_t cols,
                             const fl__gemm_bf16 *g, int64_t at, const float *sums)
{
    for (int i = 0; i < rows; i++, at += g->n, sums += TILE_COLS) {
        for (int64_t j = 0; j < cols && j < TILE_COLS; j += LANES) {
            vf x = v_load_left(sums + j, cols - j);
            if (g->pre != NULL) {
                e_store_left(FL_BF16, g->pre, at + j, x, cols - j);
            }
            e_store_left(FL_BF16, g->y, at + j, activation_of(kind, x, NULL), cols - j);
        }
    }
}

static void run_activated(int rows, const fl__gemm_bf16 *g, place *p, int64_t at)
{
    float sums[TILE_ROWS * TILE_COLS] __attribute__((aligned(64)));
    p->sums = sums;
    p->sums_row = TILE_COLS;
    run_tile(rows, p);
    switch (g->activation) {
#define FL_CASE(name)                                                                              \
    case name:                                                                                     \
        activate_tile(name, rows, p->cols, g, at, sums);                                           \
        break;
        FL_EACH_ACTIVATION(FL_CASE)
#undef FL_CASE
    }
}

/* ---- the blocks ---- */

/* Of columns [col, col + cols): `pairs` of depth, the first and the last of all or not. */
typedef struct slab {
    int64_t col, cols, pairs;
    bool first, last;
    const uint32_t *panels;
    float *sums; /* of all rows, `cols` apart; NULL: none are kept */
} slab;

/* Rows row .. row + rows - 1 and the panel of the slab's column j. */
static void run_place(const fl__gemm_bf16 *g, const slab *s, pair_rows a, int64_t row, int rows,
                      int64_t j)
{
    int64_t at = row * g->n + s->col + j;
    float *kept = s->sums == NULL ? NULL : s->sums + row * s->cols + j;
    place p = {.a = a, .panel = s->panels + j * s->pairs, .pairs = s->pairs, .cols = s->cols - j};
    if (g->y == NULL) {
        p.sums = g->sums + at;
        p.sums_row = g->n;
        p.add = true;
    } else if (s->first) {
        p.from = g->bias == NULL ? NULL : g->bias + s->col + j;
    } else {
        p.from = kept;
        p.from_row = s->cols;
    }
    if (g->y != NULL && s->last && (g->activation != FL_ACT_NONE || g->pre != NULL)) {
        run_activated(rows, g, &p, at);
        return;
    }
    if (g->y != NULL && s->last) {
        p.y = g->y + at;
        p.y_row = g->n;
        p.start = g->start == NULL ? NULL : g->start + at;
    } else if (g->y != NULL) {
        p.sums = kept;
        p.sums_row = s->cols;
    }
    run_tile(rows, &p);
}

static void run_rows(const fl__gemm_bf16 *g, const slab *s, pair_rows a, int64_t row, int64_t end)
{
    for (int64_t j = 0; j < s->cols; j += TILE_COLS) {
        pair_rows at = a;
        for (int64_t i = row; i < end; i += TILE_ROWS) {
            run_place(g, s, at, i, (int)(end - i < TILE_ROWS ? end - i : TILE_ROWS), j);
            at.at += TILE_ROWS * a.row;
        }
    }
}

void FL_ISA_NAME(gemm_bf16)(const fl__gemm_bf16 *g, void *workspace)
{
    if (g->m == 0 || g->n == 0 || g->k == 0) {
        return;
    }
    const cuts c = cuts_of(g);
    uint32_t *panels = workspace, *packed = panels + PANELS;
    float *sums = keeps_sums(g, &c) ? (float *)(void *)(packed + PACKED_ROWS) : NULL;
    for (int64_t col = 0; col < g->n; col += c.width) {
        slab s = {.col = col, .panels = panels, .sums = sums};
        s.cols = g->n - col < c.width ? g->n - col : c.width;
        for (int64_t at = 0; at < c.all; at += c.depth) {
            int64_t k = 2 * at, depth = g->k - k < 2 * c.depth ? g->k - k : 2 * c.depth;
            s.pairs = (depth + 1) / 2;
            s.first = at == 0;
            s.last = at + s.pairs == c.all;
            pack(g, k, depth, col, s.cols, panels);
            for (int64_t row = 0; row < g->m; row += c.rows) {
                int64_t end = g->m - row < c.rows ? g->m : row + c.rows;
                run_rows(g, &s, rows_of(g, row, end, k, depth, col == 0, packed), row, end);
            }
        }
    }
}
