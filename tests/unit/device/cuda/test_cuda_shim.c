/* The launch shim that runs CUDA kernels on the host. Catches a shim that lets a race, an access
 * out of bounds, a missing barrier or threads that do not meet pass, and one that finds what is not
 * there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/shim/faults.h"
#include "tests/shim/shim.h"

#include <string.h>

enum { THREADS = 64, WARP = 32, BLOCKS = 3, N = BLOCKS * THREADS };

static float x[N], y[N];

static int add_regions(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 7);
        y[i] = -1.0f;
    }
    shim_region_add(x, sizeof x, "x");
    shim_region_add(y, sizeof y, "y");
    return 0;
}

static int remove_regions(void **state)
{
    (void)state;
    shim_region_remove(x);
    shim_region_remove(y);
    return 0;
}

/* The launch failed, and the message has each of the texts. */
static void failed_with(int status, const char *one, const char *other)
{
    const char *error = shim_take_error();
    assert_int_not_equal(status, 0);
    if (strstr(error, one) == NULL || strstr(error, other) == NULL) {
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error, one, other);
    }
    assert_string_equal(shim_take_error(), "");
}

static void ran(int status)
{
    assert_string_equal(shim_take_error(), "");
    assert_int_equal(status, 0);
}

static void test_shim__runs_blocks_threads_and_barriers(void **state)
{
    (void)state;
    shim_counts before = shim_count();
    ran(fault_block_sum(x, y, BLOCKS, false));
    for (int block = 0; block < BLOCKS; block++) {
        float sum = 0.0f;
        for (int i = 0; i < THREADS; i++) {
            sum += x[block * THREADS + i];
        }
        for (int i = 0; i < THREADS; i++) {
            assert_true(y[block * THREADS + i] == sum);
        }
    }
    assert_int_equal(shim_count().launches - before.launches, 1);
    assert_int_equal(shim_count().threads - before.threads, N);
}

static void test_shim__finds_a_missing_barrier(void **state)
{
    (void)state;
    failed_with(fault_block_sum(x, y, BLOCKS, true),
                "launch at faults.cu:", "race: it writes 4 bytes at part + ");
    ran(fault_block_sum(x, y, BLOCKS, false)); /* the failure leaves nothing behind */
}

static void test_shim__finds_a_missing_barrier_within_a_warp(void **state)
{
    (void)state;
    ran(fault_warp_exchange(x, y, false));
    assert_true(y[0] == x[WARP - 1]);
    failed_with(fault_warp_exchange(x, y, true), "block 0, thread ", "part + ");
}

static void test_shim__finds_an_access_out_of_bounds(void **state)
{
    (void)state;
    float small_x[5] = {1, 2, 3, 4, 5}, small_y[5] = {0};
    shim_region_add(small_x, sizeof small_x, "small_x");
    shim_region_add(small_y, sizeof small_y, "small_y");
    ran(fault_copy(small_x, small_y, 5, 0));
    assert_memory_equal(small_x, small_y, sizeof small_x);
    failed_with(fault_copy(small_x, small_y, 5, 1), "block 0, thread 5: out of bounds: it ",
                "small_x + 20, which has 20 bytes");
    shim_region_remove(small_x);
    shim_region_remove(small_y);
    failed_with(fault_copy(small_x, y, 1, 0), "out of bounds: it reads 4 bytes at ", "");
}

static void test_shim__finds_an_access_beyond_a_shared_array(void **state)
{
    (void)state;
    ran(fault_shared_bounds(y, 0));
    failed_with(fault_shared_bounds(y, 1),
                "thread 63: out of bounds: it reads 4 bytes at part + 256", "which has 256 bytes");
    failed_with(fault_shared_bounds(y, -1), "thread 0: out of bounds", "");
}

static void test_shim__finds_shared_memory_that_was_not_written(void **state)
{
    (void)state;
    ran(fault_unwritten(y, 0));
    failed_with(fault_unwritten(y, 1), "thread 0: it reads 4 bytes at part + 252",
                "no thread of the block has written");
}

static void test_shim__finds_threads_that_do_not_meet(void **state)
{
    (void)state;
    ran(fault_divergent_barrier(THREADS));
    failed_with(fault_divergent_barrier(40), "thread 0 waits at faults.cu:", "thread 40 has ended");
    failed_with(fault_divergent_shuffle(), "for its warp, thread 1 has ended", "");
}

static void test_shim__finds_a_race_between_blocks_but_not_between_atomics(void **state)
{
    (void)state;
    int sum = 0;
    shim_region_add(&sum, sizeof sum, "sum");
    ran(fault_count(&sum, true));
    assert_int_equal(sum, 2 * THREADS);
    failed_with(fault_count(&sum, false), "sum + 0, which thread 0 of the same block", "");
    shim_region_remove(&sum);
}

static void test_shim__finds_a_write_to_what_others_have_read(void **state)
{
    (void)state;
    ran(fault_write_after_read(y, THREADS)); /* nobody writes */
    failed_with(fault_write_after_read(y, THREADS - 1),
                "race: it writes 4 bytes at y + 0, which several threads of the same block read",
                "");
    failed_with(fault_write_after_read(y, 0), "race: it reads 4 bytes at y + 0, which thread 0",
                "");
}

static void test_shim__shuffles_as_a_warp_does(void **state)
{
    (void)state;
    double in[WARP], out[4 * WARP];
    for (int i = 0; i < WARP; i++) {
        in[i] = i + 0.25;
    }
    shim_region_add(in, sizeof in, "in");
    shim_region_add(out, sizeof out, "out");
    ran(fault_shuffles(in, out, 5));
    for (int i = 0; i < WARP; i++) {
        assert_true(out[i] == in[i ^ 5]);
        assert_true(out[WARP + i] == in[i + 5 < WARP ? i + 5 : i]);
        assert_true(out[2 * WARP + i] == in[5]);
        assert_true(out[3 * WARP + i] == WARP - 5);
    }
    shim_region_remove(in);
    shim_region_remove(out);
}

/* Small whole numbers, so that the product is exact. */
static void test_shim__multiplies_as_tensor_cores_do(void **state)
{
    (void)state;
    enum { ROWS = 16, DEPTH = 16, COLUMNS = 8 };
    float a[ROWS * DEPTH], b[DEPTH * COLUMNS], sum[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * DEPTH; i++) {
        a[i] = (float)(i * 7 % 19 - 9);
    }
    for (int i = 0; i < DEPTH * COLUMNS; i++) {
        b[i] = (float)(i * 5 % 17 - 8);
        sum[i] = (float)i;
    }
    shim_region_add(a, sizeof a, "a");
    shim_region_add(b, sizeof b, "b");
    shim_region_add(sum, sizeof sum, "sum");
    ran(fault_tensor_product(a, b, sum, -1));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float wanted = (float)i;
        for (int k = 0; k < DEPTH; k++) {
            wanted += a[i / COLUMNS * DEPTH + k] * b[k * COLUMNS + i % COLUMNS];
        }
        assert_true(sum[i] == wanted);
    }
    failed_with(fault_tensor_product(a, b, sum, 9),
                "thread 0 waits at faults.cu:", "thread 9 has ended");
    shim_region_remove(a);
    shim_region_remove(b);
    shim_region_remove(sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shim__runs_blocks_threads_and_barriers),
        cmocka_unit_test(test_shim__finds_a_missing_barrier),
        cmocka_unit_test(test_shim__finds_a_missing_barrier_within_a_warp),
        cmocka_unit_test(test_shim__finds_an_access_out_of_bounds),
        cmocka_unit_test(test_shim__finds_an_access_beyond_a_shared_array),
        cmocka_unit_test(test_shim__finds_shared_memory_that_was_not_written),
        cmocka_unit_test(test_shim__finds_threads_that_do_not_meet),
        cmocka_unit_test(test_shim__finds_a_race_between_blocks_but_not_between_atomics),
        cmocka_unit_test(test_shim__finds_a_write_to_what_others_have_read),
        cmocka_unit_test(test_shim__shuffles_as_a_warp_does),
        cmocka_unit_test(test_shim__multiplies_as_tensor_cores_do),
    };
    return cmocka_run_group_tests(tests, add_regions, remove_regions);
}
