/* Matrix products y = start + a b (+ bias, then GELU), blocked for the caches.
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
#include "device/cpu/isa/gelu.h"
#include "device/cpu/isa/passes.h"
#include "device/cpu/isa/tile.h"

enum { BLOCK_DEPTH = 512, BLOCK_SIZE = 64 * 1024, ROWS_SIZE = 64 * 1024 };

size_t FL_ISA_NAME(gemm_workspace)(void)
{
    return (BLOCK_SIZE + BLOCK_DEPTH * TILE_COLS) * sizeof(float);
}

/* ---- 1: packing ---- */

/* Columns are apart in memory, depth is contiguous: LANES x LANES blocks are turned over. */
static void pack_turned(const float *b, int64_t b_col, int64_t depth, int64_t cols, float *panel)
{
    for (int64_t half = 0; half < TILE_COLS; half += LANES) {
        for (int64_t k = 0; k < depth; k += LANES) {
            vf x[LANES];
            int64_t left = depth - k;
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                const float *from = b + (half + i) * b_col + k;
                if (half + i >= cols) {
                    x[i] = (vf){0};
                } else {
                    x[i] = left >= LANES ? v_load(from) : v_load_part(from, left);
                }
            }
            v_transpose(x);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                if (i < left) {
                    v_store(panel + (k + i) * TILE_COLS + half, x[i]);
                }
            }
        }
    }
}

/* Columns are contiguous. */
static void pack_straight(const float *b, int64_t b_k, int64_t depth, int64_t cols, float *panel)
{
    for (int64_t k = 0; k < depth; k++) {
        const float *from = b + k * b_k;
        if (cols >= TILE_COLS) {
            v_store(panel, v_load(from));
            v_store(panel + LANES, v_load(from + LANES));
        } else {
            int64_t right = cols - LANES;
            v_store(panel, right >= 0 ? v_load(from) : v_load_part(from, cols));
            v_store(panel + LANES, right > 0 ? v_load_part(from + LANES, right) : (vf){0});
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
    bool gelu;
} place;

FL_INLINE vf load_cols(const float *p, int64_t cols)
{
    return cols >= LANES ? v_load(p) : cols <= 0 ? (vf){0} : v_load_part(p, cols);
}

FL_INLINE void store_cols(float *p, vf x, int64_t cols)
{
    if (cols >= LANES) {
        v_store(p, x);
    } else if (cols > 0) {
        v_store_part(p, x, cols);
    }
}

FL_INLINE void tile(const int rows, const fl__gemm *g, const place *p)
{
    vf sum[TILE_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(p->y + i * g->n, 1);
        __builtin_prefetch(p->y + i * g->n + LANES, 1);
        sum[i][0] = sum[i][1] = (vf){0};
    }
    tile_sums(rows, p->a, g->a_row, g->a_k, p->panel, TILE_COLS, p->depth, sum);
    vf bias[2] = {{0}, {0}};
    if (p->bias != NULL) {
        bias[0] = load_cols(p->bias, p->cols);
        bias[1] = load_cols(p->bias + LANES, p->cols - LANES);
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *y = p->y + i * g->n;
        sum[i][0] += bias[0];
        sum[i][1] += bias[1];
        if (p->start != NULL) {
            sum[i][0] += load_cols(p->start + i * g->n, p->cols);
            sum[i][1] += load_cols(p->start + i * g->n + LANES, p->cols - LANES);
        }
        store_cols(y, sum[i][0], p->cols);
        store_cols(y + LANES, sum[i][1], p->cols - LANES);
    }
}

static void gelu_tile(int rows, int64_t n, const place *p)
{
    for (int i = 0; i < rows; i++) {
        float *y = p->y + i * n, *pre = p->pre == NULL ? NULL : p->pre + i * n;
        for (int64_t j = 0; j < p->cols && j < TILE_COLS; j += LANES) {
            vf x = load_cols(y + j, p->cols - j);
            if (pre != NULL) {
                store_cols(pre + j, x, p->cols - j);
            }
            store_cols(y + j, gelu(x), p->cols - j);
        }
    }
}

static void run_tile(int rows, const fl__gemm *g, const place *p)
{
    switch (rows) {
#define FL_TILE_CASE(count)                                                                        \
    case count:                                                                                    \
        tile(count, g, p);                                                                         \
        break;
        FL_TILE_CASES(FL_TILE_CASE)
#undef FL_TILE_CASE
    }
    if (p->gelu) {
        gelu_tile(rows, g->n, p);
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
                .bias = last && g->bias != NULL ? g->bias + col + j : NULL,
                .pre = last && g->pre != NULL ? g->pre + at : NULL,
                .y = g->y + at,
                .depth = depth,
                .cols = cols - j,
                .gelu = last && g->gelu,
            };
            run_tile((int)(end - i < TILE_ROWS ? end - i : TILE_ROWS), g, &p);
        }
    }
}

static int64_t even_cut(int64_t n, int64_t most, int64_t grain)
{
    int64_t parts = (n + most - 1) / most;
    int64_t each = (n + parts - 1) / parts;
    return (each + grain - 1) / grain * grain;
}

void FL_ISA_NAME(gemm)(const fl__gemm *g, float *workspace)
{
    if (g->m == 0 || g->n == 0 || g->k == 0) {
        return;
    }
    int64_t depth = even_cut(g->k, BLOCK_DEPTH, 1);
    int64_t width = even_cut(g->n, BLOCK_SIZE / depth / TILE_COLS * TILE_COLS, TILE_COLS);
    int64_t rows = even_cut(g->m, ROWS_SIZE / depth / TILE_ROWS * TILE_ROWS, TILE_ROWS);
    for (int64_t col = 0; col < g->n; col += width) {
        int64_t cols = g->n - col < width ? g->n - col : width;
        for (int64_t k = 0; k < g->k; k += depth) {
            int64_t deep = g->k - k < depth ? g->k - k : depth;
            pack(g, k, deep, col, cols, workspace);
            for (int64_t row = 0; row < g->m; row += rows) {
                int64_t end = g->m - row < rows ? g->m : row + rows;
                run_rows(g, row, end, k, deep, col, cols, workspace);
            }
        }
    }
}
