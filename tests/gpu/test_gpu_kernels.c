/* The kernels on a GPU against the CPU's, over all shapes: what the launch shim cannot show is what
 * only hardware has. Catches another rounding of the GPU's own functions than the tests allow for,
 * a launch that the hardware refuses, and what a real memory and real threads bring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/cuda_plugin.h"
#include "support/device/kernel_pairs.h"

#include "device/cuda/cuda.h"

static void compare_all(fl_cuda_products products, fl_dtype dtype, double tolerance)
{
    fl_device *cpu = NULL, *cuda = NULL;
    fl_cuda_options options = {.budget_bytes = SIZE_MAX, .products = products};
    assert_int_equal(fl_cuda_plugin_find(&options.plugin), FL_OK);
    assert_int_equal(fl_device_cpu_create(1, NULL, SIZE_MAX, &cpu), FL_OK);
    if (fl_device_cuda_create(&options, &cuda) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        for (int i = 0; pair_shape_at(i) != NULL && (i == 0 || pair_kernel_has_shapes(k)); i++) {
            const pair_shape *shape = pair_shape_at(i);
            if (pair_run(k, shape, dtype, cuda, cpu, tolerance) != FL_OK) {
                fail_msg("%s, %s, %s: %s", pair_kernel_at(k), shape->name, fl_dtype_name(dtype),
                         fl_errmsg());
            }
        }
    }
    fl_device_destroy(&cuda);
    fl_device_destroy(&cpu);
}

static void test_gpu_kernels__agree_with_the_cpu_in_fp32(void **state)
{
    (void)state;
    use_gpu();
    compare_all(FL_CUDA_PRODUCTS_EXACT, FL_F32, 1e-5);
    compare_all(FL_CUDA_PRODUCTS_LIBRARY, FL_F32, 1e-5);
}

static void test_gpu_kernels__agree_with_the_cpu_in_bf16(void **state)
{
    (void)state;
    use_gpu();
    compare_all(FL_CUDA_PRODUCTS_EXACT, FL_BF16, 1e-2);
    compare_all(FL_CUDA_PRODUCTS_LIBRARY, FL_BF16, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu_kernels__agree_with_the_cpu_in_fp32),
        cmocka_unit_test(test_gpu_kernels__agree_with_the_cpu_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
