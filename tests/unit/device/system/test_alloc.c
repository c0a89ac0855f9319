/* The one door to memory. Catches memory that is not cleared or not aligned, sizes that overflow, a
 * failed call that changes its output, and injected failures that hit another allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/system/alloc.h"

#include <string.h>

static void test_alloc__is_cleared_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 100000};
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *memory = NULL;
            assert_int_equal(fl_alloc(sizes[i], &memory), FL_OK);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            for (size_t j = 0; j < sizes[i]; j++) {
                assert_int_equal(((unsigned char *)memory)[j], 0);
            }
            memset(memory, 0xff, sizes[i]); /* the next round must not find it */
            fl_free(memory);
        }
    }
    fl_free(NULL);
}

static void test_alloc__refuses_sizes_that_overflow(void **state)
{
    (void)state;
    void *memory = &memory;
    assert_int_equal(fl_alloc(SIZE_MAX, &memory), FL_ENOMEM);
    assert_int_equal(fl_alloc(SIZE_MAX - 10, &memory), FL_ENOMEM);
    assert_int_equal(fl_alloc_array(SIZE_MAX / 2, 3, &memory), FL_ENOMEM);
    assert_ptr_equal(memory, &memory);
    assert_int_equal(fl_alloc_array(SIZE_MAX, 0, &memory), FL_OK);
    fl_free(memory);
}

static void test_realloc__keeps_the_content(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(fl_realloc(&memory, 0, 4), FL_OK);
    memcpy(memory, "abc", 4);
    assert_int_equal(fl_realloc(&memory, 4, 1000), FL_OK);
    assert_string_equal(memory, "abc");
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_int_equal(fl_realloc(&memory, 1000, 2), FL_OK);
    assert_memory_equal(memory, "ab", 2);
    void *before = memory;
    assert_int_equal(fl_realloc(&memory, 2, SIZE_MAX), FL_ENOMEM);
    assert_ptr_equal(memory, before);
    assert_memory_equal(memory, "ab", 2);
    fl_free(memory);
}

/* Room for one more element and for many, without an allocation for each; a failure changes
 * nothing.
 */
static void test_alloc_room__keeps_the_content_as_it_grows(void **state)
{
    (void)state;
    void *array = NULL;
    size_t capacity = 0, before;
    uint64_t n_allocations = fl_alloc_count();
    for (size_t i = 0; i < 10000; i++) {
        assert_int_equal(fl_alloc_room(&array, i, 1, sizeof(int32_t), &capacity), FL_OK);
        assert_true(capacity > i);
        ((int32_t *)array)[i] = (int32_t)i;
    }
    assert_true(fl_alloc_count() - n_allocations < 10);
    assert_int_equal(fl_alloc_room(&array, 10000, 50000, sizeof(int32_t), &capacity), FL_OK);
    assert_true(capacity >= 60000);
    before = capacity;
    fl_alloc_fail_at(1);
    assert_int_equal(fl_alloc_room(&array, 10000, 90000, sizeof(int32_t), &capacity), FL_ENOMEM);
    assert_int_equal(fl_alloc_room(&array, 10000, SIZE_MAX / 2, sizeof(int32_t), &capacity),
                     FL_ENOMEM);
    assert_int_equal(capacity, before);
    for (int32_t i = 0; i < 10000; i++) {
        assert_int_equal(((int32_t *)array)[i], i);
    }
    fl_free(array);
}

static void test_strdup__copies(void **state)
{
    (void)state;
    char *copy = NULL, text[] = "frost";
    assert_int_equal(fl_strdup(text, &copy), FL_OK);
    text[0] = 'x';
    assert_string_equal(copy, "frost");
    fl_free(copy);
}

static void test_alloc_fail_at__hits_the_one_named_once(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        fl_alloc_fail_at(n);
        for (uint64_t i = 1; i <= 5; i++) {
            void *memory = NULL;
            fl_status status = fl_alloc(8, &memory);
            assert_int_equal(status, i == n ? FL_ENOMEM : FL_OK);
            assert_true((memory == NULL) == (i == n));
            fl_free(memory);
        }
    }
    fl_alloc_fail_at(1);
    fl_alloc_fail_at(0);
    void *memory = NULL;
    assert_int_equal(fl_alloc(8, &memory), FL_OK);
    fl_alloc_fail_at(1);
    assert_int_equal(fl_realloc(&memory, 8, 16), FL_ENOMEM);
    fl_alloc_fail_at(1);
    char *copy = NULL;
    assert_int_equal(fl_strdup("x", &copy), FL_ENOMEM);
    assert_null(copy);
    fl_free(memory);
}

static void test_alloc_count__counts_every_allocation(void **state)
{
    (void)state;
    uint64_t before = fl_alloc_count();
    void *memory = NULL;
    char *copy = NULL;
    assert_int_equal(fl_alloc(1, &memory), FL_OK);
    assert_int_equal(fl_realloc(&memory, 1, 2), FL_OK);
    assert_int_equal(fl_strdup("x", &copy), FL_OK);
    fl_free(memory);
    fl_free(copy);
    assert_int_equal(fl_alloc_count() - before, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc__is_cleared_and_aligned),
        cmocka_unit_test(test_alloc__refuses_sizes_that_overflow),
        cmocka_unit_test(test_realloc__keeps_the_content),
        cmocka_unit_test(test_alloc_room__keeps_the_content_as_it_grows),
        cmocka_unit_test(test_strdup__copies),
        cmocka_unit_test(test_alloc_fail_at__hits_the_one_named_once),
        cmocka_unit_test(test_alloc_count__counts_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
