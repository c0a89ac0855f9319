/* The arena of the CUDA device. Catches pieces that overlap, holes that are lost or not joined, a
 * piece that takes a larger hole than it needs, and memory that was never taken being given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cuda/arena.h"
#include "device/random/random.h"
#include "device/system/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT = FL__CUDA_ALIGNMENT, SIZE = 64 * UNIT };

static unsigned char *base;

static int take_base(void **state)
{
    (void)state;
    base = aligned_alloc(UNIT, SIZE);
    return base == NULL ? -1 : 0;
}

static int give_base(void **state)
{
    (void)state;
    free(base);
    return 0;
}

static fl__cuda_arena arena_of(size_t size_bytes)
{
    fl__cuda_arena a;
    assert_int_equal(fl__cuda_arena_init(&a, base, size_bytes), FL_OK);
    return a;
}

/* NULL: there is no hole. */
static void *take(fl__cuda_arena *a, size_t size_bytes)
{
    void *memory = NULL;
    assert_int_equal(fl__cuda_arena_take(a, size_bytes, &memory), FL_OK);
    return memory;
}

static void test_arena__aligns_pieces_and_gives_its_last_byte(void **state)
{
    (void)state;
    fl__cuda_arena a = arena_of(3 * UNIT + 10);
    assert_ptr_equal(take(&a, 0), base); /* no byte is one byte */
    assert_ptr_equal(take(&a, 1), base + UNIT);
    assert_null(take(&a, UNIT + 11));
    assert_ptr_equal(take(&a, UNIT + 10), base + 2 * UNIT);
    assert_null(take(&a, 1));
    assert_int_equal(fl__cuda_arena_largest_hole(&a), 0);
    fl__cuda_arena_end(&a);
}

static void test_arena__takes_the_smallest_hole(void **state)
{
    (void)state;
    fl__cuda_arena a = arena_of(10 * UNIT);
    void *large = take(&a, 4 * UNIT), *wall = take(&a, 1), *small = take(&a, 2 * UNIT);
    assert_non_null(take(&a, 3 * UNIT));
    assert_true(fl__cuda_arena_give(&a, large));
    assert_true(fl__cuda_arena_give(&a, small));
    assert_int_equal(fl__cuda_arena_largest_hole(&a), 4 * UNIT);
    assert_ptr_equal(take(&a, UNIT + 1), small);
    assert_true(fl__cuda_arena_give(&a, wall)); /* joins the hole before it */
    assert_ptr_equal(take(&a, 5 * UNIT), large);
    fl__cuda_arena_end(&a);
}

static void test_arena__knows_what_is_no_piece_of_it(void **state)
{
    (void)state;
    fl__cuda_arena a = arena_of(SIZE), none = {0};
    char other;
    void *piece = take(&a, 2 * UNIT);
    assert_false(fl__cuda_arena_give(&a, &other));
    assert_false(fl__cuda_arena_give(&a, base + UNIT));     /* within a piece */
    assert_false(fl__cuda_arena_give(&a, base + 2 * UNIT)); /* a hole */
    assert_false(fl__cuda_arena_give(&a, base + SIZE));
    assert_true(fl__cuda_arena_give(&a, piece));
    assert_false(fl__cuda_arena_give(&a, piece)); /* twice */
    assert_int_equal(fl__cuda_arena_largest_hole(&a), SIZE);
    assert_false(fl__cuda_arena_give(&none, piece));
    assert_null(take(&none, 1));
    assert_null(take(&a, SIZE_MAX));
    fl__cuda_arena_end(&a);
}

/* Each piece is filled with a letter of its own, which must still be there when it is given. */
static void test_arena__keeps_pieces_apart(void **state)
{
    (void)state;
    enum { PIECES = 40, ROUNDS = 20000 };
    struct {
        unsigned char *memory;
        size_t size_bytes;
    } piece[PIECES] = {{NULL, 0}};
    fl__cuda_arena a = arena_of(SIZE);
    int n_refused = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t counter[4] = {round, 0, 0, 0}, key[2] = {3, 7};
        uint32_t word[4];
        fl_philox(counter, key, word);
        uint32_t i = word[0] % PIECES;
        if (piece[i].memory == NULL) {
            piece[i].size_bytes = word[1] % (6 * UNIT);
            piece[i].memory = take(&a, piece[i].size_bytes);
            n_refused += piece[i].memory == NULL;
            if (piece[i].memory != NULL) {
                memset(piece[i].memory, (int)i, piece[i].size_bytes);
            }
        } else {
            for (size_t at = 0; at < piece[i].size_bytes; at++) {
                assert_int_equal(piece[i].memory[at], i);
            }
            assert_true(fl__cuda_arena_give(&a, piece[i].memory));
            piece[i].memory = NULL;
        }
    }
    assert_in_range(n_refused, 100, ROUNDS / 2);
    for (int i = 0; i < PIECES; i++) {
        assert_true(piece[i].memory == NULL || fl__cuda_arena_give(&a, piece[i].memory));
    }
    assert_int_equal(fl__cuda_arena_largest_hole(&a), SIZE);
    fl__cuda_arena_end(&a);
}

static void test_arena__is_as_before_when_host_memory_runs_out(void **state)
{
    (void)state;
    fl__cuda_arena a;
    fl_alloc_fail_at(1);
    assert_int_equal(fl__cuda_arena_init(&a, base, SIZE), FL_ENOMEM);
    a = arena_of(SIZE);
    int n_failed = 0;
    for (int i = 0; i < 64; i++) {
        void *memory = NULL;
        size_t hole = fl__cuda_arena_largest_hole(&a);
        fl_alloc_fail_at(1);
        fl_status status = fl__cuda_arena_take(&a, 1, &memory);
        fl_alloc_fail_at(0);
        if (status != FL_OK) {
            assert_int_equal(status, FL_ENOMEM);
            assert_int_equal(fl__cuda_arena_largest_hole(&a), hole);
            memory = take(&a, 1);
            n_failed++;
        }
        assert_ptr_equal(memory, base + (size_t)i * UNIT);
    }
    assert_true(n_failed > 0);
    fl__cuda_arena_end(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__aligns_pieces_and_gives_its_last_byte),
        cmocka_unit_test(test_arena__takes_the_smallest_hole),
        cmocka_unit_test(test_arena__knows_what_is_no_piece_of_it),
        cmocka_unit_test(test_arena__keeps_pieces_apart),
        cmocka_unit_test(test_arena__is_as_before_when_host_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, take_base, give_base);
}
