/* What the run reports of a comparison of several M. */
#include "control/elastic/elastic_events.h"
#include "control/elastic/tune.h"
#include "support/lines.h"
#include "support/runs/elastic_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 2, STARTED = 20, MEASURED_TO = 95 };

static fl_tuner_visit visit_of(double step_us)
{
    return (fl_tuner_visit){.step_us = step_us, .n_steps = 10, .elapsed_us = 10 * step_us};
}

/* Two rounds of M = 2 and M = 4, which takes three times as long; M = 3 is next. */
static void race(rig *r)
{
    fl_tuner *t = &r->elastic.tune.tuner;
    rig_know_the_model(r);
    r->elastic.tune = (fl_tune){.K = r->elastic.plan.K,
                                .R = r->elastic.plan.R,
                                .racing = true,
                                .runs = r->elastic.plan.generation,
                                .started = STARTED,
                                .from = MEASURED_TO};
    *t = (fl_tuner){.n = 3, .of = {{.M = 2}, {.M = 4}, {.M = 3}}, .round = ROUNDS, .at = 2};
    for (int round = 0; round < ROUNDS; round++) {
        t->of[0].visit[t->of[0].n_visits++] = visit_of(1000.0);
        t->of[1].visit[t->of[1].n_visits++] = visit_of(3000.0);
    }
}

static json_t *only_result(const rig *r)
{
    json_t *lines = lines_with(r->dir, "events.jsonl", "\"tune.done\"");
    assert_int_equal(length(lines), 1);
    return lines;
}

/* Would catch: logarithms that are called percent. */
static void test_tune__differences_are_in_percent(void **state)
{
    rig *r = *state;
    race(r);
    fl_event_log_tuned(&r->elastic);
    json_t *lines = only_result(r);
    const json_t *candidates = json_object_get(json_array_get(lines, 0), "candidates");
    const json_t *slower = json_array_get(candidates, 1);
    double percent = json_number_value(json_object_get(slower, "slower_percent"));
    double from = json_number_value(json_object_get(slower, "slower_from_percent"));
    double to = json_number_value(json_object_get(slower, "slower_to_percent"));
    assert_true(fabs(percent - 200.0) < 0.01);
    assert_true(from < percent && percent < to);
    assert_true(fabs((1 + from / 100) * (1 + to / 100) - 9.0) < 0.01);
    assert_null(json_object_get(json_array_get(candidates, 2), "slower_percent"));
    json_decref(lines);
}

/* A worker is drained during a comparison. Would catch: no word of the comparison in events.jsonl,
 * and a summary that does not count it. */
static void test_tune__another_grid_ends_the_comparison(void **state)
{
    rig *r = *state;
    fl_plan next;
    char why[FL_TUNER_WHY_MAX], text[128];
    race(r);
    r->elastic.plan = rig_plan(1, 2);
    r->elastic.plan.generation = 2;
    assert_false(fl_tune_next_plan(&r->elastic, &next, why, sizeof why)); /* few steps are left */
    assert_false(fl_tune_next_plan(&r->elastic, &next, why, sizeof why));
    json_t *lines = only_result(r);
    const json_t *event = json_array_get(lines, 0);
    assert_int_equal(number(event, "k"), 2);
    assert_int_equal(number(event, "r"), 1);
    assert_int_equal(number(event, "trials"), 4);
    assert_non_null(strstr(json_string_value(json_object_get(event, "why")), "had to end early"));
    assert_int_equal(r->elastic.tune_sums.n_races, 1);
    assert_int_equal(r->elastic.tune_sums.n_steps, MEASURED_TO - STARTED);
    assert_true(r->elastic.tune_sums.lost_us > 0.0);
    fl_tune_summary(&r->elastic, text, sizeof text);
    assert_non_null(strstr(text, "M compared in 75 steps"));
    json_decref(lines);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_tune__##name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(differences_are_in_percent),
        TEST(another_grid_ends_the_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
