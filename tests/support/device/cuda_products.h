/* Devices whose matrix products go to the stand-in for cuBLASLt: what tests of these products
 * share. Include after cmocka.h. */
#ifndef FL_TESTS_SUPPORT_DEVICE_CUDA_PRODUCTS_H
#define FL_TESTS_SUPPORT_DEVICE_CUDA_PRODUCTS_H

#include "support/device/kernel_pairs.h"
#include "tests/shim/cublaslt/cublasLt.h"
#include "tests/shim/cublaslt_table.h"
#include "tests/shim/standin.h"

#include "device/cpu/bf16.h"
#include "device/cuda/cuda.h"

#include <string.h>

static inline fl_device *open_device(const fl_cuda_options *options)
{
    fl_device *d = NULL;
    if (fl_device_cuda_create(options, &d) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

static inline fl_device *device_of(bool tf32)
{
    const fl_cuda_options options = {
        .plugin = standin_plugin(), .budget_bytes = SIZE_MAX, .tf32 = tf32};
    return open_device(&options);
}

static inline void close_device(fl_device **d)
{
    fl_device_destroy(d);
    assert_int_equal(standin_outstanding(), 0);
}

static inline fl_device *cpu_device(void)
{
    fl_device *d = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, SIZE_MAX, &d), FL_OK);
    return d;
}

/* Every product of the table on `cuda`; FL_EINTERNAL when one is further off than `tolerance`. */
static inline fl_status run_products(fl_device *cuda, fl_dtype dtype, double tolerance)
{
    fl_device *cpu = cpu_device();
    fl_status status = FL_OK;
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        bool is_product = strncmp(pair_kernel_at(k), "linear", 6) == 0;
        for (int i = 0; is_product && pair_shape_at(i) != NULL && status == FL_OK; i++) {
            status = pair_run(k, pair_shape_at(i), dtype, cuda, cpu, tolerance);
            if (status != FL_OK && status != FL_EINTERNAL) {
                fail_msg("%s, %s: %s", pair_kernel_at(k), pair_shape_at(i)->name, fl_errmsg());
            }
        }
    }
    fl_device_destroy(&cpu);
    return status;
}

/* ---- one product, of which tests know every call ---- */

enum { ROWS = 5, IN = 40, OUT = 16 };

typedef struct one_product {
    fl_device *d;
    fl_weight w, bias;
    float *weight_data, *bias_data;
    void *in, *y, *pre;
} one_product;

static inline void *take(fl_device *d, size_t n)
{
    void *memory = NULL;
    assert_int_equal(fl_device_alloc(d, n, "an array", &memory), FL_OK);
    return memory;
}

static inline one_product product_of(fl_device *d)
{
    one_product p = {.d = d,
                     .weight_data = take(d, OUT * IN * sizeof(float)),
                     .bias_data = take(d, OUT * sizeof(float)),
                     .in = take(d, ROWS * IN * sizeof(uint16_t)),
                     .y = take(d, ROWS * OUT * sizeof(uint16_t)),
                     .pre = take(d, ROWS * OUT * sizeof(uint16_t))};
    const float one = 1.0f;
    for (int i = 0; i < ROWS * IN; i++) {
        fl_bf16_narrow(&one, 1, (uint16_t *)p.in + i);
    }
    p.w = (fl_weight){.data = p.weight_data, .rows = OUT, .cols = IN, .version = 1};
    p.bias = (fl_weight){.data = p.bias_data, .rows = 1, .cols = OUT, .version = 1};
    return p;
}

static inline void drop_product(one_product *p)
{
    p->d->ops->weight_release(p->d, &p->w);
    assert_null(p->w.pack);
    fl_device_free(p->d, p->weight_data, OUT * IN * sizeof(float));
    fl_device_free(p->d, p->bias_data, OUT * sizeof(float));
    fl_device_free(p->d, p->in, ROWS * IN * sizeof(uint16_t));
    fl_device_free(p->d, p->y, ROWS * OUT * sizeof(uint16_t));
    fl_device_free(p->d, p->pre, ROWS * OUT * sizeof(uint16_t));
}

static inline fl_status run_product(one_product *p, fl_stream *s)
{
    const fl_linear_args a = {.dtype = FL_BF16,
                              .in = p->in,
                              .w = &p->w,
                              .bias = &p->bias,
                              .activation = FL_ACT_GELU_TANH,
                              .pre = p->pre,
                              .y = p->y,
                              .m = ROWS};
    return p->d->ops->linear(p->d, s, &a);
}

/* Row 0, column 0 of the sum before the activation. */
static inline float sum_of(const one_product *p)
{
    float x;
    fl_bf16_widen(p->pre, 1, &x);
    return x;
}

#endif
