/* Which store each worker reads from: a pure function that all workers must compute alike. Would
 * catch: a host that joined sharing the number of another one, and a host whose last ranks, for
 * hosts that join, take part of its stores away. */
#include "pipe/plan/batch/store_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect_numbers(const fl_store_map *map, const int *numbers)
{
    for (int rank = 0; rank < map->n_workers; rank++) {
        assert_int_equal(fl_store_map_of(map, rank), numbers[rank]);
    }
}

static void test_store_map__divides_one_host(void **state)
{
    (void)state;
    fl_store_map map = {.n_stores = 1, .n_workers = 4};
    expect_numbers(&map, (const int[]){0, 0, 0, 0});
    assert_int_equal(fl_store_map_count(&map), 1);
    map.n_stores = 2;
    expect_numbers(&map, (const int[]){0, 0, 1, 1});
    assert_int_equal(fl_store_map_count(&map), 2);
}

static void test_store_map__numbers_the_stores_of_all_hosts(void **state)
{
    (void)state;
    fl_store_map map = {.n_stores = 2, .n_workers = 6, .n_hosts = 2, .n_ranks = 6, .first = {0, 4}};
    expect_numbers(&map, (const int[]){0, 0, 1, 1, 2, 3});
    assert_int_equal(fl_store_map_count(&map), 4);
}

static void test_store_map__gives_later_ranks_numbers_of_their_own(void **state)
{
    (void)state;
    fl_store_map map = {.n_stores = 2, .n_workers = 8, .n_hosts = 2, .n_ranks = 6, .first = {0, 4}};
    expect_numbers(&map, (const int[]){0, 0, 1, 1, 2, 3, 4, 5});
    assert_int_equal(fl_store_map_count(&map), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_map__divides_one_host),
        cmocka_unit_test(test_store_map__numbers_the_stores_of_all_hosts),
        cmocka_unit_test(test_store_map__gives_later_ranks_numbers_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
