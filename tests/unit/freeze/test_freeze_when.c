/* When a freeze policy decides, and by which norms. */
#include "freeze/interval.h"
#include "freeze/norms.h"
#include "freeze/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void expect_due(const fl_job *job, int64_t n_steps, const int64_t *due, int n_due)
{
    int next = 0;
    for (int64_t step = 0; step <= n_steps; step++) {
        bool expected = due != NULL && next < n_due && due[next] == step;
        if (expected && next == 0) {
            assert_int_equal(fl_freeze_first(job, 10, n_steps), step);
        }
        if (fl_freeze_due(job, step, 10, n_steps) != expected) {
            fail_msg("step %lld: a decision should %sbe due", (long long)step,
                     expected ? "" : "not ");
        }
        next += expected;
    }
    assert_int_equal(next, n_due);
    assert_true(n_due > 0 || fl_freeze_first(job, 10, n_steps) == -1);
}

static void test_freeze__decisions_are_due_from_start_on(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    job.freeze.policy = FL_FREEZE_GRADNORM;
    job.freeze.start = (fl_period){.epochs = 1, .steps = -1};
    job.freeze.every = (fl_period){.epochs = 1, .steps = -1};
    expect_due(&job, 40, (int64_t[]){10, 20, 30}, 3); /* not after the last step */
    job.freeze.start = (fl_period){.epochs = 2, .steps = -1};
    expect_due(&job, 40, (int64_t[]){20, 30}, 2);
    job.freeze.every = (fl_period){.epochs = 0.5, .steps = -1};
    expect_due(&job, 40, (int64_t[]){20, 25, 30, 35}, 4);
    job.freeze.start = (fl_period){.share = 0.75, .steps = -1};
    job.freeze.every = (fl_period){.share = 0.1, .steps = -1};
    expect_due(&job, 40, (int64_t[]){30, 34, 38}, 3);
    expect_due(&job, 20, (int64_t[]){15, 17, 19}, 3);
    job.freeze.start = (fl_period){.steps = 7};
    job.freeze.every = (fl_period){.steps = 11};
    expect_due(&job, 40, (int64_t[]){7, 18, 29}, 3);
    job.freeze.every = (fl_period){.epochs = 1e-6, .steps = -1}; /* no shorter than a step */
    expect_due(&job, 10, (int64_t[]){7, 8, 9}, 3);
    job.freeze.start = (fl_period){.steps = 0};
    job.freeze.every = (fl_period){.steps = 4};
    expect_due(&job, 9, (int64_t[]){4, 8}, 2); /* norms there are none before the first step */
    job.freeze.policy = FL_FREEZE_SCHEDULE;
    expect_due(&job, 9, (int64_t[]){0, 4, 8}, 3);
    job.freeze.start = (fl_period){.epochs = 9, .steps = -1};
    expect_due(&job, 40, NULL, 0);
    job.freeze.start = (fl_period){.steps = 0};
    job.freeze.policy = FL_FREEZE_NONE;
    expect_due(&job, 40, NULL, 0);
}

static void test_freeze__intervals_reach_back_before_start(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    job.freeze.policy = FL_FREEZE_STABILITY;
    job.freeze.start = (fl_period){.steps = 10};
    job.freeze.every = (fl_period){.steps = 4};
    for (int64_t step = 0; step < 40; step++) {
        assert_int_equal(fl_freeze_ends_interval(&job, step, 7, 40), step > 0 && step % 4 == 2);
        assert_int_equal(fl_freeze_interval(&job, step, 7, 40),
                         step < 10 ? 0 : 1 + (step - 10) / 4);
    }
}

/* ---- norms ---- */

static void test_freeze__norms_are_the_root_of_the_mean_square(void **state)
{
    (void)state;
    fl_norms norms;
    fl_norms_init(&norms, 2);
    assert_null(fl_norms_get(&norms));
    fl_norms_add(&norms, (double[]){9, 0});
    fl_norms_add(&norms, (double[]){23, 0});
    fl_norms_end(&norms);
    assert_true(fl_norms_get(&norms)[0] == 4 && fl_norms_get(&norms)[1] == 0);
    assert_null(fl_norms_get_before(&norms));
    fl_norms_end(&norms); /* of no steps there is no mean */
    assert_null(fl_norms_get_before(&norms));
    fl_norms_add(&norms, (double[]){0, 25});
    fl_norms_end(&norms);
    assert_true(fl_norms_get(&norms)[0] == 0 && fl_norms_get(&norms)[1] == 5);
    assert_true(fl_norms_get_before(&norms)[0] == 4 && fl_norms_get_before(&norms)[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freeze__decisions_are_due_from_start_on),
        cmocka_unit_test(test_freeze__intervals_reach_back_before_start),
        cmocka_unit_test(test_freeze__norms_are_the_root_of_the_mean_square),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
