/* Matrix products y = start + a b (+ bias, then an activation), blocked for the caches.
 *
 *   1. b is cut into blocks of at most BLOCK_DEPTH x (BLOCK_SIZE / depth) and each is packed into
 *      panels of TILE_COLS columns, so that a tile reads it in order from the second-level cache;
 *   2. the rows of a are taken in blocks that lie in the second-level cache beside it;
 *   3. each tile of sums starts at `start` (or at y, from the second block of depth on), stays in
 *      registers over the depth, and is finished while it is in the first-level cache.
 *
 * The cuts of the depth depend on the depth alone, so neither the rows computed together nor the
 * number of threads changes a bit.
 * Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008. */
#include "device/cpu/isa/activation.h"
#include "device/cpu/isa/passes.h"
#include "device/cpu/isa/tile.h"

/* Tiles that fill the registers and need few loads a multiplication: 24 sums, 4 and 1 operands of
 * 32 registers with AVX-512, 12, 2 and 1 of 16 elsewhere. */
#if FL_LANES == 16
#define FL_TILE_VECS 4
#else
#define FL_TILE_VECS 2
#endif
enum { TILE_ROWS = 6, TILE_VECS = FL_TILE_VECS, TILE_COLS = TILE_VECS * LANES };

enum { BLOCK_DEPTH = 512, BLOCK_SIZE = 128 * 1024, ROWS_SIZE = 64 * 1024 };

size_t FL_ISA_NAME(gemm_workspace)(void)
{
    return (BLOCK_SIZE + BLOCK_DEPTH * TILE_COLS) * sizeof(float);
}

/* Columns are apart in memory, depth is contiguous: LANES x LANES blocks are turned over. `whole`
 * says that a block is full, so that no element of it needs a question. */
FL_INLINE void turn_block(const bool whole, const float *b, int64_t b_col, int64_t depth,
                          int64_t cols, float *panel)
{
    vf x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        const float *from = b + i * b_col;
        x[i] = whole ? v_load(from) : i < cols ? v_load_left(from, depth) : (vf){0};
    }
    v_transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        if (whole || i < depth) {
            v_store(panel + i * TILE_COLS, x[i]);
        }
    }
}

static void pack_turned(const float *b, int64_t b_col, int64_t depth, int64_t cols, float *panel)
{
    for (int64_t j = 0; j < TILE_COLS; j += LANES) {
        for (int64_t k = 0; k < depth; k += LANES) {
            const float *from = b + j * b_col + k;
            float *to = panel + k * TILE_COLS + j;
            if (depth - k >= LANES && cols - j >= LANES) {
                turn_block(true, from, b_col, LANES, LANES, to);
            } else {
                turn_block(false, from, b_col, depth - k, cols - j, to);
            }
        }
    }
}

/* Columns are contiguous. */
static void pack_straight(const float *b, int64_t b_k, int64_t depth, int64_t cols, float *panel)
{
    for (int64_t k = 0; k < depth; k++) {
        const float *from = b + k * b_k;
#pragma GCC unroll 4
        for (int64_t j = 0; j < TILE_COLS; j += LANES) {
            v_store(panel + j, v_load_left(from + j, cols - j));
        }
        panel += TILE_COLS;
    }
}

static void pack(const fl__gemm *g, int64_t k, int64_t depth, int64_t col, int64_t cols,
                 float *panels)
{
    for (int64_t j = 0; j < cols; j += TILE_COLS) {
        const float *from = g->b + k * g->b_k + (col + j) * g->b_col;
        if (g->b_col == 1) {
            pack_straight(from, g->b_k, depth, cols - j, panels);
        } else {
            pack_turned(from, g->b_col, depth, cols - j, panels);
        }
        panels += depth * TILE_COLS;
    }
}

/* ---- 3: one tile ---- */

/* Where a tile stands: its sums start at `start` (NULL: zero) and go to y, both g->n apart. */
typedef struct place {
    const float *a, *panel, *start, *bias;
    float *pre, *y;
    int64_t depth, cols;
    fl_activation activation;
} place;

/* The rows of y, and of what is added to it, are on their way while the sums are formed. */
FL_INLINE void prefetch_rows(const int rows, const float *p, int64_t row)
{
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < TILE_COLS; j += LANES) {
            __builtin_prefetch(p + i * row + j);
        }
    }
}

FL_INLINE void tile(const int rows, const int64_t cols, const fl__gemm *g, const place *p)
{
    vf sum[TILE_ROWS * TILE_VECS];
    prefetch_rows(rows, p->y, g->n);
    if (p->start != NULL && p->start != p->y) {
        prefetch_rows(rows, p->start, g->n);
    }
    if (p->pre != NULL) {
        prefetch_rows(rows, p->pre, g->n);
    }
#pragma GCC unroll 4
    for (int v = 0; v < TILE_VECS; v++) {
        vf bias = p->bias == NULL ? (vf){0} : v_load_left(p->bias + v * LANES, cols - v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            sum[i * TILE_VECS + v] = bias;
        }
    }
    tile_sums(rows, TILE_VECS, p->a, g->a_row, g->a_k, p->panel, TILE_COLS, p->depth, sum);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECS; v++) {
            int64_t at = i * g->n + v * LANES, left = cols - v * LANES;
            vf x = sum[i * TILE_VECS + v];
            if (p->start != NULL) {
                x += v_load_left(p->start + at, left);
            }
            v_store_left(p->y + at, x, left);
        }
    }
}

FL_INLINE void activate_tile(const fl_activation kind, int rows, int64_t n, const place *p)
{
    for (int i = 0; i < rows; i++) {
        float *y = p->y + i * n, *pre = p->pre == NULL ? NULL : p->pre + i * n;
        for (int64_t j = 0; j < p->cols && j < TILE_COLS; j += LANES) {
            vf x = v_load_left(y + j, p->cols - j);
            if (pre != NULL) {
                v_store_left(pre + j, x, p->cols - j);
            }
            v_store_left(y + j, activation_of(kind, x, NULL), p->cols - j);
        }
    }
}

static void finish_tile(int rows, int64_t n, const place *p)
{
    switch (p->activation) {
#define FL_CASE(name)                                                                              \
    case name:                                                                                     \
        activate_tile(name, rows, n, p);                                                           \
        break;
        FL_EACH_ACTIVATION(FL_CASE)
#undef FL_CASE
    }
}

static void run_tile(int rows, const fl__gemm *g, const place *p)
{
    if (rows == TILE_ROWS && p->cols >= TILE_COLS) {
        tile(TILE_ROWS, TILE_COLS, g, p);
    } else {
        switch (rows) {
#define FL_TILE_CASE(count)                                                                        \
    case count:                                                                                    \
        tile(count, p->cols, g, p);                                                                \
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
    if (p->activation != FL_ACT_NONE || p->pre != NULL) {
        finish_tile(rows, g->n, p);
    }
}

/* ---- 2: the blocks ---- */

/* Rows [row, end) against the packed columns [col, col + cols), depth [k, k + depth). */
static void run_rows(const fl__gemm *g, int64_t row, int64_t end, int64_t k, int64_t depth,
                     int64_t col, int64_t cols, const float *panels)
{
    bool last = k + depth == g->k;
    for (int64_t j = 0; j < cols; j += TILE_COLS) {
        for (int64_t i = row; i < end; i += TILE_ROWS) {
            int64_t at = i * g->n + col + j;
            const float *start = k > 0 ? g->y : g->start;
            place p = {
                .a = g->a + i * g->a_row + k * g->a_k,
                .panel = panels + j * depth,
                .start = start == NULL ? NULL : start + at,
                .bias = k == 0 && g->bias != NULL ? g->bias + col + j : NULL,
                .pre = last && g->pre != NULL ? g->pre + at : NULL,
                .y = g->y + at,
                .depth = depth,
                .cols = cols - j,
                .activation = last ? g->activation : FL_ACT_NONE,
            };
            run_tile((int)(end - i < TILE_ROWS ? end - i : TILE_ROWS), g, &p);
        }
    }
}

void FL_ISA_NAME(gemm)(const fl__gemm *g, float *workspace)
{
    if (g->m == 0 || g->n == 0 || g->k == 0) {
        return;
    }
    int64_t depth = fl__even_cut(g->k, BLOCK_DEPTH, 1);
    int64_t width = fl__even_cut(g->n, BLOCK_SIZE / depth / TILE_COLS * TILE_COLS, TILE_COLS);
    int64_t rows = fl__even_cut(g->m, ROWS_SIZE / depth / TILE_ROWS * TILE_ROWS, TILE_ROWS);
    for (int64_t col = 0; col < g->n; col += width) {
        int64_t cols = g->n - col < width ? g->n - col : width;
        for (int64_t k = 0; k < g->k; k += depth) {
            int64_t deep = g->k - k < depth ? g->k - k : depth;
            if (g->a_sums != NULL && col == 0) {
                FL_ISA_NAME(column_sums)(g->a + k * g->a_k, g->a_k, g->a_sums, deep, g->m);
            }
            pack(g, k, deep, col, cols, workspace);
            for (int64_t row = 0; row < g->m; row += rows) {
                int64_t end = g->m - row < rows ? g->m : row + rows;
                run_rows(g, row, end, k, deep, col, cols, workspace);
            }
        }
    }
}
