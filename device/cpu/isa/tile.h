/* The heart of every product: a tile of sums held in registers, `rows` x `vecs` vectors.
 * sum[i][.] += a[i * a_row + k * a_k] * b[k * b_k + .] for k = 0 .. depth - 1, in that order. An
 * element's sum does not depend on the tile it stands in, so a row has the same bits whichever
 * rows are computed beside it. */
#ifndef FL_DEVICE_CPU_ISA_TILE_H
#define FL_DEVICE_CPU_ISA_TILE_H

#include "device/cpu/isa/simd.h"

/* n in parts of like size, at most `most` and a multiple of `grain`: the size of all but the last.
 */
FL_INLINE int64_t fl__even_cut(int64_t n, int64_t most, int64_t grain)
{
    int64_t parts = (n + most - 1) / most;
    int64_t each = (n + parts - 1) / parts;
    return (each + grain - 1) / grain * grain;
}

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

/* Rows i and i + step of each pair swap the blocks of `step` lanes that lie off the diagonal. */
#define FL_SWAP_BLOCKS(x, count, step)                                                             \
    do {                                                                                           \
        const vi low_ = FL_LANES_OF(FL_LANE_LOW, step), high_ = FL_LANES_OF(FL_LANE_HIGH, step);   \
        _Pragma("GCC unroll 16") for (int i_ = 0; i_ < (count); i_++)                              \
        {                                                                                          \
            if ((i_ & (step)) == 0) {                                                              \
                __typeof__((x)[0]) a_ = (x)[i_], b_ = (x)[i_ + (step)];                            \
                (x)[i_] = V_SHUFFLE(a_, b_, low_);                                                 \
                (x)[i_ + (step)] = V_SHUFFLE(a_, b_, high_);                                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* LANES x LANES block: row i of `x` becomes column i. */
FL_INLINE void v_transpose(vf x[LANES])
{
    FL_SWAP_BLOCKS(x, LANES, 1);
    FL_SWAP_BLOCKS(x, LANES, 2);
#if FL_LANES >= 8
    FL_SWAP_BLOCKS(x, LANES, 4);
#endif
#if FL_LANES >= 16
    FL_SWAP_BLOCKS(x, LANES, 8);
#endif
}

#endif
