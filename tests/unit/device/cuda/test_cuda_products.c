/* Matrix products by cuBLASLt, over a stand-in that does what it is told literally and refuses what
 * contradicts itself. Catches a wrong order, transpose, type, leading dimension or epilogue, a call
 * whose failure is lost, a bf16 weight that is older than its fp32 one, and a machine without the
 * library that is not told apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/cuda_products.h"

#include "device/system/alloc.h"

#include <string.h>

/* ---- what they compute ---- */

static void agree(bool tf32, fl_dtype dtype, double tolerance)
{
    fl_device *cuda = device_of(tf32);
    assert_true(fl_cuda_has_library(cuda));
    if (run_products(cuda, dtype, tolerance) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    assert_true(cublaslt_calls("cublasLtMatmul") > 45);
    close_device(&cuda);
}

static void test_cuda_products__agree_with_the_cpu_in_fp32(void **state)
{
    (void)state;
    agree(false, FL_F32, 1e-5);
}

static void test_cuda_products__agree_with_the_cpu_in_bf16(void **state)
{
    (void)state;
    agree(false, FL_BF16, 1e-2);
    agree(true, FL_BF16, 1e-2); /* TF32 means nothing to bf16 */
}

static void test_cuda_products__round_to_tf32_where_that_is_asked(void **state)
{
    (void)state;
    agree(true, FL_F32, 2e-3);
    fl_device *cuda = device_of(true);
    assert_int_equal(run_products(cuda, FL_F32, 1e-5), FL_EINTERNAL);
    close_device(&cuda);
}

static void test_cuda_products__fuse_bias_and_gelu_where_the_form_allows(void **state)
{
    (void)state;
    fl_device *cuda = device_of(false), *cpu = cpu_device();
    const pair_shape *shape = pair_shape_at(0);
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        bool fused = strcmp(pair_kernel_at(k), "linear of eights") == 0;
        cublaslt_begin("", 0, CUBLAS_STATUS_SUCCESS);
        if (fused || strcmp(pair_kernel_at(k), "linear, erf") == 0) {
            cublaslt_refuse(fused ? 0 : CUBLASLT_EPILOGUE_GELU); /* erf: must not even be asked */
            assert_int_equal(pair_run(k, shape, FL_F32, cuda, cpu, 1e-5), FL_OK);
            assert_int_equal(cublaslt_calls("cublasLtMatmul"), 1);
            standin_fail("activate", 1, 999); /* what is fused calls nothing else */
            assert_int_equal(pair_run(k, shape, FL_F32, cuda, cpu, 1e-5),
                             fused ? FL_OK : FL_EFAILED);
            standin_fail("", 0, 0);
        }
    }
    fl_device_destroy(&cpu);
    close_device(&cuda);
}

/* Without an algorithm for GELU the activation is apart; without any, the own kernel computes. */
static void test_cuda_products__do_without_what_the_library_lacks(void **state)
{
    (void)state;
    static const int refused[] = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_BIAS, -1};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        for (fl_dtype dtype = FL_F32; dtype <= FL_BF16; dtype += FL_BF16) {
            fl_device *cuda = device_of(false);
            cublaslt_refuse(refused[i]);
            if (run_products(cuda, dtype, dtype == FL_F32 ? 1e-5 : 1e-2) != FL_OK) {
                fail_msg("%s", fl_errmsg());
            }
            assert_true((cublaslt_calls("cublasLtMatmul") > 0) == (refused[i] != -1));
            close_device(&cuda);
        }
    }
}

/* ---- bf16 weights ---- */

static void test_cuda_products__copy_a_weight_once_after_each_update(void **state)
{
    (void)state;
    fl_device *d = device_of(false);
    one_product p = product_of(d);
    size_t before = d->workspace_bytes;
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_true(sum_of(&p) == 0.0f);
    assert_true(d->workspace_bytes >= before + (OUT * IN + OUT) * sizeof(uint16_t));
    standin_fail("convert", 1, 999);
    p.weight_data[0] = 3.0f;
    assert_int_equal(run_product(&p, NULL), FL_OK); /* nobody said that it changed */
    assert_true(sum_of(&p) == 0.0f);
    p.w.version++;
    assert_int_equal(run_product(&p, NULL), FL_EFAILED); /* the copy fails, once */
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_true(sum_of(&p) == 3.0f);
    p.bias_data[0] = 0.5f;
    p.bias.version++;
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_true(sum_of(&p) == 3.5f);
    drop_product(&p);
    close_device(&d);
}

/* A stream that did not write the copy waits for it. */
static void test_cuda_products__order_a_copy_before_other_streams(void **state)
{
    (void)state;
    fl_device *d = device_of(false);
    fl_stream *other = NULL;
    one_product p = product_of(d);
    assert_int_equal(d->ops->stream_create(d, &other), FL_OK);
    assert_int_equal(run_product(&p, NULL), FL_OK);
    standin_fail("stream_wait_event", 1, 999);
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_int_equal(run_product(&p, other), FL_EFAILED);
    assert_non_null(strstr(fl_errmsg(), "stream_wait_event: another error"));
    assert_int_equal(run_product(&p, other), FL_OK);
    d->ops->stream_destroy(d, &other);
    drop_product(&p);
    close_device(&d);
}

/* ---- failures ---- */

static void test_cuda_products__pass_on_the_failure_of_every_call(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define NAME(name, result, parameters) #name,
        CUBLASLT_FUNCTIONS(NAME)
#undef NAME
    };
    int n_failures = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        bool destroys = strstr(functions[i], "Destroy") != NULL;
        for (int n = 1; n < 8; n++) {
            fl_device *d = NULL;
            const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
            cublaslt_begin(functions[i], n, CUBLAS_STATUS_EXECUTION_FAILED);
            fl_status status = fl_device_cuda_create(&options, &d);
            if (status == FL_OK) {
                one_product p = product_of(d);
                status = run_product(&p, NULL);
                fl_status again = run_product(&p, NULL);
                assert_true(again == FL_OK || status == FL_OK); /* it comes back */
                drop_product(&p);
                fl_device_destroy(&d);
            }
            assert_int_equal(standin_outstanding(), 0);
            assert_true(status == FL_OK || !destroys);
            if (status != FL_OK) {
                n_failures++;
                assert_non_null(strstr(fl_errmsg(), "the GPU program failed to execute (CUDA error "
                                                    "100013)"));
            }
        }
    }
    assert_true(n_failures >= 15);
}

static void test_cuda_products__tell_that_the_library_has_no_memory(void **state)
{
    (void)state;
    fl_device *d = NULL;
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
    cublaslt_begin("cublasLtCreate", 1, CUBLAS_STATUS_ALLOC_FAILED);
    assert_int_equal(fl_device_cuda_create(&options, &d), FL_ENOMEM);
    assert_string_equal(fl_errmsg(), "device cuda 0: library_open: out of memory (CUDA error 2)");
    assert_int_equal(standin_outstanding(), 0);
}

/* ---- the library itself ---- */

static void test_cuda_products__go_on_without_the_library(void **state)
{
    (void)state;
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
    standin_remove_library("libcublasLt.so.13: cannot open shared object file");
    fl_device *d = open_device(&options);
    char *text = NULL;
    int n = 1;
    assert_false(fl_cuda_has_library(d));
    assert_int_equal(run_products(d, FL_F32, 1e-5), FL_OK);
    assert_int_equal(cublaslt_calls("cublasLtMatmul"), 0);
    assert_int_equal(fl_cuda_algorithms_save(d, &text), FL_OK);
    assert_string_equal(text, "");
    assert_int_equal(fl_cuda_algorithms_load(d, text, &n), FL_OK);
    assert_int_equal(n, 0);
    fl_free(text);
    close_device(&d);
}

static void test_cuda_products__name_what_a_library_lacks(void **state)
{
    (void)state;
    assert_non_null(strstr(standin_library_load("/nowhere/libcublasLt.so"), "/nowhere/"));
    assert_string_equal(standin_library_load(FL_BINARY_DIR "/tests/plugin_empty.so"),
                        "it has no function cublasLtCreate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_products__agree_with_the_cpu_in_fp32),
        cmocka_unit_test(test_cuda_products__agree_with_the_cpu_in_bf16),
        cmocka_unit_test(test_cuda_products__round_to_tf32_where_that_is_asked),
        cmocka_unit_test(test_cuda_products__fuse_bias_and_gelu_where_the_form_allows),
        cmocka_unit_test(test_cuda_products__do_without_what_the_library_lacks),
        cmocka_unit_test(test_cuda_products__copy_a_weight_once_after_each_update),
        cmocka_unit_test(test_cuda_products__order_a_copy_before_other_streams),
        cmocka_unit_test(test_cuda_products__pass_on_the_failure_of_every_call),
        cmocka_unit_test(test_cuda_products__tell_that_the_library_has_no_memory),
        cmocka_unit_test(test_cuda_products__go_on_without_the_library),
        cmocka_unit_test(test_cuda_products__name_what_a_library_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
