/* The steps at which decisions take effect. Would catch: a step at which workers wait although the
 * controller has no command, a step that the workers do not know, and two decisions for one step.
 */
#include "control/elastic/due_steps.h"
#include "freeze/interval.h"
#include "freeze/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PER_EPOCH = 20, STEPS = 100 };

static fl_job job_of(fl_freeze_policy policy, int64_t start, int64_t every)
{
    fl_job job;
    fl_job_defaults(&job);
    job.freeze.policy = policy;
    job.freeze.start = (fl_period){.steps = start};
    job.freeze.every = (fl_period){.steps = every};
    return job;
}

static fl_due_steps due_of(const fl_job *job, double step_flops)
{
    fl_due_steps due = {.job = job, .steps_per_epoch = PER_EPOCH, .n_steps = STEPS};
    due.lead = fl_due_lead(&due, step_flops, 2);
    return due;
}

static void test_due_steps__lead_is_some_200_ms_and_less_than_an_interval(void **state)
{
    (void)state;
    static const struct {
        int64_t every;
        double step_flops;
        int64_t lead;
    } cases[] = {
        {1000, 0.0, 16}, /* unknown */
        {1000, 4e9, 6},  /* 100 ms a step */
        {1000, 1e12, 6}, /* far longer */
        {1000, 4e8, 20}, /* 10 ms */
        {1000, 1e3, 64}, /* next to nothing */
        {10, 1e3, 9},    /* fewer than the 10 steps of an interval */
        {1, 1e3, 0},     /* a decision at each step */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_job job = job_of(FL_FREEZE_GRADNORM, 10, cases[i].every);
        assert_int_equal(due_of(&job, cases[i].step_flops).lead, cases[i].lead);
    }
    fl_job none = job_of(FL_FREEZE_NONE, 10, 1);
    assert_int_equal(due_of(&none, 4e8).lead, 20);
}

static void test_due_steps__each_decision_has_one_step_of_its_own(void **state)
{
    (void)state;
    static const fl_freeze_policy policies[] = {FL_FREEZE_NONE, FL_FREEZE_GRADNORM,
                                                FL_FREEZE_SCHEDULE};
    for (size_t p = 0; p < 3; p++) {
        for (int64_t start = 0; start < 30; start += 7) {
            for (int64_t every = 1; every < 40; every++) {
                fl_job job = job_of(policies[p], start, every);
                fl_due_steps due = due_of(&job, 4e8);
                int n_decided = 0, n_waited = 0;
                for (int64_t step = 0; step < STEPS; step++) {
                    int64_t effect = fl_due_policy(&due, step);
                    bool decides = fl_freeze_due(&job, step, PER_EPOCH, STEPS);
                    assert_true(effect == 0 || (decides && effect == step + due.lead));
                    assert_true(effect == 0 || fl_due_at(&due, FL_DUE_POLICY, effect));
                    assert_true(effect < STEPS);
                    n_decided += effect > 0;
                    n_waited += step > 0 && fl_due_at(&due, FL_DUE_POLICY, step);
                }
                assert_int_equal(n_decided, n_waited);
                assert_true(policies[p] == FL_FREEZE_NONE ? n_decided == 0 : n_decided > 0);
            }
        }
    }
}

static void test_due_steps__know_the_script(void **state)
{
    (void)state;
    fl_job job = job_of(FL_FREEZE_NONE, 0, 1);
    job.elastic.n_script = 2;
    job.elastic.script[0].step = 10;
    job.elastic.script[1].step = 30;
    fl_due_steps due = due_of(&job, 0.0);
    for (int64_t step = 0; step < STEPS; step++) {
        assert_int_equal(fl_due_at(&due, FL_DUE_SCRIPT, step), step == 10 || step == 30);
        assert_false(fl_due_at(&due, FL_DUE_POLICY, step));
        assert_false(fl_due_at(&due, FL_DUE_NONE, step));
    }
}

/* Workers wait after an evaluation that may end the run; a change of the plan may be due later all
 * the same. */
static void test_due_steps__early_stopping_waits_but_blocks_no_plan(void **state)
{
    (void)state;
    fl_recording recording = {.n = 0};
    fl_job job = job_of(FL_FREEZE_NONE, 0, 1);
    job.train.stop_after = (fl_period){.epochs = 2, .steps = -1};
    fl_due_steps due = due_of(&job, 4e8);
    for (int64_t step = 1; step < STEPS; step++) {
        assert_int_equal(fl_due_at(&due, FL_DUE_STOP, step), step == 60 || step == 80);
    }
    assert_int_equal(fl_due_first(&due, 1, STEPS), 0);
    due.recording = &recording; /* a replay has its end from the recording */
    assert_false(fl_due_at(&due, FL_DUE_STOP, 60));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_due_steps__early_stopping_waits_but_blocks_no_plan),
        cmocka_unit_test(test_due_steps__lead_is_some_200_ms_and_less_than_an_interval),
        cmocka_unit_test(test_due_steps__each_decision_has_one_step_of_its_own),
        cmocka_unit_test(test_due_steps__know_the_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
