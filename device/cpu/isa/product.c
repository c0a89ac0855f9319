#include "device/cpu/isa/product.h"

#include "device/cpu/isa/tile.h"

/* Rows of a tile two vectors wide that the registers hold: 28 of 32 with AVX-512, 12 of 16
 * elsewhere.
 */
#if FL_LANES == 16
#define FL_TILE_ROWS 14
#else
#define FL_TILE_ROWS 6
#endif
enum { TILE_ROWS = FL_TILE_ROWS, TILE_COLS = 2 * LANES };

/* X(rows) for each height of a tile. */
#if FL_LANES == 16
#define FL_TALL_TILES(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define FL_TALL_TILES(X)
#endif
#define FL_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) FL_TALL_TILES(X)

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
void FL_ISA_NAME(multiply)(int64_t m, product p)
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
