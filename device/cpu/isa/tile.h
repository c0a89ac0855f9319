/* The heart of every product: a tile of TILE_ROWS x 2 vectors of sums held in registers.
 * sum[i][.] += a[i * a_row + k * a_k] * b[k * b_k + .] for k = 0 .. depth - 1, in that order. An
 * element's sum does not depend on the tile it stands in, so a row has the same bits whichever
 * rows are computed beside it. */
#ifndef FL_DEVICE_CPU_ISA_TILE_H
#define FL_DEVICE_CPU_ISA_TILE_H

#include "device/cpu/isa/simd.h"

/* As many as the registers hold: 28 of 32 with AVX-512, 12 of 16 elsewhere. */
#if FL_LANES == 16
#define FL_TILE_ROWS 14
#else
#define FL_TILE_ROWS 6
#endif

enum { TILE_ROWS = FL_TILE_ROWS, TILE_COLS = 2 * LANES };

/* `rows` is a constant wherever this is inlined. */
FL_INLINE void tile_sums(const int rows, const float *a, int64_t a_row, int64_t a_k, const float *b,
                         int64_t b_k, int64_t depth, vf (*sum)[2])
{
    for (int64_t k = 0; k < depth; k++) {
        vf left = v_load(b), right = v_load(b + LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            vf x = v_all(a[i * a_row]);
            sum[i][0] += x * left;
            sum[i][1] += x * right;
        }
        a += a_k;
        b += b_k;
    }
}

/* The same with one vector a row. */
FL_INLINE void tile_sums_narrow(const int rows, const float *a, int64_t a_row, int64_t a_k,
                                const float *b, int64_t b_k, int64_t depth, vf *sum)
{
    for (int64_t k = 0; k < depth; k++) {
        vf left = v_load(b);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            sum[i] += v_all(a[i * a_row]) * left;
        }
        a += a_k;
        b += b_k;
    }
}

/* Call `f(rows, ...)` with a constant number of rows. */
#if FL_LANES == 16
#define FL_TILE_CASES_(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define FL_TILE_CASES_(X)
#endif
#define FL_TILE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6) FL_TILE_CASES_(X)

/* LANES x LANES block: row i of `x` becomes column i. Blocks of 1, 2, 4, ... swap across the
 * diagonal. */
FL_INLINE void v_transpose(vf x[LANES])
{
#pragma GCC unroll 4
    for (int step = 1; step < LANES; step *= 2) {
        vi low, high;
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; lane++) {
            low[lane] = (lane & step) == 0 ? lane : LANES + lane - step;
            high[lane] = (lane & step) == 0 ? lane + step : LANES + lane;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            if ((i & step) == 0) {
                vf a = x[i], b = x[i + step];
                x[i] = __builtin_shuffle(a, b, low);
                x[i + step] = __builtin_shuffle(a, b, high);
            }
        }
    }
}

#endif
