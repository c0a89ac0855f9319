/* Arenas. Catches pieces that overlap or are not aligned, a budget that can be passed by rounding
 * or overflow, and a peak that forgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/system/alloc.h"
#include "device/system/arena.h"

#include <string.h>

enum { CAPACITY = 1024 };

static fl_arena fresh(void **base)
{
    fl_arena arena;
    assert_int_equal(fl_alloc(CAPACITY, base), FL_OK);
    fl_arena_init(&arena, *base, CAPACITY, "test arena");
    return arena;
}

static void test_arena__pieces_are_aligned_and_apart(void **state)
{
    (void)state;
    void *base = NULL;
    fl_arena arena = fresh(&base);
    static const size_t sizes[] = {1, 64, 0, 65, 100};
    unsigned char *last_end = base;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *piece = NULL;
        assert_int_equal(fl_arena_take(&arena, sizes[i], &piece), FL_OK);
        assert_int_equal((uintptr_t)piece % 64, 0);
        assert_true((unsigned char *)piece >= last_end);
        last_end = (unsigned char *)piece + sizes[i];
    }
    assert_int_equal(arena.used_bytes, 64 + 64 + 0 + 128 + 128);
    fl_free(base);
}

static void test_arena__refuses_what_does_not_fit(void **state)
{
    (void)state;
    void *base = NULL, *piece = NULL;
    fl_arena arena = fresh(&base);
    assert_int_equal(fl_arena_take(&arena, CAPACITY, &piece), FL_OK);
    void *before = piece;
    static const size_t sizes[] = {1, CAPACITY, SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(fl_arena_take(&arena, sizes[i], &piece), FL_EBUDGET);
        assert_ptr_equal(piece, before);
        assert_int_equal(arena.used_bytes, CAPACITY);
    }
    assert_int_equal(fl_arena_take(&arena, 1, &piece), FL_EBUDGET);
    assert_string_equal(fl_errmsg(), "test arena: 1 bytes asked, 1024 of 1024 in use");
    assert_int_equal(fl_arena_take(&arena, 0, &piece), FL_OK);
    fl_free(base);
}

static void test_arena__release_goes_back_to_the_mark(void **state)
{
    (void)state;
    void *base = NULL, *first = NULL, *again = NULL;
    fl_arena arena = fresh(&base);
    assert_int_equal(fl_arena_take(&arena, 10, &first), FL_OK);
    size_t mark = fl_arena_mark(&arena);
    assert_int_equal(fl_arena_take(&arena, 500, &first), FL_OK);
    fl_arena_release(&arena, mark);
    assert_int_equal(arena.used_bytes, 64);
    assert_int_equal(arena.peak_bytes, 64 + 512);
    assert_int_equal(fl_arena_take(&arena, 500, &again), FL_OK);
    assert_ptr_equal(again, first);
    fl_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__pieces_are_aligned_and_apart),
        cmocka_unit_test(test_arena__refuses_what_does_not_fit),
        cmocka_unit_test(test_arena__release_goes_back_to_the_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
