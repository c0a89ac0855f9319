/* Sums over rows and of two arrays. */
#include "device/cpu/isa/element.h"
#include "device/cpu/isa/passes.h"

/* `count` whole vectors of columns side by side: enough sums to hide the adder's latency, and whole
 * cache lines in order. */
FL_INLINE void sum_columns(const int count, const float *x, int64_t stride, float *sums, int64_t m)
{
    vf s[8];
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        s[i] = v_load(sums + i * LANES);
    }
    for (int64_t row = 0; row < m; row++) {
#pragma GCC unroll 8
        for (int i = 0; i < count; i++) {
            s[i] += v_load(x + row * stride + i * LANES);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        v_store(sums + i * LANES, s[i]);
    }
}

void FL_ISA_NAME(column_sums)(const float *x, int64_t stride, float *sums, int64_t m, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES) {
        sum_columns(8, x + i, stride, sums + i, m);
    }
    for (; i + LANES <= n; i += LANES) {
        sum_columns(1, x + i, stride, sums + i, m);
    }
    if (i < n) {
        vf s = v_load_part(sums + i, n - i);
        for (int64_t row = 0; row < m; row++) {
            s += v_load_part(x + row * stride + i, n - i);
        }
        v_store_part(sums + i, s, n - i);
    }
}

void FL_ISA_NAME(add)(const float *a, const float *b, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v_store(y + i, v_load(a + i) + v_load(b + i));
    }
    if (i < n) {
        v_store_part(y + i, v_load_part(a + i, n - i) + v_load_part(b + i, n - i), n - i);
    }
}

void FL_ISA_NAME(add_bf16)(const uint16_t *a, const uint16_t *b, uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vf sum = e_load_left(FL_BF16, a, i, n - i) + e_load_left(FL_BF16, b, i, n - i);
        e_store_left(FL_BF16, y, i, sum, n - i);
    }
}
