/* The tuner on machines whose step times are known: it ends, finds what is faster, and never ends
 * with what is slower. */
#include "pipe/plan/tuner.h"

#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_M = 64 };

/* A machine: what a step takes with each M, and how far apart two measurements of it are. */
typedef struct machine {
    double step_us[MOST_M + 1];
    double noise_us;
    int most_m; /* that fits */
    int n_asked[MOST_M + 1];
} machine;

static bool fits(void *context, int M)
{
    const machine *m = context;
    return M <= m->most_m;
}

static double unit(void)
{
    return (double)random() / (double)RAND_MAX;
}

static fl_tune_trial measure(machine *m, int M)
{
    m->n_asked[M]++;
    return (fl_tune_trial){.M = M,
                           .step_us = m->step_us[M] + m->noise_us * (2.0 * unit() - 1.0),
                           .noise_us = m->noise_us / 2.0};
}

/* Tune to the end; returns the M that is settled on. */
static int tune(machine *m, int K, int own, int *n_trials)
{
    fl_tune_trial trials[FL_TUNE_TRIALS_MAX + 1];
    fl_tune_decision d = {.M = own};
    *n_trials = 0;
    do {
        assert_true(*n_trials < FL_TUNE_TRIALS_MAX + 1);
        trials[(*n_trials)++] = measure(m, d.M);
        fl_tune_input input = {.K = K,
                               .trials = trials,
                               .n_trials = *n_trials,
                               .fits = fits,
                               .context = m,
                               .more = true};
        fl_tune_next(&input, &d);
        assert_true(d.why[0] != '\0');
        assert_true(d.M >= 1 && (d.M == own || d.M <= m->most_m));
    } while (!d.done);
    return d.M;
}

/* A pipeline: work / M more for each of K - 1 bubbles, and a price for each micro-batch. */
static machine pipeline(int K, double call_us)
{
    machine m = {.most_m = MOST_M};
    for (int M = 1; M <= MOST_M; M++) {
        m.step_us[M] = 1e5 * (1.0 + (K - 1.0) / M) + call_us * M;
    }
    return m;
}

static void test_tuner__climbs_to_the_fastest(void **state)
{
    (void)state;
    const struct {
        int K, own;
        double call_us;
        int least, most; /* where the fastest may be found */
    } cases[] = {
        {2, 4, 100.0, 12, 12},  /* more and more pays: to the highest rung */
        {2, 12, 30000.0, 2, 2}, /* less and less: to the lowest */
        {2, 12, 5000.0, 4, 5},  /* the valley is at 4.5 */
        {4, 24, 10000.0, 5, 6}, /* 5.5 */
        {4, 4, 1000.0, 16, 19}, /* 17.3 */
        {1, 1, 10.0, 1, 1},     /* no bubble: nothing to gain */
        {8, 100, 1000.0, 22, 30} /* from beyond the range: 26.5 */,
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        machine m = pipeline(cases[i].K, cases[i].call_us);
        int own = cases[i].own > MOST_M ? MOST_M : cases[i].own, n;
        int M = tune(&m, cases[i].K, own, &n);
        if (M < cases[i].least || M > cases[i].most) {
            fail_msg("case %zu: M = %d after %d trials", i, M, n);
        }
    }
}

/* Half a percent is not worth a change, nor is what noise may have made. */
static void test_tuner__stays_where_little_is_to_gain(void **state)
{
    (void)state;
    machine m = {.most_m = MOST_M};
    int n;
    for (int M = 1; M <= MOST_M; M++) {
        m.step_us[M] = 1e5 - 100.0 * M;
    }
    assert_int_equal(tune(&m, 2, 4, &n), 4);
    assert_int_equal(n, 3); /* its own, one above, one below */
    for (int M = 1; M <= MOST_M; M++) {
        m.step_us[M] = 1e5 - 2000.0 * M;
    }
    /* A rung is worth 2 %, and measured within 8 %: it is rarely missed for a slower one. */
    m.noise_us = 8000.0;
    int n_slower = 0, n_faster = 0;
    for (int round = 0; round < 1000; round++) {
        int M = tune(&m, 2, 4, &n);
        n_slower += M < 4;
        n_faster += M > 4;
    }
    print_message("%d of 1000 end slower, %d faster\n", n_slower, n_faster);
    assert_true(n_slower < 20 && n_faster > 100);
}

static void test_tuner__tries_only_what_fits(void **state)
{
    (void)state;
    machine m = pipeline(2, 100.0);
    int n;
    m.most_m = 8; /* the rungs are 2, 3, 4, 5, 7, 9, 12 */
    assert_int_equal(tune(&m, 2, 4, &n), 7);
    for (int M = 9; M <= MOST_M; M++) {
        assert_int_equal(m.n_asked[M], 0);
    }
}

/* What looked fast only because the machine was idle then is measured once more, beside its own M:
 * the fast moment must not decide. */
static void test_tuner__measures_again_before_it_settles(void **state)
{
    (void)state;
    fl_tune_trial trials[FL_TUNE_TRIALS_MAX + 1] = {
        {4, 100.0, 0.1}, {5, 90.0, 0.1}, {7, 95.0, 0.1}};
    machine m = {.most_m = 7};
    fl_tune_input input = {
        .K = 4, .trials = trials, .n_trials = 3, .fits = fits, .context = &m, .more = true};
    fl_tune_decision d;
    fl_tune_next(&input, &d);
    assert_int_equal(d.M, 4);
    assert_false(d.done);
    trials[input.n_trials++] = (fl_tune_trial){4, 89.0, 0.1}; /* now everything is fast */
    fl_tune_next(&input, &d);
    assert_true(d.done);
    assert_int_equal(d.M, 4);
    trials[3].step_us = 100.0; /* and if its own M is still slow */
    fl_tune_next(&input, &d);
    assert_false(d.done);
    assert_int_equal(d.M, 5);
    trials[input.n_trials++] = (fl_tune_trial){5, 91.0, 0.1};
    fl_tune_next(&input, &d);
    assert_true(d.done);
    assert_int_equal(d.M, 5);
}

/* No steps remain: whatever is being tried, its own M or one that has proved itself is kept. */
static void test_tuner__ends_when_told_to(void **state)
{
    (void)state;
    fl_tune_trial trials[3] = {{4, 100.0, 0.1}, {5, 120.0, 0.1}};
    machine m = {.most_m = 64};
    fl_tune_input input = {.K = 2, .trials = trials, .n_trials = 2, .fits = fits, .context = &m};
    fl_tune_decision d;
    fl_tune_next(&input, &d);
    assert_true(d.done);
    assert_int_equal(d.M, 4);
}

/* Any machine: at most twelve trials, each M at most twice, and never an end that is slower than
 * the beginning by more than what noise can hide. */
static void test_tuner__never_ends_slower_than_it_began(void **state)
{
    (void)state;
    seed_random();
    int n_gained = 0;
    for (int round = 0; round < 2000; round++) {
        machine m = {.noise_us = unit() * 2e3, .most_m = 1 + (int)(unit() * MOST_M)};
        int K = 1 + (int)(unit() * 8.0), own = K + (int)(unit() * 5.0 * K), n;
        own = own > MOST_M ? MOST_M : own;
        for (int M = 1; M <= MOST_M; M++) {
            m.step_us[M] = 1e5 * (0.7 + 0.6 * unit());
        }
        int M = tune(&m, K, own, &n);
        assert_true(m.step_us[M] <= m.step_us[own] + 2.0 * m.noise_us);
        assert_true(n <= FL_TUNE_TRIALS_MAX);
        for (int i = 1; i <= MOST_M; i++) {
            assert_true(m.n_asked[i] <= 2);
        }
        n_gained += M != own;
    }
    assert_true(n_gained > 400 && n_gained < 2000);
}

static void test_tuner__measures_the_median_and_its_error(void **state)
{
    (void)state;
    double five[] = {104.0, 100.0, 96.0, 1000.0, 102.0};
    fl_tune_trial t = fl_tune_measure(3, five, 5);
    assert_int_equal(t.M, 3);
    assert_true(t.step_us == 102.0);
    assert_true(fabs(t.noise_us - 1.2533 * 1.4826 * 2.0 / sqrt(5.0)) < 1e-9);
    double one[] = {7.0};
    t = fl_tune_measure(1, one, 1);
    assert_true(t.step_us == 7.0 && t.noise_us == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tuner__climbs_to_the_fastest),
        cmocka_unit_test(test_tuner__stays_where_little_is_to_gain),
        cmocka_unit_test(test_tuner__tries_only_what_fits),
        cmocka_unit_test(test_tuner__measures_again_before_it_settles),
        cmocka_unit_test(test_tuner__ends_when_told_to),
        cmocka_unit_test(test_tuner__never_ends_slower_than_it_began),
        cmocka_unit_test(test_tuner__measures_the_median_and_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
