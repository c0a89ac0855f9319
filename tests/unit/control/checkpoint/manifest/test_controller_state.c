/* The controller's state as a value: what is captured of live parts comes back in others, and what
 * had not taken effect at the step counts as not decided. */
#include "control/checkpoint/manifest/controller_state.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "support/data/checkpoints.h"
#include "support/data/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 3, STEPS = 1000, LEAD = 6, PER_EPOCH = 100, START_US = 5000000 };

/* The parts of one controller. */
typedef struct parts {
    fl_job job;
    fl_plan_input input;
    fl_profile learned;
    fl_controller_options options;
    fl_run_stats stats;
    fl_recovery_sums losses;
    fl_phase phase;
    fl_run_facts facts;
    fl_elastic elastic;
} parts;

static fl_model *model;
static parts *before, *after;
static fl_controller_state *saved;

static parts *make_parts(void)
{
    parts *p = calloc(1, sizeof *p);
    assert_non_null(p);
    fl_job_defaults(&p->job);
    p->job.freeze.policy = FL_FREEZE_GRADNORM;
    p->job.freeze.start = p->job.freeze.every = (fl_period){.steps = 20};
    p->job.elastic.n_script = 3;
    for (int i = 0; i < 3; i++) {
        p->job.elastic.script[i] = (fl_script_entry){.step = 50 + 10 * i, -1, -1, -1, -1};
    }
    p->input = (fl_plan_input){.model = model, .job = &p->job};
    p->options = (fl_controller_options){.job = &p->job,
                                         .model = model,
                                         .plan_input = &p->input,
                                         .learned = &p->learned,
                                         .n_steps = STEPS,
                                         .n_epochs = 10};
    p->facts = (fl_run_facts){.options = &p->options,
                              .plan = &p->elastic.plan,
                              .phase = &p->phase,
                              .stats = &p->stats,
                              .losses = &p->losses,
                              .n_workers = WORKERS,
                              .n_started = WORKERS};
    fl_run_stats_init(&p->stats, 1000, 10, STEPS, 10, true);
    p->elastic.run = &p->facts;
    p->elastic.job = &p->job;
    p->elastic.plan = (fl_plan){.generation = 4, .F = 1, .K = 2, .R = 1, .M = 4};
    assert_int_equal(fl_decide_open(&p->elastic), FL_OK);
    p->elastic.due = (fl_due_steps){
        .job = &p->job, .steps_per_epoch = PER_EPOCH, .n_steps = STEPS, .lead = LEAD};
    return p;
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(fl_toy_model(4, 0.0f, &model), FL_OK);
    before = make_parts();
    after = make_parts();
    return fl_alloc(sizeof *saved, (void **)&saved) == FL_OK ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    fl_decide_close(&before->elastic);
    fl_decide_close(&after->elastic);
    free(before);
    free(after);
    fl_free(saved);
    fl_model_destroy(&model);
    return 0;
}

static void capture(parts *p, int64_t steps)
{
    p->stats.steps = steps;
    fl_controller_state_capture(&p->elastic, START_US, START_US + 777, saved);
}

/* Restored parts give the same state again, to the last bit: would catch a member that is captured
 * and not restored, or the other way round. */
static void test_state__what_is_restored_is_captured_again(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        fl_checkpoint *c = make_checkpoint(480, seed);
        fl_controller_state *first = &c->controller;
        /* what the parts have by themselves, or what changes at each capture */
        first->n_workers = first->n_started = WORKERS;
        first->n_layers = fl_model_n_layers(model);
        first->norms.L = before->elastic.decide.norms.L;
        for (int i = 0; i < FL_MAX_LAYERS; i++) {
            bool of_block = i < first->norms.L;
            first->parked[i] = i >= first->n_layers ? 0 : i % WORKERS - 1;
            first->since[i] = i >= first->n_layers ? 0 : 7 * i;
            first->pinned[i] = of_block && first->pinned[i];
            first->norms.sum[i] = of_block ? (double)i / seed : 0.0;
            first->norms.norm[i] = of_block ? (double)seed / (i + 1) : 0.0;
            first->norms.before[i] = of_block ? i * 1e-300 : 0.0;
        }
        memset(first->tuned + first->n_tuned, 0,
               (size_t)(FL_MAX_TUNED - first->n_tuned) * sizeof *first->tuned);
        first->due_at = 480;
        first->tune.from = first->stats.n_window;
        first->stats.n_steps = STEPS;
        first->stats.n_epochs = 10;
        first->stats.steps_per_epoch = PER_EPOCH;
        first->stats.stop.end_step = 0;
        before->losses = (fl_recovery_sums){0};
        fl_controller_state_restore(first, 480, START_US, &before->elastic, &before->stats,
                                    &before->losses);
        fl_controller_state_capture(&before->elastic, START_US, START_US + first->elapsed_us,
                                    saved);
        json_t *a = fl_struct_json_write(fl_controller_state_members, first);
        json_t *b = fl_struct_json_write(fl_controller_state_members, saved);
        const char *name;
        json_t *value;
        json_object_foreach(a, name, value)
        {
            char *wanted = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
            char *found =
                json_dumps(json_object_get(b, name), JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
            assert_string_equal(found, wanted);
            free(wanted);
            free(found);
        }
        json_decref(a);
        json_decref(b);
        destroy_checkpoint(c);
    }
}

typedef struct due_case {
    int64_t steps, origin; /* of the decision that is not made yet */
    int n_scripted;        /* entries of the script for steps before */
} due_case;

/* Decisions after 20, 40, ... steps take effect 6 steps later; the script changes at 50, 60, 70. */
static const due_case dues[] = {{15, -1, 0}, {20, 20, 0}, {23, 20, 0}, {26, 20, 0},
                                {27, -1, 0}, {50, -1, 0}, {51, -1, 1}, {60, 60, 1},
                                {66, 60, 2}, {70, -1, 2}, {71, -1, 3}};

static void test_state__a_decision_that_has_not_taken_effect_is_made_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dues / sizeof *dues; i++) {
        const due_case *c = &dues[i];
        before->elastic.decide.due_at = -1; /* it was decided, or passed, before the capture */
        before->elastic.transition.n_scripted = 3;
        capture(before, c->steps);
        print_message("after %lld steps\n", (long long)c->steps);
        assert_int_equal(saved->due_at, c->origin);
        fl_controller_state_restore(saved, c->steps, START_US, &after->elastic, &after->stats,
                                    &after->losses);
        assert_int_equal(after->elastic.transition.n_scripted, c->n_scripted);
        assert_int_equal(after->elastic.decide.due_at, c->origin);
        assert_int_equal(after->elastic.transition.first_step, c->steps);
        assert_int_equal(after->stats.steps, c->steps);
    }
}

/* A plan that the tuner had asked for is asked for again: it was never refused. */
static void test_state__a_visit_that_had_not_begun_is_asked_for_again(void **state)
{
    (void)state;
    fl_elastic *e = &before->elastic;
    e->tune = (fl_tune){.racing = true, .runs = 9, .asked = 9, .visited = 4, .tuner = {.n = 2}};
    e->transition.next.generation = 9;
    e->transition.last_asked = 9;
    e->transition.state = FL_ELASTIC_PREPARING;
    capture(before, 300);
    assert_int_equal(saved->tune.runs, 4);
    assert_int_equal(saved->last_asked, 9);
    e->transition.state = FL_ELASTIC_IDLE; /* the visit is in progress */
    capture(before, 300);
    assert_int_equal(saved->tune.runs, 9);
}

/* The window's times belong to the process that is gone: rates must not read zeros for them. */
static void test_state__the_speed_is_that_of_the_new_process(void **state)
{
    (void)state;
    double step_ms = 0.0;
    fl_step_report report = {.samples = 10, .ms = 8.0};
    for (report.step = 0; report.step < 30; report.step++) {
        assert_true(fl_run_stats_step(&before->stats, &report, START_US + 9000 * report.step));
    }
    capture(before, 30);
    fl_controller_state_restore(saved, 30, START_US + 100, &after->elastic, &after->stats,
                                &after->losses);
    assert_int_equal(after->stats.last_us - before->stats.last_us, 100);
    fl_run_stats_rate(&after->stats, 10000, &step_ms);
    assert_true(step_ms == 0.0);
    report.ms = 2.0;
    assert_true(fl_run_stats_step(&after->stats, &report, START_US + 400000));
    fl_run_stats_rate(&after->stats, 10000, &step_ms);
    assert_true(step_ms == 2.0);
    assert_true(fl_measure_step_ms(&after->elastic) == 2.0);
    assert_int_equal(after->stats.steps, 31);
}

/* Would catch: the start of the workers of a run that continues as time in training. */
static void test_state__the_start_of_workers_is_no_training(void **state)
{
    (void)state;
    enum { RESUMED_US = 100, READY_US = 20000000 };
    fl_run_result result = {0};
    fl_step_report report = {.samples = 10, .ms = 8.0};
    for (report.step = 0; report.step < 30; report.step++) {
        assert_true(fl_run_stats_step(&before->stats, &report, START_US + 9000 * report.step));
    }
    fl_run_stats_idle(&before->stats, 5.0); /* between the last step and the checkpoint */
    capture(before, 30);
    fl_controller_state_restore(saved, 30, START_US + RESUMED_US, &after->elastic, &after->stats,
                                &after->losses);
    assert_true(fl_run_stats_eval(&after->stats, &(fl_eval_report){.step = 29, .ms = 500.0}));
    for (; report.step < 33; report.step++) {
        int64_t at_us = START_US + READY_US + 9000 * report.step;
        assert_true(fl_run_stats_step(&after->stats, &report, at_us));
    }
    fl_run_stats_result(&after->stats, &result);
    assert_true(fabs(result.seconds - (29 * 0.009 + 0.008 + 2 * 0.009 + 0.008)) < 1e-6);
}

/* A run that ended within an epoch, after it had reported it, and that continues. Would catch: the
 * loss of the epoch's last steps as that of the epoch, and an epoch that ends later, with steps of
 * the next one. */
static void test_state__an_epoch_that_was_cut_goes_on(void **state)
{
    (void)state;
    fl_step_report report = {.epoch = 1, .samples = 10, .ms = 8.0, .loss = 2.0};
    before->stats.n_steps = PER_EPOCH + 20;
    before->stats.steps = report.step = PER_EPOCH;
    for (int i = 0; i < 20; i++, report.step++) {
        assert_true(fl_run_stats_step(&before->stats, &report, START_US + 9000 * report.step));
    }
    assert_true(fl_run_stats_eval(&before->stats, &(fl_eval_report){.step = report.step - 1}));
    assert_true(fl_run_stats_epoch_over(&before->stats, false));
    capture(before, report.step);
    after->stats.n_steps = report.step; /* no step follows: it is not reported again */
    fl_controller_state_restore(saved, report.step, START_US, &after->elastic, &after->stats,
                                &after->losses);
    assert_int_equal(after->stats.now.steps, 0);
    after->stats.n_steps = STEPS;
    fl_controller_state_restore(saved, report.step, START_US, &after->elastic, &after->stats,
                                &after->losses);
    report.loss = 1.0;
    for (int i = 20; i < PER_EPOCH; i++, report.step++) {
        assert_false(fl_run_stats_epoch_over(&after->stats, false));
        assert_true(fl_run_stats_step(&after->stats, &report, START_US + 9000 * report.step));
    }
    assert_true(fl_run_stats_eval(&after->stats, &(fl_eval_report){.step = report.step - 1}));
    assert_true(fl_run_stats_epoch_over(&after->stats, false));
    assert_int_equal(after->stats.past.steps, PER_EPOCH);
    assert_true(fl_run_stats_loss(&after->stats.past) == 1.2);
}

/* Fields of the job that commands had changed. */
static void test_state__settings_come_back(void **state)
{
    (void)state;
    fl_elastic_lr(&before->elastic, 0.25);
    fl_decide_alpha(&before->elastic, 0.75);
    before->job.pipe.m = 8;
    before->elastic.usable.limit = 2;
    before->elastic.k = 2;
    before->elastic.r = 3;
    before->elastic.pinned[3] = true;
    capture(before, 10);
    fl_controller_state_restore(saved, 10, START_US, &after->elastic, &after->stats,
                                &after->losses);
    assert_true(after->job.train.lr == 0.25 && after->job.freeze.alpha == 0.75);
    assert_int_equal(after->job.pipe.m, 8);
    assert_int_equal(after->elastic.usable.limit, 2);
    assert_int_equal(after->elastic.k, 2);
    assert_int_equal(after->elastic.r, 3);
    saved->wanted_k = saved->wanted_r = -1; /* as the job has them */
    after->elastic.k = 1;
    fl_controller_state_restore(saved, 10, START_US, &after->elastic, &after->stats,
                                &after->losses);
    assert_int_equal(after->elastic.k, 1);
    assert_true(after->elastic.pinned[3]);
}

/* Would catch: a resumed run that reports the losses since its last start alone, and one that went
 * back to a checkpoint and forgot the loss for which it did. */
static void test_state__losses_before_the_checkpoint_count(void **state)
{
    (void)state;
    before->losses = (fl_recovery_sums){.n_losses = 2,
                                        .n_recoveries = 1,
                                        .n_returns = 1,
                                        .n_repeated = 74,
                                        .lost_us = 942200,
                                        .last_us = 42,
                                        .returns_us = START_US};
    capture(before, 300);
    fl_controller_state_restore(saved, 300, START_US, &after->elastic, &after->stats,
                                &after->losses);
    assert_int_equal(after->losses.n_losses, 2);
    assert_int_equal(after->losses.n_recoveries, 1);
    assert_int_equal(after->losses.n_returns, 1);
    assert_int_equal(after->losses.n_repeated, 74);
    assert_int_equal(after->losses.lost_us, 942200);
    assert_int_equal(after->losses.returns_us, 0); /* this run has lost nobody since */
    after->losses.n_losses = 3;
    after->losses.n_repeated = 80;
    fl_controller_state_restore(saved, 300, START_US, &after->elastic, &after->stats,
                                &after->losses);
    assert_int_equal(after->losses.n_losses, 3);
    assert_int_equal(after->losses.n_repeated, 80);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_state__##name, set_up, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_restored_is_captured_again),
        TEST(a_decision_that_has_not_taken_effect_is_made_again),
        TEST(a_visit_that_had_not_begun_is_asked_for_again),
        TEST(the_speed_is_that_of_the_new_process),
        TEST(the_start_of_workers_is_no_training),
        TEST(an_epoch_that_was_cut_goes_on),
        TEST(settings_come_back),
        TEST(losses_before_the_checkpoint_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
