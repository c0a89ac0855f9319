#include "autodp/sampler.h"

#include "autodp/split_work.h"
#include "device/random/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t PROPERTY_SEED = 20240607;

/* A stream of numbers for the properties below: pure, so a failure can be run again. */
static uint64_t draw(uint64_t *state)
{
    return fl_mix64(PROPERTY_SEED, (*state)++);
}

/* Would catch a round that is not invertible, and a walk that ends outside. */
static void test_permutation__is_a_bijection_for_every_small_n(void **state)
{
    (void)state;
    static uint8_t seen[2000];
    for (int64_t n = 1; n <= 2000; n++) {
        fl_permutation p;
        fl_permutation_init(&p, n, 42, n % 7);
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < n; i++) {
            int64_t id = fl_permutation_at(&p, i);
            assert_in_range(id, 0, n - 1);
            assert_int_equal(seen[id], 0);
            assert_int_equal(fl_permutation_index(&p, id), i);
            seen[id] = 1;
        }
    }
}

/* Would catch a width of more than 16 bits being cut somewhere. */
static void test_permutation__is_a_bijection_for_large_n(void **state)
{
    (void)state;
    static const int64_t sizes[] = {60000, 65536, 65537, 1281167};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        uint8_t *seen = calloc((size_t)n, 1);
        assert_non_null(seen);
        fl_permutation p;
        fl_permutation_init(&p, n, 1, 3);
        int64_t distinct = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t id = fl_permutation_at(&p, i);
            assert_in_range(id, 0, n - 1);
            distinct += !seen[id];
            seen[id] = 1;
        }
        assert_int_equal(distinct, n);
        free(seen);
    }
}

/* Would catch 32-bit arithmetic: these n cannot be listed, but must stay in range and distinct. */
static void test_permutation__stays_in_range_for_huge_n(void **state)
{
    (void)state;
    static const int64_t sizes[] = {INT64_C(1) << 33, (INT64_C(1) << 40) + 1, INT64_C(1) << 62};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t last = -1, beyond_32_bits = 0;
        fl_permutation p;
        fl_permutation_init(&p, sizes[s], 9, 0);
        for (int64_t i = 0; i < 1000; i++) {
            int64_t id = fl_permutation_at(&p, i);
            assert_true(id >= 0 && id < sizes[s]);
            assert_true(id != last);
            assert_true(fl_permutation_index(&p, id) == i);
            beyond_32_bits += id > UINT32_MAX;
            last = id;
        }
        assert_true(beyond_32_bits > 100);
    }
}

/* Would catch a key schedule that leaves out the seed or the epoch. */
/* Side by side or one by one, the walks end at the same numbers. */
static void test_permutation__is_the_same_as_a_range(void **state)
{
    (void)state;
    static int64_t out[1000];
    for (int64_t n = 1; n < 70000; n = 3 * n + 1) {
        fl_permutation p;
        fl_permutation_init(&p, n, 11, n);
        for (int64_t first = 0; first < n; first += 1 + n / 3) {
            int64_t count = n - first < 1000 ? n - first : 1000;
            fl_permutation_range(&p, first, count, out);
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(out[i], fl_permutation_at(&p, first + i));
            }
        }
        fl_permutation_range(&p, 0, 0, out);
    }
}

static void test_permutation__differs_by_seed_and_epoch(void **state)
{
    (void)state;
    enum { N = 1000 };
    fl_permutation base, other;
    fl_permutation_init(&base, N, 5, 2);
    static const struct {
        uint64_t seed;
        int64_t epoch;
    } others[] = {{5, 3}, {6, 2}, {2, 5}, {5 | UINT64_C(1) << 40, 2}, {5, 2 | INT64_C(1) << 40}};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        fl_permutation_init(&other, N, others[k].seed, others[k].epoch);
        int64_t same = 0;
        for (int64_t i = 0; i < N; i++) {
            same += fl_permutation_at(&base, i) == fl_permutation_at(&other, i);
        }
        /* Two random orders agree in one place on average; 12 is beyond 1e-8. */
        assert_true(same < 12);
    }
}

/* Chi-square of how often index i gets sample j, over many epochs. Would catch an order that
 * favours places. With 15 degrees of freedom a row exceeds 44.3 once in 10,000. */
static void test_permutation__is_uniform_over_epochs(void **state)
{
    (void)state;
    enum { N = 16, EPOCHS = 16000 };
    static int64_t hits[N][N];
    memset(hits, 0, sizeof hits);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        fl_permutation p;
        fl_permutation_init(&p, N, 77, epoch);
        for (int64_t i = 0; i < N; i++) {
            hits[i][fl_permutation_at(&p, i)]++;
        }
    }
    const double expected = (double)EPOCHS / N;
    for (int i = 0; i < N; i++) {
        double chi = 0;
        for (int j = 0; j < N; j++) {
            double off = (double)hits[i][j] - expected;
            chi += off * off / expected;
        }
        assert_true(chi < 44.3);
    }
}

/* The same over pairs of neighbours in a batch, in a larger set that needs cycle walking: would
 * catch samples that tend to follow one another. 99 degrees of freedom: 161.3 once in 10,000. */
static void test_permutation__neighbours_are_independent(void **state)
{
    (void)state;
    enum { N = 1000, BINS = 10, EPOCHS = 50 };
    static int64_t hits[BINS * BINS];
    memset(hits, 0, sizeof hits);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        fl_permutation p;
        fl_permutation_init(&p, N, 3, epoch);
        for (int64_t i = 0; i + 1 < N; i += 2) {
            int64_t a = fl_permutation_at(&p, i) * BINS / N;
            int64_t b = fl_permutation_at(&p, i + 1) * BINS / N;
            hits[a * BINS + b]++;
        }
    }
    double expected = (double)EPOCHS * N / 2 / (BINS * BINS), chi = 0;
    for (int i = 0; i < BINS * BINS; i++) {
        chi += ((double)hits[i] - expected) * ((double)hits[i] - expected) / expected;
    }
    assert_true(chi < 161.3);
}

/* The order is part of what a run means: a resumed run must see it again. These numbers were taken
 * from the first version; they would catch an unintended change of the order. */
static void test_permutation__keeps_its_order(void **state)
{
    (void)state;
    static const int64_t first[] = {38351, 41810, 39180, 6228, 5577, 42221, 59382, 17558};
    fl_permutation p;
    fl_permutation_init(&p, 60000, 0, 0);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        assert_int_equal(fl_permutation_at(&p, (int64_t)i), first[i]);
    }
}

/* Would catch an off-by-one at the short last batch, and an epoch that starts in the middle. */
static void test_next__covers_each_sample_once_an_epoch(void **state)
{
    (void)state;
    static const struct {
        int64_t n_samples, batch;
    } cases[] = {{1, 1}, {1, 8}, {2, 3}, {3, 2}, {100, 100}, {101, 100}, {1000, 7}, {997, 128}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t n_samples = cases[c].n_samples, batch = cases[c].batch;
        fl_cursor cursor = {0};
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            uint8_t seen[1000] = {0};
            int64_t ids[128], n = 0, total = 0;
            int64_t steps = fl_sampler_steps_per_epoch(n_samples, batch);
            for (int64_t step = 0; step < steps; step++) {
                assert_int_equal(cursor.epoch, epoch);
                assert_int_equal(cursor.position, total);
                fl_sampler_next(11, n_samples, batch, &cursor, ids, &n);
                assert_int_equal(n, step + 1 < steps ? batch : n_samples - batch * (steps - 1));
                for (int64_t i = 0; i < n; i++) {
                    assert_int_equal(seen[ids[i]]++, 0);
                }
                total += n;
            }
            assert_int_equal(total, n_samples);
            assert_int_equal(cursor.epoch, epoch + 1);
            assert_int_equal(cursor.position, 0);
        }
    }
}

/* A cursor that was stored and read back goes on as if nothing had been. */
static void test_next__is_a_function_of_the_cursor(void **state)
{
    (void)state;
    fl_cursor cursor = {.epoch = 2, .position = 40}, again = cursor;
    int64_t a[16], b[16], n_a, n_b;
    fl_sampler_next(1, 100, 16, &cursor, a, &n_a);
    fl_sampler_next(1, 100, 16, &again, b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(&cursor, &again, sizeof cursor);
}

static void assert_covers(const int64_t *first, int n_shares, int64_t n)
{
    assert_int_equal(first[0], 0);
    assert_int_equal(first[n_shares], n);
    for (int i = 0; i < n_shares; i++) {
        assert_true(first[i] <= first[i + 1]);
    }
}

/* Would catch a remainder that all falls to the last replica. */
static void test_share__of_equal_work_differs_by_at_most_one(void **state)
{
    (void)state;
    int64_t first[65];
    for (int64_t n = 0; n <= 130; n++) {
        for (int shares = 1; shares <= 64; shares++) {
            fl_split_work(n, NULL, shares, first);
            assert_covers(first, shares, n);
            int64_t longest = 0, shortest = INT64_MAX;
            for (int i = 0; i < shares; i++) {
                int64_t length = first[i + 1] - first[i];
                longest = length > longest ? length : longest;
                shortest = length < shortest ? length : shortest;
            }
            assert_true(longest - shortest <= 1);
            assert_int_equal(longest, fl_split_work_max(n, shares));
        }
    }
}

/* Work that is given but the same for all must not be split worse than work that is not given. */
static void test_share__of_the_same_work_differs_by_at_most_one(void **state)
{
    (void)state;
    int32_t work[130];
    int64_t first[33];
    for (size_t i = 0; i < 130; i++) {
        work[i] = 17;
    }
    for (int64_t n = 1; n <= 130; n++) {
        for (int shares = 1; shares <= 32; shares++) {
            fl_split_work(n, work, shares, first);
            assert_covers(first, shares, n);
            for (int i = 0; i < shares; i++) {
                int64_t length = first[i + 1] - first[i];
                assert_in_range(length, n / shares, fl_split_work_max(n, shares));
            }
        }
    }
}

static int64_t largest_share(const int64_t *first, const int32_t *work, int n_shares)
{
    int64_t largest = 0;
    for (int i = 0; i < n_shares; i++) {
        int64_t sum = 0;
        for (int64_t k = first[i]; k < first[i + 1]; k++) {
            sum += work[k];
        }
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

/* The best that any contiguous split can do, by dynamic programming over cuts. */
static int64_t best_share(int64_t n, const int32_t *work, int n_shares)
{
    int64_t best[65], next[65];
    best[0] = 0;
    for (int64_t i = 1; i <= n; i++) {
        best[i] = best[i - 1] + work[i - 1];
    }
    for (int share = 2; share <= n_shares; share++) {
        for (int64_t i = 0; i <= n; i++) {
            int64_t sum = 0;
            next[i] = best[i];
            for (int64_t cut = i - 1; cut >= 0; cut--) {
                sum += work[cut];
                int64_t worst = sum > best[cut] ? sum : best[cut];
                next[i] = worst < next[i] ? worst : next[i];
            }
        }
        memcpy(best, next, sizeof best);
    }
    return best[n];
}

/* Against the exact optimum, over lengths like those of text. Would catch any split that lets one
 * replica wait for another without need. */
static void test_share__makes_the_largest_share_as_small_as_possible(void **state)
{
    (void)state;
    uint64_t at = 0;
    print_message("seed %llu\n", (unsigned long long)PROPERTY_SEED);
    for (int round = 0; round < 3000; round++) {
        int32_t work[64];
        int64_t first[10];
        int64_t n = (int64_t)(draw(&at) % 64) + 1;
        int shares = (int)(draw(&at) % 9) + 1;
        uint64_t range = UINT64_C(1) << (draw(&at) % 12);
        for (int64_t i = 0; i < n; i++) {
            work[i] = (int32_t)(draw(&at) % range);
        }
        fl_split_work(n, work, shares, first);
        assert_covers(first, shares, n);
        assert_int_equal(largest_share(first, work, shares), best_share(n, work, shares));
    }
}

/* Would catch a split that is optimal by its largest share but lets the others starve: with many
 * small samples every share is near to even. */
static void test_share__is_even_where_it_can_be(void **state)
{
    (void)state;
    enum { N = 512 };
    uint64_t at = 1000000;
    for (int shares = 1; shares <= 8; shares++) {
        int32_t work[N];
        int64_t first[9], total = 0;
        for (int i = 0; i < N; i++) {
            work[i] = (int32_t)(draw(&at) % 100) + 1;
            total += work[i];
        }
        fl_split_work(N, work, shares, first);
        for (int i = 0; i < shares; i++) {
            int64_t sum = largest_share(first + i, work, 1);
            assert_in_range(sum, total / shares - 101, total / shares + 101);
        }
    }
}

/* Extremes that would overflow or loop: one huge sample, zeros, work below zero, n below shares. */
static void test_share__takes_extreme_work(void **state)
{
    (void)state;
    int64_t first[9];
    const int32_t huge[] = {1, INT32_MAX, INT32_MAX, 1};
    fl_split_work(4, huge, 3, first);
    assert_covers(first, 3, 4);
    assert_int_equal(largest_share(first, huge, 3), (int64_t)INT32_MAX + 1);
    const int32_t zeros[5] = {0};
    fl_split_work(5, zeros, 2, first);
    assert_covers(first, 2, 5);
    assert_int_equal(first[1], 3);
    const int32_t odd[] = {-5, 3, -1};
    fl_split_work(3, odd, 8, first);
    assert_covers(first, 8, 3);
    fl_split_work(0, odd, 4, first);
    assert_covers(first, 4, 0);
}

/* A batch goes to replicas, each share to micro-batches: nothing is lost or doubled on the way,
 * for every R, also where it divides neither the batch nor the data set. */
static void test_share__twice_covers_each_sample_once(void **state)
{
    (void)state;
    enum { SAMPLES = 1003, BATCH = 50 };
    for (int R = 1; R <= 8; R++) {
        for (int M = 1; M <= 5; M++) {
            uint8_t seen[SAMPLES] = {0};
            fl_cursor cursor = {0};
            while (cursor.epoch == 0) {
                int64_t ids[BATCH], n, replica[9], micro[6];
                fl_sampler_next(8, SAMPLES, BATCH, &cursor, ids, &n);
                fl_split_work(n, NULL, R, replica);
                for (int r = 0; r < R; r++) {
                    fl_split_work(replica[r + 1] - replica[r], NULL, M, micro);
                    for (int64_t i = micro[0]; i < micro[M]; i++) {
                        seen[ids[replica[r] + i]]++;
                    }
                }
            }
            for (int i = 0; i < SAMPLES; i++) {
                assert_int_equal(seen[i], 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation__is_a_bijection_for_every_small_n),
        cmocka_unit_test(test_permutation__is_a_bijection_for_large_n),
        cmocka_unit_test(test_permutation__stays_in_range_for_huge_n),
        cmocka_unit_test(test_permutation__is_the_same_as_a_range),
        cmocka_unit_test(test_permutation__differs_by_seed_and_epoch),
        cmocka_unit_test(test_permutation__is_uniform_over_epochs),
        cmocka_unit_test(test_permutation__neighbours_are_independent),
        cmocka_unit_test(test_permutation__keeps_its_order),
        cmocka_unit_test(test_next__covers_each_sample_once_an_epoch),
        cmocka_unit_test(test_next__is_a_function_of_the_cursor),
        cmocka_unit_test(test_share__of_equal_work_differs_by_at_most_one),
        cmocka_unit_test(test_share__of_the_same_work_differs_by_at_most_one),
        cmocka_unit_test(test_share__makes_the_largest_share_as_small_as_possible),
        cmocka_unit_test(test_share__is_even_where_it_can_be),
        cmocka_unit_test(test_share__takes_extreme_work),
        cmocka_unit_test(test_share__twice_covers_each_sample_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
