/* Where a run stands, from what its workers report. */
#include "control/state/run_view.h"
#include "control/state/sums/run_stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 25, BATCH = 10, PER_EPOCH = 3, EPOCHS = 2 };

static const fl_metric two[] = {{.name = "mae"}, {.name = FL_ACCURACY, .is_share = true}};

static fl_step_report step_of(int64_t step)
{
    return (fl_step_report){.step = step,
                            .epoch = step / PER_EPOCH,
                            .loss = (double)step,
                            .ms = 100,
                            .metrics = {2, {10 * (double)step, 0.5}},
                            .samples = step % PER_EPOCH == 2 ? 5 : 10};
}

/* Step s ends at 100 (s + 1) ms of its own time, evaluations not counted. */
static bool add(fl_run_stats *stats, int64_t step, int64_t eval_us)
{
    fl_step_report report = step_of(step);
    return fl_run_stats_step(stats, &report, 100000 * (step + 1) + eval_us);
}

static fl_run_stats fresh(bool evaluates)
{
    fl_run_stats stats;
    fl_run_stats_init(&stats, SAMPLES, BATCH, (int64_t)PER_EPOCH * EPOCHS, EPOCHS, evaluates);
    stats.metrics = (fl_metric_list){two, 2};
    return stats;
}

/* Would catch: evaluation counted as training, and an epoch that ends before its evaluation. */
static void test_run_stats__sums_a_run(void **state)
{
    (void)state;
    fl_run_stats t = fresh(true);
    fl_run_result result = {0};
    for (int64_t step = 0; step < 3; step++) {
        assert_true(add(&t, step, 0));
        assert_false(fl_run_stats_epoch_over(&t, false));
    }
    fl_eval_report eval = {.epoch = 0, .step = 2, .loss = 0.7, .ms = 1000};
    eval.metrics = (fl_metric_means){2, {3, 0.5}};
    assert_true(fl_run_stats_eval(&t, &eval));
    assert_true(fl_run_stats_epoch_over(&t, false));
    assert_false(fl_run_stats_epoch_over(&t, false));
    assert_int_equal(t.past.epoch, 0);
    assert_int_equal(t.past.samples, SAMPLES);
    assert_true(t.past.loss_sum == 3);
    for (int64_t step = 3; step < 6; step++) {
        assert_true(add(&t, step, 1000000));
    }
    eval.epoch = 1;
    eval.step = 5;
    eval.metrics = (fl_metric_means){2, {2.5, 0.8}};
    assert_true(fl_run_stats_eval(&t, &eval));
    assert_true(fl_run_stats_epoch_over(&t, false));
    fl_run_stats_result(&t, &result);
    assert_int_equal(result.steps, 6);
    assert_int_equal(result.epochs, 2);
    assert_true(result.train_loss == 4);
    assert_true(result.test_accuracy == 0.8 && isnan(result.validation_accuracy));
    assert_int_equal(result.n_metrics, 2);
    assert_string_equal(result.metrics[0].name, "mae");
    assert_true(result.metrics[0].train == 40 && result.metrics[0].test == 2.5);
    assert_true(isnan(result.metrics[0].validation) && !result.metrics[0].is_share);
    assert_string_equal(result.metrics[1].name, "accuracy");
    assert_true(result.metrics[1].train == 0.5 && result.metrics[1].is_share);
    assert_true(fabs(result.seconds - 0.6) < 1e-9);
    assert_true(fabs(result.samples_per_s - 50 / 0.6) < 1e-6);
}

/* Would catch: a step that counts twice because two workers report it. */
static void test_run_stats__counts_each_step_once(void **state)
{
    (void)state;
    fl_run_stats t = fresh(false);
    assert_true(add(&t, 0, 0));
    assert_false(add(&t, 0, 50));
    assert_true(add(&t, 1, 0));
    assert_false(add(&t, 0, 0));
    assert_int_equal(t.steps, 2);
    assert_int_equal(t.samples, 20);
}

/* Would catch: an epoch that ends early because the evaluation, which another worker reports,
 * arrives before the last steps. */
static void test_run_stats__waits_for_an_epochs_steps(void **state)
{
    (void)state;
    fl_run_stats t = fresh(true);
    fl_eval_report eval = {.epoch = 0, .step = 2};
    assert_true(add(&t, 0, 0) && add(&t, 1, 0));
    assert_true(fl_run_stats_eval(&t, &eval));
    assert_false(fl_run_stats_eval(&t, &eval));
    assert_false(fl_run_stats_epoch_over(&t, false));
    assert_true(add(&t, 2, 0));
    assert_true(fl_run_stats_epoch_over(&t, false));
}

/* Would catch: an epoch that waits for an evaluation which is not due at its end, or that shows the
 * one of an earlier step as its own. */
static void test_run_stats__tells_evaluations_within_an_epoch_apart(void **state)
{
    (void)state;
    fl_run_stats t = fresh(true);
    t.evaluation_period = 2; /* an epoch has 3 steps */
    fl_eval_report eval = {.epoch = 0, .step = 1, .loss = 0.5};
    assert_true(add(&t, 0, 0) && add(&t, 1, 0) && fl_run_stats_eval(&t, &eval));
    assert_false(fl_run_stats_epoch_over(&t, false));
    assert_true(add(&t, 2, 0));
    assert_true(fl_run_stats_epoch_over(&t, false));
    assert_false(t.past.evaluated);
    eval = (fl_eval_report){.epoch = 1, .step = 3, .loss = 0.4};
    assert_true(add(&t, 3, 1) && fl_run_stats_eval(&t, &eval) && add(&t, 4, 1) && add(&t, 5, 1));
    assert_false(fl_run_stats_epoch_over(&t, false)); /* due, and not there yet */
    eval.step = 5;
    assert_true(fl_run_stats_eval(&t, &eval));
    assert_true(fl_run_stats_epoch_over(&t, false) && t.past.evaluated);
}

/* Would catch: status and metrics that show scores of validation samples as test scores. */
static void test_run_stats__gives_scores_to_the_split_that_was_evaluated(void **state)
{
    (void)state;
    static const fl_metric accuracy[] = {{.name = FL_ACCURACY, .is_share = true}};
    fl_run_progress p;
    fl_run_stats t = fresh(true);
    t.metrics = (fl_metric_list){accuracy, 1};
    fl_run_progress_of(&t, &p);
    assert_true(isnan(p.validation_loss) && isnan(p.test_loss) && isnan(p.test_accuracy));
    fl_eval_report eval = {.loss = 0.5, .metrics = {1, {0.75}}, .validation = true};
    assert_true(add(&t, 0, 0) && fl_run_stats_eval(&t, &eval));
    fl_run_progress_of(&t, &p);
    assert_true(p.validates && p.validation_loss == 0.5 && p.validation_accuracy == 0.75);
    assert_true(isnan(p.test_loss) && isnan(p.test_accuracy) && p.test_metrics.n == 0);
    eval.step = 1; /* the last one */
    eval.has_test = true;
    eval.test_loss = 0.25;
    eval.test_metrics = (fl_metric_means){1, {0.875}};
    assert_true(fl_run_stats_eval(&t, &eval));
    fl_run_progress_of(&t, &p);
    assert_true(p.validation_loss == 0.5 && p.validation_accuracy == 0.75);
    assert_true(p.test_loss == 0.25 && p.test_accuracy == 0.875);
    eval = (fl_eval_report){.step = 2, .loss = 0.125, .metrics = {1, {0.625}}};
    assert_true(fl_run_stats_eval(&t, &eval)); /* a run without validation samples */
    fl_run_progress_of(&t, &p);
    assert_true(!p.validates && p.test_loss == 0.125 && p.test_accuracy == 0.625);
    assert_true(isnan(p.validation_loss) && p.validation_metrics.n == 0);
}

static void test_run_stats__knows_of_runs_that_are_cut(void **state)
{
    (void)state;
    fl_run_result result = {0};
    fl_run_stats t = fresh(true); /* stopped in the second epoch */
    assert_true(add(&t, 0, 0));
    assert_false(fl_run_stats_epoch_over(&t, true));
    fl_run_stats_result(&t, &result);
    assert_int_equal(result.epochs, 0);
    assert_true(isnan(result.test_accuracy));
    assert_true(result.train_loss == 0);

    fl_run_stats_init(&t, SAMPLES, BATCH, 2, EPOCHS, true); /* train.max_steps: 2, and evaluated */
    fl_eval_report eval = {.epoch = 0, .step = 1};
    assert_true(add(&t, 0, 0) && add(&t, 1, 0) && fl_run_stats_eval(&t, &eval));
    assert_true(fl_run_stats_epoch_over(&t, false));
    fl_run_stats_result(&t, &result);
    assert_int_equal(result.epochs, 0); /* evaluated, yet not all of its samples were used */
    assert_true(result.train_loss == 0.5);

    t = fresh(true); /* stopped right after an epoch's last step, before its evaluation */
    assert_true(add(&t, 0, 0) && add(&t, 1, 0) && add(&t, 2, 0));
    assert_false(fl_run_stats_epoch_over(&t, true));
    fl_run_stats_result(&t, &result);
    assert_int_equal(result.epochs, 1);
    fl_run_stats empty = fresh(true);
    fl_run_stats_result(&empty, &result);
    assert_true(result.steps == 0 && isnan(result.train_loss) && result.samples_per_s == 0);
}

/* Would catch: a rate over the whole run, which hides that it has changed. */
static void test_run_stats__measures_over_a_moving_window(void **state)
{
    (void)state;
    fl_run_stats t = fresh(false);
    double ms;
    assert_true(fl_run_stats_rate(&t, 1000, &ms) == 0);
    assert_true(isnan(fl_run_stats_left_s(&t)));
    fl_run_stats_init(&t, SAMPLES, BATCH, 100000, 100000, false);
    for (int64_t step = 0; step < 5000; step++) {
        fl_step_report report = {.step = step, .ms = step < 4000 ? 100 : 10, .samples = 10};
        assert_true(fl_run_stats_step(&t, &report, step));
    }
    assert_true(fabs(fl_run_stats_rate(&t, 5000, &ms) - 1000) < 1e-9);
    assert_true(fabs(ms - 10) < 1e-9);
    assert_true(fabs(fl_run_stats_left_s(&t) - 950) < 1e-6);
    fl_run_stats_init(&t, SAMPLES, BATCH, 8, EPOCHS * 100,
                      true); /* max_steps: 8, that is 3 epochs */
    assert_int_equal(t.n_epochs, 3);
    for (int64_t step = 0; step < 3; step++) {
        assert_true(add(&t, step, 0));
    }
    fl_eval_report eval = {.epoch = 0, .step = 2, .ms = 7000};
    assert_true(fl_run_stats_eval(&t, &eval));
    assert_true(fabs(fl_run_stats_left_s(&t) - (0.5 + 14)) < 1e-9);
    t.n_window = t.window_from = 0; /* as after a return: steps, and none of them timed */
    assert_true(isnan(fl_run_stats_left_s(&t)));
}

/* A run that lacks improvement: it ends with the epoch that shows it, and what it evaluates at its
 * end besides belongs to the same evaluation. */
static void test_run_stats__end_early(void **state)
{
    (void)state;
    fl_run_stats t = fresh(true);
    fl_run_result result = {0};
    t.stop_rule = (fl_stop_rule){.patience = 1, .metric = -1};
    fl_eval_report eval = {.epoch = 0, .step = 2, .loss = 0.5, .validation = true};
    for (int64_t step = 0; step < 3; step++) {
        assert_true(add(&t, step, 0));
    }
    assert_true(fl_run_stats_eval(&t, &eval));
    fl_eval_report test = {.epoch = 0, .step = 2, .loss = 0.9, .samples = 7};
    assert_false(fl_run_stats_eval(&t, &test)); /* the run goes on: no such report is expected */
    assert_true(fl_run_stats_epoch_over(&t, false));
    fl_run_stats_end_early(&t, 3);
    assert_true(fl_run_stats_eval(&t, &test));
    assert_false(fl_run_stats_eval(&t, &test));
    fl_run_stats_result(&t, &result);
    assert_true(result.ended_early && result.best == 0.5);
    assert_int_equal(result.best_epoch, 1);
    assert_int_equal(result.best_steps, 3);
    assert_true(result.validation_loss == 0.5 && result.test_loss == 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_stats__end_early),
        cmocka_unit_test(test_run_stats__sums_a_run),
        cmocka_unit_test(test_run_stats__counts_each_step_once),
        cmocka_unit_test(test_run_stats__waits_for_an_epochs_steps),
        cmocka_unit_test(test_run_stats__tells_evaluations_within_an_epoch_apart),
        cmocka_unit_test(test_run_stats__gives_scores_to_the_split_that_was_evaluated),
        cmocka_unit_test(test_run_stats__knows_of_runs_that_are_cut),
        cmocka_unit_test(test_run_stats__measures_over_a_moving_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
