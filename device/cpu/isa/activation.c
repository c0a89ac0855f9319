/* Activations over arrays, both ways; the end of a product has them as well (gemm.c). */
#include "device/cpu/isa/activation.h"
#include "device/cpu/isa/element.h"
#include "device/cpu/isa/passes.h"

FL_INLINE void forward(const fl_activation kind, const fl_dtype type, const void *in, void *y,
                       int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vf x = e_load_left(type, in, i, n - i);
        e_store_left(type, y, i, activation_of(kind, x, NULL), n - i);
    }
}

FL_INLINE void backward(const fl_activation kind, const fl_dtype type, const void *grad_y,
                        const void *pre, void *grad_pre, void *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope, again = activation_of(kind, e_load_left(type, pre, i, n - i), &slope);
        e_store_left(type, grad_pre, i, e_load_left(type, grad_y, i, n - i) * slope, n - i);
        if (y != NULL) {
            e_store_left(type, y, i, again, n - i);
        }
    }
}

void FL_ISA_NAME(activate)(fl_activation kind, fl_dtype type, const void *in, void *y, int64_t n)
{
    switch (kind) {
#define FL_CASE(name)                                                                              \
    case name:                                                                                     \
        if (type == FL_BF16) {                                                                     \
            forward(name, FL_BF16, in, y, n);                                                      \
        } else {                                                                                   \
            forward(name, FL_F32, in, y, n);                                                       \
        }                                                                                          \
        break;
        FL_EACH_ACTIVATION(FL_CASE)
#undef FL_CASE
    }
}

void FL_ISA_NAME(activate_backward)(fl_activation kind, fl_dtype type, const void *grad_y,
                                    const void *pre, void *grad_pre, void *y, int64_t n)
{
    switch (kind) {
#define FL_CASE(name)                                                                              \
    case name:                                                                                     \
        if (type == FL_BF16) {                                                                     \
            backward(name, FL_BF16, grad_y, pre, grad_pre, y, n);                                  \
        } else {                                                                                   \
            backward(name, FL_F32, grad_y, pre, grad_pre, y, n);                                   \
        }                                                                                          \
        break;
        FL_EACH_ACTIVATION(FL_CASE)
#undef FL_CASE
    }
}
