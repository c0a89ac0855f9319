/* A matrix copied as it is or turned, of sizes around the tile: every element lands in its place,
 * is read once and written once. Would catch: a tile that is cut wrongly at the end of a row or of
 * the matrix. */
#include "nn/safetensors/tensor_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ELEMENTS_MAX = 3 * FL_TENSOR_TILE + 7 };

static float source[ELEMENTS_MAX], target[ELEMENTS_MAX], room[FL_TENSOR_ROOM];

typedef struct ends_state {
    int64_t n_read, n_written;
} ends_state;

static fl_status read_source(void *self, int64_t first, int64_t n, float *to)
{
    ends_state *s = self;
    assert_true(n >= 1 && n <= FL_TENSOR_TILE && first == s->n_read);
    s->n_read += n;
    memcpy(to, source + first, (size_t)n * sizeof *to);
    return FL_OK;
}

static fl_status write_target(void *self, int64_t first, int64_t n, const float *from)
{
    ends_state *s = self;
    s->n_written += n;
    memcpy(target + first, from, (size_t)n * sizeof *from);
    return FL_OK;
}

static void check_copy(int64_t rows, int64_t cols, bool transposed)
{
    ends_state s = {0};
    const fl_tensor_ends ends = {read_source, write_target, &s};
    memset(target, 0, sizeof target);
    assert_int_equal(fl_tensor_copy(rows, cols, transposed, &ends, room), FL_OK);
    assert_int_equal(s.n_read, rows * cols);
    assert_int_equal(s.n_written, rows * cols);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            if (target[transposed ? c * rows + r : r * cols + c] != source[r * cols + c]) {
                fail_msg("[%d, %d]: element %d, %d", (int)rows, (int)cols, (int)r, (int)c);
            }
        }
    }
}

static void test_tensor_copy__every_element_has_its_place(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {
        {1, 1},
        {3, 5},
        {700, 513},
        {2, FL_TENSOR_TILE},
        {2, FL_TENSOR_TILE + 3},
        {FL_TENSOR_TILE + 3, 2},
        {1, 3 * FL_TENSOR_TILE},
    };
    for (int64_t i = 0; i < ELEMENTS_MAX; i++) {
        source[i] = (float)(i + 1);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_copy(sizes[i][0], sizes[i][1], false);
        check_copy(sizes[i][0], sizes[i][1], true);
    }
}

static fl_status fail_write(void *self, int64_t first, int64_t n, const float *from)
{
    (void)self;
    (void)first;
    (void)n;
    (void)from;
    return FL_EIO;
}

static void test_tensor_copy__a_failure_ends_it(void **state)
{
    (void)state;
    ends_state s = {0};
    const fl_tensor_ends ends = {read_source, fail_write, &s};
    assert_int_equal(fl_tensor_copy(4, 4, true, &ends, room), FL_EIO);
    s.n_read = 0;
    assert_int_equal(fl_tensor_copy(4, 4, false, &ends, room), FL_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_copy__every_element_has_its_place),
        cmocka_unit_test(test_tensor_copy__a_failure_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
