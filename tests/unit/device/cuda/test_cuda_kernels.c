/* The CUDA kernels, compiled for the host from the source that nvcc compiles, and run by the shim,
 * which checks each access. Catches a kernel that computes something else than the CPU's, one whose
 * tiles, warps or samples end in the wrong place, a race, and an access out of bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/kernel_pairs.h"
#include "tests/shim/shim.h"
#include "tests/shim/standin.h"

#include "device/cuda/cuda.h"
#include "device/random/random.h"

#include <string.h>

static fl_device *cuda, *cpu;

static int create_devices(void **state)
{
    (void)state;
    const fl_cuda_options options = {
        .plugin = standin_plugin(), .budget_bytes = SIZE_MAX, .products = FL_CUDA_PRODUCTS_EXACT};
    return fl_device_cuda_create(&options, &cuda) == FL_OK &&
                   fl_device_cpu_create(1, NULL, SIZE_MAX, &cpu) == FL_OK
               ? 0
               : -1;
}

static int destroy_devices(void **state)
{
    (void)state;
    fl_device_destroy(&cuda);
    fl_device_destroy(&cpu);
    return 0;
}

static void run_all(fl_dtype dtype, double tolerance)
{
    int64_t before = shim_count().launches;
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        for (int i = 0; pair_shape_at(i) != NULL && (i == 0 || pair_kernel_has_shapes(k)); i++) {
            const pair_shape *shape = pair_shape_at(i);
            if (pair_run(k, shape, dtype, cuda, cpu, tolerance) != FL_OK) {
                fail_msg("%s, %s, %s: %s", pair_kernel_at(k), shape->name, fl_dtype_name(dtype),
                         fl_errmsg());
            }
        }
    }
    assert_true(shim_count().launches - before > 250);
}

static void test_cuda_kernels__agree_with_the_cpu_in_fp32(void **state)
{
    (void)state;
    int64_t before = shim_count().tensor_products;
    run_all(FL_F32, 1e-5);
    assert_int_equal(shim_count().tensor_products, before);
}

static void test_cuda_kernels__agree_with_the_cpu_in_bf16(void **state)
{
    (void)state;
    int64_t before = shim_count().tensor_products;
    run_all(FL_BF16, 1e-2);
    assert_true(shim_count().tensor_products > before);
}

/* What a device without bf16 tensor cores runs instead. */
static void test_cuda_kernels__attend_in_bf16_without_tensor_cores(void **state)
{
    (void)state;
    int64_t before = shim_count().tensor_products;
    shim_set_tensor_cores(false);
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        bool attends = strncmp(pair_kernel_at(k), "attention", 9) == 0;
        for (int i = 0; attends && pair_shape_at(i) != NULL; i++) {
            if (pair_run(k, pair_shape_at(i), FL_BF16, cuda, cpu, 1e-2) != FL_OK) {
                fail_msg("%s, %s: %s", pair_kernel_at(k), pair_shape_at(i)->name, fl_errmsg());
            }
        }
    }
    shim_set_tensor_cores(true);
    assert_int_equal(shim_count().tensor_products, before);
}

/* More rows than a block of the sort has threads: added in the CPU's order, to the last bit. */
static void test_cuda_kernels__add_rows_of_embeddings_in_order(void **state)
{
    (void)state;
    const pair_shape shape = {"many rows", 3, {0, 301, 301, 700}, 1, 7};
    int k = 0;
    while (strcmp(pair_kernel_at(k), "embed_backward") != 0) {
        k++;
    }
    if (pair_run(k, &shape, FL_F32, cuda, cpu, 0.0) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
}

/* ---- what else is in the micro-batch ---- */

enum { FIRST = 9, SECOND = 40, HEADS = 2, WIDTH = 24, OUT = 19 };

/* Device memory with a row for each token; rows of the second sample have the same values wherever
 * the sample lies. */
static float *rows_of(int64_t n_tokens, int64_t width, uint32_t seed)
{
    void *memory = NULL;
    assert_int_equal(
        fl_device_alloc(cuda, (size_t)(n_tokens * width) * sizeof(float), "rows", &memory), FL_OK);
    float *x = memory;
    for (int64_t i = 0; i < n_tokens * width; i++) {
        const uint32_t from_end = (uint32_t)(n_tokens * width - i);
        const uint32_t counter[4] = {from_end, 0, 0, 0}, key[2] = {seed, 7};
        uint32_t word[4];
        fl_philox(counter, key, word);
        x[i] = 2.0f * fl_unit(word[0]) - 1.0f;
    }
    return x;
}

/* What kernels that work by rows and by samples make of a micro-batch. */
typedef struct results {
    float *y, *lse, *grad_qkv, *product;
    int64_t n_tokens;
} results;

static results run_batch(const int32_t *offsets, const int64_t *ids, int64_t n_samples)
{
    int64_t n = offsets[n_samples];
    int32_t *device_offsets = NULL;
    int64_t *device_ids = NULL;
    fl_weight w = {.data = rows_of(OUT, WIDTH, 1), .rows = OUT, .cols = WIDTH, .version = 1};
    results r = {.y = rows_of(n, WIDTH, 2),
                 .lse = rows_of(n, HEADS, 3),
                 .grad_qkv = rows_of(n, 3 * WIDTH, 4),
                 .product = rows_of(n, OUT, 5),
                 .n_tokens = n};
    size_t offsets_size = (size_t)(n_samples + 1) * sizeof *offsets;
    size_t ids_size = (size_t)n_samples * sizeof *ids;
    assert_int_equal(fl_device_alloc(cuda, offsets_size, "offsets", (void **)&device_offsets),
                     FL_OK);
    assert_int_equal(fl_device_alloc(cuda, ids_size, "ids", (void **)&device_ids), FL_OK);
    memcpy(device_offsets, offsets, offsets_size);
    memcpy(device_ids, ids, ids_size);
    const fl_attention_backward_args b = {
        .forward = {.qkv = rows_of(n, 3 * WIDTH, 6),
                    .offsets = {offsets, device_offsets, n_samples},
                    .heads = HEADS,
                    .width = WIDTH,
                    .causal = true,
                    .scale = 0.5f,
                    .mask = {.p = 0.1f, .sample_ids = ids, .sample_ids_device = device_ids},
                    .y = r.y,
                    .lse = r.lse},
        .grad_y = rows_of(n, WIDTH, 7),
        .grad_qkv = r.grad_qkv};
    const fl_linear_args l = {.in = rows_of(n, WIDTH, 8), .w = &w, .y = r.product, .m = n};
    assert_int_equal(cuda->ops->attention(cuda, NULL, &b.forward), FL_OK);
    assert_int_equal(cuda->ops->attention_backward(cuda, NULL, &b), FL_OK);
    assert_int_equal(cuda->ops->linear(cuda, NULL, &l), FL_OK);
    fl_device_free(cuda, w.data, OUT * WIDTH * sizeof(float));
    fl_device_free(cuda, (void *)b.forward.qkv, (size_t)(n * 3 * WIDTH) * sizeof(float));
    fl_device_free(cuda, (void *)b.grad_y, (size_t)(n * WIDTH) * sizeof(float));
    fl_device_free(cuda, (void *)l.in, (size_t)(n * WIDTH) * sizeof(float));
    fl_device_free(cuda, device_offsets, offsets_size);
    fl_device_free(cuda, device_ids, ids_size);
    return r;
}

/* The rows of the last SECOND tokens have the same bits; both arrays go. */
static void same_rows(const char *what, const results *a, float *in_a, const results *b,
                      float *in_b, int64_t width)
{
    const float *x = in_a + (a->n_tokens - SECOND) * width;
    const float *y = in_b + (b->n_tokens - SECOND) * width;
    for (int64_t i = 0; i < SECOND * width; i++) {
        if (memcmp(x + i, y + i, sizeof *x) != 0) {
            fail_msg("%s, element %lld: %.9g beside another sample, %.9g alone", what, (long long)i,
                     (double)x[i], (double)y[i]);
        }
    }
    fl_device_free(cuda, in_a, (size_t)(a->n_tokens * width) * sizeof *x);
    fl_device_free(cuda, in_b, (size_t)(b->n_tokens * width) * sizeof *x);
}

static void test_cuda_kernels__give_a_sample_the_same_bits_in_any_micro_batch(void **state)
{
    (void)state;
    const int32_t both[] = {0, FIRST, FIRST + SECOND}, alone[] = {0, SECOND};
    const int64_t ids[] = {5, 77};
    results a = run_batch(both, ids, 2), b = run_batch(alone, ids + 1, 1);
    same_rows("attention", &a, a.y, &b, b.y, WIDTH);
    same_rows("lse", &a, a.lse, &b, b.lse, HEADS);
    same_rows("grad_qkv", &a, a.grad_qkv, &b, b.grad_qkv, 3 * WIDTH);
    same_rows("linear", &a, a.product, &b, b.product, OUT);
}

/* ---- loads and stores of 16 bytes ---- */

enum { PASSED = 45, SHIFTS = 4 };

/* The activation of PASSED elements that begin `shift` elements behind an aligned address. */
static void activate_at(int shift, const float *x, float *y)
{
    const size_t size = (PASSED + 2 * SHIFTS) * sizeof(float);
    void *in = NULL, *out = NULL;
    assert_int_equal(fl_device_alloc(cuda, size, "in", &in), FL_OK);
    assert_int_equal(fl_device_alloc(cuda, size, "out", &out), FL_OK);
    float *from = (float *)in + shift, *to = (float *)out + shift;
    memcpy(from, x, PASSED * sizeof *x);
    memset(out, 0x55, size);
    const fl_activate_args a = {
        .in = from, .y = to, .n = PASSED, .activation = FL_ACT_GELU_TANH, .dtype = FL_F32};
    assert_int_equal(cuda->ops->activate(cuda, NULL, &a), FL_OK);
    assert_int_equal(cuda->ops->sync(cuda, NULL), FL_OK);
    memcpy(y, to, PASSED * sizeof *y);
    memset(to, 0x55, PASSED * sizeof *y);
    for (size_t i = 0; i < size; i++) { /* nothing beside it was written */
        assert_int_equal(((unsigned char *)out)[i], 0x55);
    }
    fl_device_free(cuda, in, size);
    fl_device_free(cuda, out, size);
}

/* Would catch: a load of 16 bytes at an address that has no such alignment, which ends a launch on
 * a GPU; an element of a thread's that lies behind the last one. */
static void test_cuda_kernels__take_memory_of_any_alignment(void **state)
{
    (void)state;
    float x[PASSED], want[PASSED], got[PASSED];
    for (int i = 0; i < PASSED; i++) {
        x[i] = (float)(i - 20) * 0.17f;
    }
    activate_at(0, x, want);
    for (int shift = 1; shift < SHIFTS; shift++) {
        activate_at(shift, x, got);
        assert_memory_equal(got, want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_kernels__take_memory_of_any_alignment),
        cmocka_unit_test(test_cuda_kernels__agree_with_the_cpu_in_fp32),
        cmocka_unit_test(test_cuda_kernels__agree_with_the_cpu_in_bf16),
        cmocka_unit_test(test_cuda_kernels__attend_in_bf16_without_tensor_cores),
        cmocka_unit_test(test_cuda_kernels__add_rows_of_embeddings_in_order),
        cmocka_unit_test(test_cuda_kernels__give_a_sample_the_same_bits_in_any_micro_batch),
    };
    return cmocka_run_group_tests(tests, create_devices, destroy_devices);
}
