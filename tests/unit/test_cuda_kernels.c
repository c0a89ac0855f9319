/* The CUDA kernels, compiled for the host from the source that nvcc compiles, and run by the shim,
 * which checks each access. Catches a kernel that computes something else than the CPU's, one whose
 * tiles, warps or samples end in the wrong place, a race, and an access out of bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/kernel_pairs.h"
#include "tests/shim/shim.h"
#include "tests/shim/standin.h"

#include "device/cuda/cuda.h"

#include <string.h>

static fl_device *cuda, *cpu;

static int create_devices(void **state)
{
    (void)state;
    return fl_device_cuda_create(standin_plugin(), 0, SIZE_MAX, &cuda) == FL_OK &&
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
    run_all(FL_F32, 1e-5);
}

static void test_cuda_kernels__agree_with_the_cpu_in_bf16(void **state)
{
    (void)state;
    run_all(FL_BF16, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_kernels__agree_with_the_cpu_in_fp32),
        cmocka_unit_test(test_cuda_kernels__agree_with_the_cpu_in_bf16),
    };
    return cmocka_run_group_tests(tests, create_devices, destroy_devices);
}
