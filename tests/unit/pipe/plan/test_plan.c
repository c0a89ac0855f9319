/* Plans as values: the place of each worker, their text, and values that are refused. */
#include "pipe/plan/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static fl_plan small_plan(void)
{
    return (fl_plan){.K = 2,
                     .R = 2,
                     .M = 4,
                     .n_layers = 6,
                     .n_workers = 5,
                     .first = {0, 3, 6},
                     .rank_of = {4, 0, 2, 1}};
}

static void test_plan__places_and_text(void **state)
{
    (void)state;
    fl_plan plan = small_plan();
    char text[64], tiny[8];
    assert_int_equal(fl_plan_check(&plan), FL_OK);
    assert_string_equal(fl_plan_text(&plan, text, sizeof text), "F=0, K=2 x R=2 x M=4, cuts 0 3 6");
    assert_string_equal(fl_plan_text(&plan, tiny, sizeof tiny), "F=0, K=");
    fl_place place = fl_plan_place(&plan, 2);
    assert_true(place.active);
    assert_int_equal(place.replica, 1);
    assert_int_equal(place.stage, 0);
    place = fl_plan_place(&plan, 3);
    assert_false(place.active);
    assert_int_equal(place.replica, -1);
    assert_int_equal(place.stage, -1);
}

static void test_plan__check_finds_what_is_wrong(void **state)
{
    (void)state;
    fl_plan plan = small_plan();
    plan.rank_of[3] = 4;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "replica 1, stage 1 of the plan is on worker 4"));
    plan = small_plan();
    plan.rank_of[0] = 5;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    plan = small_plan();
    plan.departed[3] = true;
    assert_int_equal(fl_plan_check(&plan), FL_OK);
    assert_int_equal(fl_plan_members(&plan), 4);
    plan.departed[2] = true;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "replica 1, stage 0 of the plan is on worker 2, which has left");
    plan = small_plan();
    plan.first[1] = 0;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "stage 0 of the plan has no layer");
    plan = small_plan();
    plan.first[2] = 5;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    plan = small_plan();
    plan.R = 3;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    plan = small_plan();
    plan.M = 0;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
    plan = small_plan();
    plan.K = FL_MAX_STAGES + 1;
    plan.n_layers = FL_MAX_LAYERS;
    plan.n_workers = FL_MAX_WORKERS;
    assert_int_equal(fl_plan_check(&plan), FL_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__places_and_text),
        cmocka_unit_test(test_plan__check_finds_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
