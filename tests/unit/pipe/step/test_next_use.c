/* The cache's view of the sampler: what it foretells is what fl_sampler_next then gives. */
#include "autodp/sampler.h"
#include "pipe/step/input/next_use.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_TRAIN = 103, N_TEST = 11, BATCH = 10, MOST = 1000 };

/* The keys in the order in which a run of n_steps uses them; -1 where the last epoch is cut. */
static int64_t play(int64_t n_steps, int64_t n_test, int64_t *key)
{
    fl_cursor cursor = {0};
    int64_t n = 0;
    for (int64_t step = 0; step < n_steps; step++) {
        int64_t ids[BATCH], m, epoch = cursor.epoch;
        fl_sampler_next(42, N_TRAIN, BATCH, &cursor, ids, &m);
        for (int64_t i = 0; i < m; i++) {
            key[n++] = ids[i];
        }
        bool last = step + 1 == n_steps;
        if (last || cursor.epoch != epoch) {
            while (n_test > 0 && n % (N_TRAIN + n_test) != N_TRAIN) {
                key[n++] = -1;
            }
            for (int64_t i = 0; i < n_test; i++) {
                key[n++] = N_TRAIN + i;
            }
        }
    }
    return n;
}

static int64_t next_of(const int64_t *key, int64_t n, int64_t wanted, int64_t now)
{
    for (int64_t t = now; t < n; t++) {
        if (key[t] == wanted) {
            return t;
        }
    }
    return INT64_MAX;
}

static void check_run(int64_t n_steps, int64_t n_test)
{
    static int64_t key[MOST];
    fl_next_use f;
    int64_t n = play(n_steps, n_test, key), n_checked = 0;
    fl_next_use_init(&f, 42, N_TRAIN, n_test, BATCH, n_steps);
    for (int64_t t = 0; t < n; t++) {
        if (key[t] >= 0) {
            assert_int_equal(fl_next_use_key_at(&f, t), key[t]);
            n_checked++;
        }
    }
    assert_true(n_checked > 0);
    for (int64_t now = 0; now <= n; now += 7) {
        for (int64_t k = 0; k < N_TRAIN + n_test; k++) {
            assert_int_equal(fl_next_use_of(&f, k, now), next_of(key, n, k, now));
        }
    }
}

static void test_next_use__foretells_whole_epochs(void **state)
{
    (void)state;
    check_run(3 * 11, N_TEST);
    check_run(3 * 11, 0);
}

static void test_next_use__ends_with_the_run(void **state)
{
    (void)state;
    check_run(2 * 11 + 4, N_TEST);
    check_run(2 * 11 + 4, 0);
    check_run(5, N_TEST);
}

static void test_next_use__tells_the_time_of_a_step(void **state)
{
    (void)state;
    fl_next_use f;
    fl_next_use_init(&f, 42, N_TRAIN, N_TEST, BATCH, 33);
    assert_int_equal(fl_next_use_time(&f, 0, 30), 30);
    assert_int_equal(fl_next_use_time(&f, 2, 5), 2 * (N_TRAIN + N_TEST) + 5);
    assert_int_equal(fl_next_use_key_at(&f, fl_next_use_time(&f, 1, N_TRAIN)), N_TRAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_use__foretells_whole_epochs),
        cmocka_unit_test(test_next_use__ends_with_the_run),
        cmocka_unit_test(test_next_use__tells_the_time_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
