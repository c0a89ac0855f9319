/* The comparison of several M, on simulated machines with known step times: it ends, it stays
 * within its budget, and it chooses a candidate within 2 % of the fastest, in spite of noise, drift
 * and outliers. */
#include "pipe/plan/tuner.h"

#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RUNGS = 5, STEPS = 12, EXTRA_STEPS = 8 };

static const double PLENTY_US = 1e12;

/* M = 1 .. RUNGS, K = 1. A visit's median is the step time, times noise, times drift. */
typedef struct machine {
    double step_us[RUNGS + 1];
    double noise;       /* standard deviation, as a share */
    double drift;       /* how much slower each visit is than the one before, as a share */
    double outlier;     /* how often a visit takes 1.5 times as long */
    double switch_us;   /* what a change of M costs */
    int n_visits, last; /* so far; the M that ran last */
} machine;

static double unit(void)
{
    return (double)random() / (double)RAND_MAX;
}

static double normal(void)
{
    return sqrt(-2.0 * log(1.0 - 0.999999 * unit())) * cos(2.0 * 3.14159265358979 * unit());
}

static fl_tuner_visit visit(machine *m, int M)
{
    double step_us = m->step_us[M] * exp(m->noise * normal()) * pow(1.0 + m->drift, m->n_visits++);
    step_us *= unit() < m->outlier ? 1.5 : 1.0;
    int64_t n_steps = STEPS + (M == m->last ? 0 : EXTRA_STEPS);
    fl_tuner_visit v = {.step_us = step_us,
                        .n_steps = n_steps,
                        .elapsed_us = (double)n_steps * step_us,
                        .stall_us = M == m->last ? 0.0 : m->switch_us};
    m->last = M;
    return v;
}

static fl_tuner begin(int own, double budget_us)
{
    fl_tuner t;
    fl_tuner_rung rungs[RUNGS];
    for (int i = 0; i < RUNGS; i++) {
        rungs[i] = (fl_tuner_rung){.M = i + 1, .predicted_us = 100.0 + i, .fits = true};
    }
    fl_tuner_init(&t, own, rungs, RUNGS, budget_us);
    return t;
}

/* Race to the end; returns the M that won. */
static int race(fl_tuner *t, machine *m)
{
    m->last = fl_tuner_m(t);
    while (t->end == FL_TUNER_RUNS) {
        assert_true(m->n_visits < FL_TUNER_CANDIDATES_MAX * FL_TUNER_ROUNDS_MAX);
        fl_tuner_visit v = visit(m, fl_tuner_m(t));
        fl_tuner_add(t, &v);
    }
    char why[FL_TUNER_WHY_MAX];
    assert_true(strlen(fl_tuner_explain(t, why)) > 0);
    return fl_tuner_m(t);
}

static double fastest(const machine *m)
{
    double best = INFINITY;
    for (int M = 1; M <= RUNGS; M++) {
        best = fmin(best, m->step_us[M]);
    }
    return best;
}

static void test_tuner__lists_rungs_from_k_to_6k(void **state)
{
    (void)state;
    static const int of_1[] = {1, 2, 3, 4, 5}, of_2[] = {2, 3, 4, 5, 7, 9, 12};
    int M[FL_TUNER_RUNGS_MAX];
    assert_int_equal(fl_tuner_rungs(1, M), 5);
    assert_memory_equal(M, of_1, sizeof of_1);
    assert_int_equal(fl_tuner_rungs(2, M), 7);
    assert_memory_equal(M, of_2, sizeof of_2);
    for (int K = 1; K <= 128; K++) {
        int n = fl_tuner_rungs(K, M);
        assert_true(n >= 5 && n < FL_TUNER_RUNGS_MAX);
        assert_true(M[0] == K && M[n - 1] <= 6 * K && 1.4 * M[n - 1] > 6 * K);
    }
}

/* The own M, and what is predicted within 10 % of the fastest rung that fits, that first. */
static void test_tuner__races_what_may_be_fastest(void **state)
{
    (void)state;
    const fl_tuner_rung rungs[] = {{1, 100.0, true}, {2, 95.0, true},  {3, 90.0, true},
                                   {4, 99.1, true},  {5, 80.0, false}, {7, 98.9, true}};
    fl_tuner t;
    fl_tuner_init(&t, 1, rungs, 6, PLENTY_US);
    assert_int_equal(t.n, 4);
    assert_int_equal(t.of[0].M, 1);
    assert_int_equal(t.of[1].M, 3);
    assert_int_equal(t.of[2].M, 2);
    assert_int_equal(t.of[3].M, 7); /* 99.1 > 1.1 * 90 */
    assert_int_equal(fl_tuner_m(&t), 1);
    fl_tuner_init(&t, 5, &rungs[4], 1, PLENTY_US);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.end, FL_TUNER_SETTLED); /* nothing to compare with */
    assert_int_equal(fl_tuner_m(&t), 5);
}

/* Would catch: rounds that always have the same direction, a new round that changes the plan
 * without need. */
static void test_tuner__rounds_go_to_and_fro(void **state)
{
    (void)state;
    static const int order[] = {1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 1, 2, 3, 4, 5};
    fl_tuner t = begin(1, PLENTY_US);
    for (int i = 0; i < 15; i++) {
        assert_int_equal(t.end, FL_TUNER_RUNS);
        assert_int_equal(fl_tuner_m(&t), order[i]);
        fl_tuner_add(&t, &(fl_tuner_visit){.step_us = 100.0, .n_steps = 1, .elapsed_us = 100.0});
    }
    assert_int_equal(t.end, FL_TUNER_SETTLED); /* equal to the microsecond: 2 % is ruled out */
    assert_int_equal(fl_tuner_m(&t), 1);
}

/* Two candidates, worked out by hand. d = ln(90 / 100), ln(92 / 101), ln(91 / 100) = -0.105361,
 * -0.093332, -0.094311; median -0.094311, so M = 2 leads and M = 1 is 0.094311 slower. The
 * deviations of the other two are 0.011050 and 0.000979, their median times sqrt(3 / 2) is
 * 0.0073660, and e = 2 * 1.2533 * 1.4826 * 0.0073660 / sqrt(3) = 0.0158044. As 0.0943 - 0.0158 >
 * -0.02, M = 1 is dropped. */
static void test_tuner__says_how_certain_it_is(void **state)
{
    (void)state;
    const fl_tuner_rung rungs[] = {{1, 100.0, true}, {2, 100.0, true}};
    const double us[] = {100.0, 90.0, 92.0, 101.0, 100.0, 91.0};
    fl_tuner t;
    double slower, error;
    char why[FL_TUNER_WHY_MAX];
    static const char *const reasons[] = {
        "comparing M = 1 once more, round 1",  "comparing M = 2 with M = 1, round 1",
        "comparing M = 2 with M = 1, round 2", "comparing M = 1 once more, round 2",
        "comparing M = 1 with M = 2, round 3", "comparing M = 2 once more, round 3"};
    fl_tuner_init(&t, 1, rungs, 2, PLENTY_US);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(t.end, FL_TUNER_RUNS);
        assert_string_equal(fl_tuner_reason(&t, why), reasons[i]);
        assert_int_equal(fl_tuner_m(&t), i == 1 || i == 2 || i == 5 ? 2 : 1);
        fl_tuner_add(&t, &(fl_tuner_visit){us[i] * 1e3, 20, us[i] * 20e3, 1e3});
    }
    assert_int_equal(t.end, FL_TUNER_SETTLED);
    assert_int_equal(fl_tuner_m(&t), 2);
    assert_true(fl_tuner_compare(&t, 0, &slower, &error));
    assert_true(fabs(slower - 0.094311) < 1e-6 && fabs(error - 0.0158044) < 1e-6);
    assert_true(fl_tuner_step_us(&t) == 91e3);
    /* 6 visits of 20 steps and 1 ms; beside M = 1, M = 2 took 10, 9 and 9 ms a step less. */
    assert_true(fabs(fl_tuner_lost_us(&t) - (6e3 - 20 * 28e3)) < 1e-6);
    assert_true(fl_tuner_cost_us(&t) == 0.0); /* a gain is not a negative cost */
    assert_string_equal(fl_tuner_reason(&t, why), "M = 2 won the comparison");
    assert_string_equal(fl_tuner_explain(&t, why),
                        "M = 2 takes 91 ms a step; M = 1 takes 9.9 % longer "
                        "(8.2 % to 11.6 %, two standard errors); no "
                        "other M is more than 2 % faster");
}

/* What an earlier tuner could not: every M from 2 on is faster, each by less than the noise of one
 * visit. Would catch: staying at M = 1. */
static void test_tuner__finds_small_differences_in_noise(void **state)
{
    (void)state;
    seed_random();
    int n_good = 0, n_stayed = 0, n_visits = 0;
    for (int round = 0; round < 1000; round++) {
        machine m = {.step_us = {0, 1e5, 9.7e4, 9.6e4, 9.5e4, 9.6e4}, .noise = 0.03};
        fl_tuner t = begin(1, PLENTY_US);
        int M = race(&t, &m);
        n_good += m.step_us[M] <= 1.021 * fastest(&m);
        n_stayed += M == 1;
        n_visits += m.n_visits;
    }
    print_message("%d of 1000 end within 2 %%, %d stay at M = 1; %.1f visits each\n", n_good,
                  n_stayed, n_visits / 1000.0);
    assert_true(n_good > 880 && n_stayed < 20);
}

/* Any machine with 1 % noise, a drift that slows it down by a third during the race, and a tenth of
 * visits disturbed. Would catch: a drift taken for a difference, one odd visit that decides. */
static void test_tuner__withstands_drift_and_outliers(void **state)
{
    (void)state;
    seed_random();
    int n_good = 0;
    for (int round = 0; round < 1000; round++) {
        machine m = {.noise = 0.01, .drift = 0.01, .outlier = 0.1};
        for (int M = 1; M <= RUNGS; M++) {
            m.step_us[M] = 1e5 * (0.9 + 0.2 * unit());
        }
        fl_tuner t = begin(1 + (int)(unit() * 4.99), PLENTY_US);
        n_good += m.step_us[race(&t, &m)] <= 1.02 * fastest(&m);
    }
    print_message("%d of 1000 end within 2 %%\n", n_good);
    assert_true(n_good > 930);
}

/* Candidates that are equal: the race ends soon, whichever wins. */
static void test_tuner__does_not_split_hairs(void **state)
{
    (void)state;
    seed_random();
    int n_visits = 0, n_settled = 0;
    for (int round = 0; round < 1000; round++) {
        machine m = {.step_us = {0, 1e5, 1e5, 1e5, 1e5, 1e5}, .noise = 0.01};
        fl_tuner t = begin(1, PLENTY_US);
        race(&t, &m);
        n_visits += m.n_visits;
        n_settled += t.end == FL_TUNER_SETTLED;
    }
    print_message("%.1f visits, %d of 1000 settled\n", n_visits / 1000.0, n_settled);
    assert_true(n_visits < 22000 && n_settled > 990);
}

/* Noise of 50 %, through which nothing becomes certain. */
static void test_tuner__ends_after_the_last_round(void **state)
{
    (void)state;
    seed_random();
    int n_rounds = 0;
    for (int round = 0; round < 200; round++) {
        machine m = {.step_us = {0, 1e5, 1e5, 1e5, 1e5, 1e5}, .noise = 0.5};
        fl_tuner t = begin(1, PLENTY_US);
        race(&t, &m);
        assert_true(t.round <= FL_TUNER_ROUNDS_MAX);
        n_rounds += t.end == FL_TUNER_ROUNDS;
    }
    print_message("%d of 200 need all rounds\n", n_rounds);
    assert_true(n_rounds > 20);
}

/* The cost of the comparison, relative to training with the initial M, exceeds the budget by at
 * most one visit, and the result found by then counts. */
static void test_tuner__keeps_to_its_budget(void **state)
{
    (void)state;
    seed_random();
    int n_over = 0, n_gained = 0;
    for (int round = 0; round < 1000; round++) {
        machine m = {.switch_us = 1e5 * unit()};
        double budget_us = 1e5 * 40.0 * unit(), worst_us = 0.0;
        for (int M = 1; M <= RUNGS; M++) {
            m.step_us[M] = 1e5 * (0.9 + 0.5 * unit());
            worst_us = fmax(worst_us, m.step_us[M] - m.step_us[1]);
        }
        fl_tuner t = begin(1, budget_us);
        int M = race(&t, &m);
        double visit_us = (STEPS + EXTRA_STEPS) * worst_us + m.switch_us;
        assert_true(fl_tuner_lost_us(&t) <= budget_us + visit_us + 1.0);
        assert_true(fl_tuner_cost_us(&t) >= 0.0 && fl_tuner_cost_us(&t) >= fl_tuner_lost_us(&t));
        assert_true(t.round >= 2 || M == 1); /* one round decides nothing */
        assert_true(m.step_us[M] <= m.step_us[1]);
        n_over += t.end == FL_TUNER_BUDGET;
        n_gained += m.step_us[M] < m.step_us[1];
    }
    print_message("%d of 1000 end by the budget, %d gain\n", n_over, n_gained);
    assert_true(n_over > 100 && n_gained > 300);
}

/* A visit that is far slower than the leader's ends after four steps. */
static void test_tuner__far_slower_is_seen_soon(void **state)
{
    (void)state;
    fl_tuner t = begin(1, PLENTY_US);
    assert_false(fl_tuner_has_enough(&t, 500.0, 4, STEPS)); /* nothing to compare with */
    assert_true(fl_tuner_has_enough(&t, 500.0, STEPS, STEPS));
    fl_tuner_add(&t, &(fl_tuner_visit){100.0, STEPS, 100.0 * STEPS, 0.0});
    assert_false(fl_tuner_has_enough(&t, 129.0, 4, STEPS));
    assert_true(fl_tuner_has_enough(&t, 131.0, 4, STEPS));
    assert_false(fl_tuner_has_enough(&t, 131.0, 3, STEPS));
}

/* What cannot be run leaves the race; a race that is stopped keeps the best that it knows. */
static void test_tuner__goes_on_without_what_is_refused(void **state)
{
    (void)state;
    machine m = {.step_us = {0, 1e5, 9e4, 8e4, 7e4, 6e4}, .noise = 0.001};
    fl_tuner t = begin(1, PLENTY_US);
    fl_tuner_visit v = visit(&m, 1);
    fl_tuner_add(&t, &v);
    fl_tuner_refuse(&t); /* 2 */
    assert_int_equal(fl_tuner_m(&t), 3);
    assert_int_equal(race(&t, &m), 5);
    t = begin(1, PLENTY_US);
    fl_tuner_add(&t, &v);
    fl_tuner_stop(&t);
    assert_int_equal(fl_tuner_m(&t), 1);
    assert_int_equal(t.end, FL_TUNER_STEPS);
}

/* A worker that joins ends the race. Would catch: an M that "won the comparison" then. */
static void test_tuner__that_ends_early_has_no_winner(void **state)
{
    (void)state;
    machine m = {.step_us = {0, 1e5, 9.8e4, 9.6e4, 9.4e4, 9.2e4}};
    char why[FL_TUNER_WHY_MAX];
    fl_tuner t = begin(1, PLENTY_US);
    while (t.round < 2) {
        fl_tuner early = t;
        fl_tuner_stop(&early);
        assert_string_equal(fl_tuner_reason(&early, why),
                            "M = 1 as before the comparison; another M may be faster: the "
                            "comparison had to end early");
        fl_tuner_visit v = visit(&m, fl_tuner_m(&t));
        fl_tuner_add(&t, &v);
    }
    assert_int_equal(t.end, FL_TUNER_RUNS);
    fl_tuner_stop(&t);
    assert_string_equal(fl_tuner_reason(&t, why),
                        "M = 5 was the fastest so far; another M may be faster: the comparison had "
                        "to end early");
}

/* The process that manages the run was stopped for 20 s. Would catch: a race that gives up because
 * that counts as the cost of an M. */
static void test_tuner__time_that_did_not_run_costs_nothing(void **state)
{
    (void)state;
    static const struct {
        double stall_us, elapsed_us, gap_us, stall_left, elapsed_left;
    } rows[] = {
        {20e6 + 500, 30e3, 20e6, 500, 30e3}, /* in the transition */
        {500, 20e6 + 30e3, 20e6, 0, 30500},  /* in a step */
        {500, 30e3, 20e6, 0, 24e3},          /* the workers went on: their steps count */
        {500, 23e3, 20e6, 0, 23e3},          {500, 30e3, 0, 500, 30e3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_tuner_visit visit = {.step_us = 1000,
                                .n_steps = 24,
                                .elapsed_us = rows[i].elapsed_us,
                                .stall_us = rows[i].stall_us};
        fl_tuner_forgive(&visit, rows[i].gap_us);
        assert_true(fabs(visit.stall_us - rows[i].stall_left) < 1e-3);
        assert_true(fabs(visit.elapsed_us - rows[i].elapsed_left) < 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tuner__lists_rungs_from_k_to_6k),
        cmocka_unit_test(test_tuner__races_what_may_be_fastest),
        cmocka_unit_test(test_tuner__rounds_go_to_and_fro),
        cmocka_unit_test(test_tuner__says_how_certain_it_is),
        cmocka_unit_test(test_tuner__finds_small_differences_in_noise),
        cmocka_unit_test(test_tuner__withstands_drift_and_outliers),
        cmocka_unit_test(test_tuner__does_not_split_hairs),
        cmocka_unit_test(test_tuner__ends_after_the_last_round),
        cmocka_unit_test(test_tuner__keeps_to_its_budget),
        cmocka_unit_test(test_tuner__far_slower_is_seen_soon),
        cmocka_unit_test(test_tuner__goes_on_without_what_is_refused),
        cmocka_unit_test(test_tuner__that_ends_early_has_no_winner),
        cmocka_unit_test(test_tuner__time_that_did_not_run_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
