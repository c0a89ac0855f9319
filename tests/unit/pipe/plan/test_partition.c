/* The exact partition against brute force, and the paper's greedy one against hand-worked cases. */
#include "pipe/plan/partition.h"

#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SMALL_LAYERS = 9 };

/* A random answer for every stage and every run of layers, without any order in it. */
typedef struct oracle {
    bool fits[SMALL_LAYERS][SMALL_LAYERS + 1][SMALL_LAYERS + 1];
} oracle;

static bool oracle_fits(void *context, int stage, int first, int last)
{
    const oracle *o = context;
    return o->fits[stage][first][last];
}

static void oracle_draw(oracle *o, int percent)
{
    for (int s = 0; s < SMALL_LAYERS; s++) {
        for (int i = 0; i <= SMALL_LAYERS; i++) {
            for (int j = 0; j <= SMALL_LAYERS; j++) {
                o->fits[s][i][j] = draw(1, 100) <= percent;
            }
        }
    }
}

static double stage_cost(const double *cost, int first, int last)
{
    double sum = 0.0;
    for (int i = first; i < last; i++) {
        sum += cost[i];
    }
    return sum;
}

/* The best there is, by trying every split; INFINITY if none fits. */
static double try_all(const double *cost, int first, int n_layers, int stage, int n_stages,
                      const oracle *o)
{
    double best = INFINITY;
    int left = n_stages - stage - 1;
    for (int last = left == 0 ? n_layers : first + 1; last <= n_layers - left; last++) {
        if (o == NULL || o->fits[stage][first][last]) {
            double rest = left == 0 ? 0.0 : try_all(cost, last, n_layers, stage + 1, n_stages, o);
            best = fmin(best, fmax(stage_cost(cost, first, last), rest));
        }
    }
    return best;
}

/* Cuts that do not cover every layer once, a stage that is empty or does not fit. */
static double check_split(const double *cost, int n_layers, int n_stages, const oracle *o,
                          const int *first)
{
    double slowest = 0.0;
    assert_int_equal(first[0], 0);
    assert_int_equal(first[n_stages], n_layers);
    for (int s = 0; s < n_stages; s++) {
        assert_true(first[s] < first[s + 1]);
        assert_true(o == NULL || o->fits[s][first[s]][first[s + 1]]);
        slowest = fmax(slowest, stage_cost(cost, first[s], first[s + 1]));
    }
    return slowest;
}

static void test_partition__is_as_good_as_brute_force(void **state)
{
    (void)state;
    seed_random();
    int n_refused = 0, n_split = 0;
    for (int round = 0; round < 3000; round++) {
        oracle o;
        double cost[SMALL_LAYERS];
        int first[SMALL_LAYERS + 1];
        int n_layers = draw(1, SMALL_LAYERS), n_stages = draw(1, n_layers);
        bool limited = round % 2 == 1;
        for (int i = 0; i < n_layers; i++) {
            cost[i] = draw(0, 12); /* whole numbers: sums are exact in any order */
        }
        oracle_draw(&o, draw(20, 95));
        double best = try_all(cost, 0, n_layers, 0, n_stages, limited ? &o : NULL);
        memset(first, 0x55, sizeof first);
        fl_status status =
            fl_partition_optimal(cost, n_layers, n_stages, limited ? oracle_fits : NULL, &o, first);
        if (best == INFINITY) {
            assert_int_equal(status, FL_EBUDGET);
            assert_int_equal(first[0], 0x55555555);
            n_refused++;
        } else {
            assert_int_equal(status, FL_OK);
            assert_true(check_split(cost, n_layers, n_stages, limited ? &o : NULL, first) == best);
            n_split++;
        }
    }
    assert_true(n_refused > 100 && n_split > 1000);
}

/* Every small case of two costs, not only the drawn ones. */
static void test_partition__is_exact_on_all_small_cases(void **state)
{
    (void)state;
    for (int n_layers = 1; n_layers <= 8; n_layers++) {
        for (int bits = 0; bits < 1 << n_layers; bits++) {
            double cost[8];
            int first[9];
            for (int i = 0; i < n_layers; i++) {
                cost[i] = bits >> i & 1 ? 3.0 : 2.0;
            }
            for (int n_stages = 1; n_stages <= n_layers; n_stages++) {
                assert_int_equal(fl_partition_optimal(cost, n_layers, n_stages, NULL, NULL, first),
                                 FL_OK);
                assert_true(check_split(cost, n_layers, n_stages, NULL, first) ==
                            try_all(cost, 0, n_layers, 0, n_stages, NULL));
            }
        }
    }
}

static void test_partition__refuses_more_stages_than_layers(void **state)
{
    (void)state;
    double cost[3] = {1, 1, 1};
    int64_t n_params[3] = {1, 1, 1};
    bool frozen[3] = {false};
    int first[5] = {-1, -1, -1, -1, -1};
    assert_int_equal(fl_partition_optimal(cost, 3, 4, NULL, NULL, first), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "4 stages of 3 layers; allowed: 1 .. 3");
    assert_int_equal(fl_partition_greedy(n_params, frozen, 3, 4, first), FL_EINVAL);
    assert_int_equal(fl_partition_optimal(cost, 3, 0, NULL, NULL, first), FL_EINVAL);
    assert_int_equal(first[0], -1);
}

typedef struct greedy_case {
    int n_layers, n_stages;
    int64_t millions[8];
    int n_frozen;
    int first[5];
} greedy_case;

static void test_partition__greedy_is_the_papers(void **state)
{
    (void)state;
    const greedy_case cases[] = {
        /* a stage stops before it reaches its share, so the last one takes what is left */
        {6, 3, {2, 2, 2, 2, 2, 2}, 0, {0, 1, 3, 6}},
        /* the variance of uneven layers is tolerance: 12 of 24 would stop at 8 otherwise */
        {4, 2, {4, 8, 4, 8}, 0, {0, 2, 4}},
        /* six frozen layers weigh as much as one */
        {8, 2, {6, 6, 6, 6, 6, 6, 6, 6}, 6, {0, 6, 8}},
        /* one huge layer: every stage still has one of its own */
        {4, 4, {90, 1, 1, 1}, 0, {0, 1, 2, 3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const greedy_case *c = &cases[i];
        int64_t n_params[8];
        bool frozen[8];
        int first[5];
        for (int j = 0; j < c->n_layers; j++) {
            n_params[j] = c->millions[j] * 1000000;
            frozen[j] = j < c->n_frozen;
        }
        assert_int_equal(fl_partition_greedy(n_params, frozen, c->n_layers, c->n_stages, first),
                         FL_OK);
        for (int s = 0; s <= c->n_stages; s++) {
            assert_int_equal(first[s], c->first[s]);
        }
    }
}

static void test_partition__greedy_is_never_better_than_exact(void **state)
{
    (void)state;
    seed_random();
    for (int round = 0; round < 500; round++) {
        int64_t n_params[FL_MAX_LAYERS];
        bool frozen[FL_MAX_LAYERS] = {false};
        double cost[FL_MAX_LAYERS];
        int exact[FL_MAX_STAGES + 1], greedy[FL_MAX_STAGES + 1];
        int n_layers = draw(1, 60), n_stages = draw(1, n_layers);
        for (int i = 0; i < n_layers; i++) {
            n_params[i] = draw(0, 5000000);
            cost[i] = (double)n_params[i];
        }
        assert_int_equal(fl_partition_optimal(cost, n_layers, n_stages, NULL, NULL, exact), FL_OK);
        assert_int_equal(fl_partition_greedy(n_params, frozen, n_layers, n_stages, greedy), FL_OK);
        assert_true(check_split(cost, n_layers, n_stages, NULL, exact) <=
                    check_split(cost, n_layers, n_stages, NULL, greedy));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition__is_as_good_as_brute_force),
        cmocka_unit_test(test_partition__is_exact_on_all_small_cases),
        cmocka_unit_test(test_partition__refuses_more_stages_than_layers),
        cmocka_unit_test(test_partition__greedy_is_the_papers),
        cmocka_unit_test(test_partition__greedy_is_never_better_than_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
