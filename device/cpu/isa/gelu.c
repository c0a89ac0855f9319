/* The way back through GELU; the way there is the end of a product (gemm.c). */
#include "device/cpu/isa/gelu.h"
#include "device/cpu/isa/passes.h"

void FL_ISA_NAME(gelu_backward)(const float *grad_y, const float *pre, float *grad_pre, float *y,
                                int64_t n)
{
    int64_t i = 0;
    vf again;
    for (; i + LANES <= n; i += LANES) {
        v_store(grad_pre + i, v_load(grad_y + i) * gelu_slope(v_load(pre + i), &again));
        if (y != NULL) {
            v_store(y + i, again);
        }
    }
    if (i < n) {
        vf slope = gelu_slope(v_load_part(pre + i, n - i), &again);
        v_store_part(grad_pre + i, v_load_part(grad_y + i, n - i) * slope, n - i);
        if (y != NULL) {
            v_store_part(y + i, again, n - i);
        }
    }
}
