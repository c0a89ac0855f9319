/* When a run has lacked improvement for long enough. Would catch: an improvement that is counted
 * the wrong way round, a margin that is left out, a value that is not a number as the best one, a
 * patience that counts evaluations instead of steps. */
#include "control/state/sums/early_stop.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PER_EPOCH = 10, STEPS = 200, LOSS = -1, MANY = 8 };

static const fl_metric three[] = {
    {.name = "mae"}, {.name = "accuracy", .is_share = true}, {.name = "matthews", .is_gain = true}};
static const fl_metric_list metrics = {three, 3};

static void test_early_stop__ends_after_steps_without_improvement(void **state)
{
    (void)state;
    static const struct {
        int64_t patience, period; /* steps */
        int metric;
        bool higher;
        double margin;
        double value[MANY]; /* of the evaluations */
        int64_t end_step, best_step;
        double best;
    } cases[] = {
        /* patience of 2 epochs, an evaluation an epoch */
        {20, 10, LOSS, false, 0, {5, 4, 3, 4, 3, 1}, 50, 30, 3},
        {20, 10, LOSS, false, 0, {5, 4, 3, 4, 2.9, 4, 4, 1}, 70, 50, 2.9},
        {20, 10, LOSS, false, 0, {5, 4, 3, 2, 1, 0.5, 0.4, 0.3}, 0, 80, 0.3},
        {20, 10, LOSS, false, 0, {1, 1, 1, 0}, 30, 10, 1}, /* the same again is no improvement */
        /* a higher value is better */
        {20, 10, 1, true, 0, {0.5, 0.6, 0.6, 0.5, 0.9}, 40, 20, 0.6},
        {20, 10, 0, false, 0, {0.5, 0.6, 0.7, 0.4}, 30, 10, 0.5},
        /* by more than the margin */
        {20, 10, LOSS, false, 0.5, {5, 4.6, 4.4, 4, 4}, 50, 30, 4.4},
        {20, 10, 1, true, 0.25, {0.25, 0.5, 0.5, 1}, 30, 10, 0.25},
        /* evaluations that are no whole part of the patience, longer or shorter */
        {25, 10, LOSS, false, 0, {3, 4, 4, 4, 4}, 40, 10, 3},
        {5, 10, LOSS, false, 0, {3, 2, 4, 4}, 30, 20, 2},
        {3, 1, LOSS, false, 0, {3, 4, 5, 6, 7}, 4, 1, 3},
        /* what is not finite is no improvement, and the worst that a first value can be */
        {20, 10, LOSS, false, 0, {NAN, 9, NAN, INFINITY, 1}, 40, 20, 9},
        {20, 10, LOSS, false, 0, {NAN, NAN, INFINITY, 1}, 30, 10, NAN},
        {20, 10, 1, true, 0, {INFINITY, 0.1, 0.2, 0.1, 0.1}, 50, 30, 0.2},
        {0, 10, LOSS, false, 0, {1, 2, 3, 4, 5, 6, 7, 8}, 0, 0, 0}, /* off */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fl_stop_rule rule = {.patience = cases[i].patience,
                                   .metric = cases[i].metric,
                                   .higher = cases[i].higher,
                                   .margin = cases[i].margin};
        fl_early_stop stop = {0};
        for (int64_t k = 0; k < MANY && stop.end_step == 0; k++) {
            int64_t done = (k + 1) * cases[i].period;
            fl_eval_report eval = {.step = done - 1, .epoch = (done - 1) / PER_EPOCH, .loss = -9};
            eval.metrics = (fl_metric_means){2, {-9, -9}};
            *(rule.metric < 0 ? &eval.loss : &eval.metrics.mean[rule.metric]) = cases[i].value[k];
            fl_early_stop_judge(&stop, &rule, &eval);
            fl_early_stop before = stop;
            fl_early_stop_judge(&stop, &rule, &eval); /* a second report of the same step */
            assert_memory_equal(&stop, &before, sizeof stop);
        }
        if (stop.end_step != cases[i].end_step || stop.best_step != cases[i].best_step) {
            fail_msg("case %zu: ends after %lld, best after %lld", i, (long long)stop.end_step,
                     (long long)stop.best_step);
        }
        assert_int_equal(stop.best_epoch, (stop.best_step + PER_EPOCH - 1) / PER_EPOCH);
        assert_true(isnan(cases[i].best) ? isnan(stop.best) : stop.best == cases[i].best);
    }
}

static fl_stop_rule rule_of(const char *after, const char *metric, fl_status status)
{
    fl_job job;
    fl_stop_rule rule;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "train.stop_after", after), FL_OK);
    assert_int_equal(fl_job_set(&job, "train.metric", metric), FL_OK);
    assert_int_equal(fl_job_set(&job, "train.stop_margin", "0.125"), FL_OK);
    assert_int_equal(fl_stop_rule_of(&job, &metrics, PER_EPOCH, STEPS, &rule), status);
    return rule;
}

static void test_early_stop__rule_is_that_of_the_job(void **state)
{
    (void)state;
    fl_stop_rule loss = rule_of("3", "loss", FL_OK), mae = rule_of("40 steps", "mae", FL_OK);
    fl_stop_rule accuracy = rule_of("25%", "accuracy", FL_OK);
    fl_stop_rule matthews = rule_of("3", "matthews", FL_OK);
    assert_true(matthews.metric == 2 && matthews.higher);
    assert_true(loss.patience == 30 && loss.metric == LOSS && !loss.higher);
    assert_true(mae.patience == 40 && mae.metric == 0 && !mae.higher && mae.margin == 0.125);
    assert_true(accuracy.patience == 50 && accuracy.metric == 1 && accuracy.higher);
    fl_stop_rule best = rule_of("none", "accuracy", FL_OK);
    assert_true(best.patience == 0 && best.keeps_best && best.metric == 1 && best.higher);
    fl_stop_rule none = rule_of("3", "none", FL_OK);
    assert_true(none.patience == 30 && !none.keeps_best && none.metric == LOSS);
    (void)rule_of("none", "f1", FL_EINVAL); /* also where nothing stops the run */
    (void)rule_of("3", "acuracy", FL_EINVAL);
    assert_string_equal(
        fl_errmsg(), "train.metric: found 'acuracy', allowed: none, loss, mae, accuracy, matthews");
}

/* A run that only keeps its best checkpoint: it never ends for lack of improvement. */
static void test_early_stop__follows_the_best_without_a_patience(void **state)
{
    (void)state;
    static const double losses[] = {NAN, 5, 3, 4, 3, 2.5};
    static const int64_t best[] = {0, 20, 30, 30, 30, 60};
    const fl_stop_rule rule = {.metric = LOSS, .keeps_best = true}, off = {.metric = LOSS};
    fl_early_stop stop = {0}, untouched = {0};
    for (int64_t i = 0; i < 6; i++) {
        fl_eval_report eval = {.step = 10 * (i + 1) - 1, .loss = losses[i]};
        fl_early_stop_judge(&stop, &rule, &eval);
        fl_early_stop_judge(&untouched, &off, &eval);
        assert_int_equal(fl_stop_rule_best(&rule, &stop), best[i]);
        assert_int_equal(fl_stop_rule_best(&off, &stop), 0);
        assert_int_equal(stop.end_step, 0);
    }
    assert_int_equal(untouched.judged, 0);
}

/* A run that continues: it ends at once only where its last evaluation ended it, by the rule that
 * it has now. */
static void test_early_stop__holds_for_a_run_that_continues(void **state)
{
    (void)state;
    const fl_early_stop stop = {.judged = 50, .best_step = 30, .best_epoch = 3, .best = 0.5};
    static const struct {
        int64_t patience, step;
        bool holds;
    } cases[] = {{20, 50, true}, {10, 50, true},  {21, 50, false},
                 {0, 50, false}, {20, 60, false}, {20, 40, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_stop_rule rule = {.patience = cases[i].patience, .metric = LOSS};
        assert_int_equal(fl_early_stop_holds(&stop, &rule, cases[i].step), cases[i].holds);
    }
    const fl_stop_rule rule = {.patience = 1, .metric = LOSS};
    assert_false(fl_early_stop_holds(&(fl_early_stop){0}, &rule, 0)); /* nothing was judged */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_early_stop__ends_after_steps_without_improvement),
        cmocka_unit_test(test_early_stop__rule_is_that_of_the_job),
        cmocka_unit_test(test_early_stop__follows_the_best_without_a_patience),
        cmocka_unit_test(test_early_stop__holds_for_a_run_that_continues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
