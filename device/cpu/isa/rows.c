/* Sums over rows and of two arrays. */
#include "device/cpu/isa/passes.h"

/* Column sums of `width` <= LANES columns; four rows at a time hide the adder's latency. */
FL_INLINE vf sum_columns(const float *x, int64_t stride, int64_t m, int64_t width)
{
    vf s[4] = {{0}, {0}, {0}, {0}};
    int64_t row = 0;
    for (; row + 4 <= m; row += 4) {
        for (int i = 0; i < 4; i++) {
            const float *p = x + (row + i) * stride;
            s[i] += width == LANES ? v_load(p) : v_load_part(p, width);
        }
    }
    for (; row < m; row++) {
        const float *p = x + row * stride;
        s[0] += width == LANES ? v_load(p) : v_load_part(p, width);
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

void FL_ISA_NAME(column_sums)(const float *x, int64_t stride, float *sums, int64_t m, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v_store(sums + i, v_load(sums + i) + sum_columns(x + i, stride, m, LANES));
    }
    if (i < n) {
        vf more = sum_columns(x + i, stride, m, n - i);
        v_store_part(sums + i, v_load_part(sums + i, n - i) + more, n - i);
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
