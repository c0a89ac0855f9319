/* Activations over arrays, both ways; the end of a product has them as well (gemm.c). */
#include "device/cpu/isa/activation.h"
#include "device/cpu/isa/passes.h"

FL_INLINE void forward(const fl_activation kind, const float *in, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v_store(y + i, activation_of(kind, v_load(in + i), NULL));
    }
    if (i < n) {
        v_store_part(y + i, activation_of(kind, v_load_part(in + i, n - i), NULL), n - i);
    }
}

FL_INLINE void backward(const fl_activation kind, const float *grad_y, const float *pre,
                        float *grad_pre, float *y, int64_t n)
{
    int64_t i = 0;
    vf slope;
    for (; i + LANES <= n; i += LANES) {
        vf again = activation_of(kind, v_load(pre + i), &slope);
        v_store(grad_pre + i, v_load(grad_y + i) * slope);
        if (y != NULL) {
            v_store(y + i, again);
        }
    }
    if (i < n) {
        vf again = activation_of(kind, v_load_part(pre + i, n - i), &slope);
        v_store_part(grad_pre + i, v_load_part(grad_y + i, n - i) * slope, n - i);
        if (y != NULL) {
            v_store_part(y + i, again, n - i);
        }
    }
}

void FL_ISA_NAME(activate)(fl_activation kind, const float *in, float *y, int64_t n)
{
    switch (kind) {
#define FL_CASE(name)                                                                              \
    case name:                                                                                     \
        forward(name, in, y, n);                                                                   \
        break;
        FL_EACH_ACTIVATION(FL_CASE)
#undef FL_CASE
    }
}

void FL_ISA_NAME(activate_backward)(fl_activation kind, const float *grad_y, const float *pre,
                                    float *grad_pre, float *y, int64_t n)
{
    switch (kind) {
#define FL_CASE(name)                                                                              \
    case name:                                                                                     \
        backward(name, grad_y, pre, grad_pre, y, n);                                               \
        break;
        FL_EACH_ACTIVATION(FL_CASE)
#undef FL_CASE
    }
}
