/* The heart of every product: a tile of sums held in registers, `rows` x `vecs` vectors.
 * sum[i][.] += a[i * a_row + k * a_k] * b[k * b_k + .] for k = 0 .. depth - 1, in that order. An
 * element's sum does not depend on the tile it stands in, so a row has the same bits whichever
 * rows are computed beside it. */
#ifndef FL_DEVICE_CPU_ISA_TILE_H
#define FL_DEVICE_CPU_ISA_TILE_H

#include "device/cpu/isa/simd.h"

/* rows and vecs are constants wherever this is inlined; sum is [rows][vecs]. rows * vecs + vecs + 1
 * registers are in use. */
FL_INLINE void tile_sums(const int rows, const int vecs, const float *a, int64_t a_row, int64_t a_k,
                         const float *b, int64_t b_k, int64_t depth, vf *sum)
{
    for (int64_t k = 0; k < depth; k++) {
        vf right[4];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            right[v] = v_load(b + v * LANES);
        }
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            vf left = v_all(a[i * a_row]);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++) {
                sum[i * vecs + v] += left * right[v];
            }
        }
        a += a_k;
        b += b_k;
    }
}

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
                x[i] = V_SHUFFLE(a, b, low);
                x[i + step] = V_SHUFFLE(a, b, high);
            }
        }
    }
}

#endif
