/* Step reports of several leaders, in the order of the steps. Would catch: a report that is lost
 * because a later one arrived first, a report that counts twice, and an evaluation that counts
 * before the steps that precede it. */
#include "control/link/step_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void add_step(fl_step_order *order, int64_t step)
{
    fl_step_report report = {.step = step, .loss = (double)step};
    assert_int_equal(fl_step_order_step(order, &report, 1000 * step), FL_OK);
}

static void add_norms(fl_step_order *order, int64_t step)
{
    fl_wire_norms norms = {.step = step, .n = 1, .squared = {(double)step}};
    assert_int_equal(fl_step_order_norms(order, &norms), FL_OK);
}

static void add_eval(fl_step_order *order, int64_t step)
{
    fl_eval_report eval = {.step = step, .loss = 0.5};
    assert_int_equal(fl_step_order_eval(order, &eval), FL_OK);
}

/* Takes all that is due; their steps as text, an evaluation as "e" behind its step, norms as "n".
 */
static const char *take_all(fl_step_order *order)
{
    static char text[256];
    size_t n = 0;
    fl_step_record *record;
    text[0] = 0;
    while ((record = fl_step_order_take(order)) != NULL) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s%lld", n == 0 ? "" : " ",
                              record->has_norms ? "n" : "", record->has_eval ? "e" : "",
                              (long long)record->step);
        if (record->has_step) {
            assert_true(record->report.loss == (double)record->step);
            assert_int_equal(record->at_us, 1000 * record->step);
        }
        fl_step_record_free(&record);
    }
    return text;
}

static void test_step_order__gives_out_each_step_once_and_in_order(void **state)
{
    (void)state;
    static const struct {
        int n;
        int64_t step[8];
        const char *taken; /* after all of them */
    } cases[] = {
        {3, {0, 1, 2}, "0 1 2"},           {3, {2, 1, 0}, "0 1 2"}, {4, {0, 0, 1, 1}, "0 1"},
        {5, {3, 4, 0, 1, 2}, "0 1 2 3 4"}, {3, {0, 2, 3}, "0"},     {2, {1, 2}, ""},
        {6, {2, 0, 2, 1, 0, 1}, "0 1 2"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fl_step_order order = {0};
        for (int i = 0; i < cases[c].n; i++) {
            add_step(&order, cases[c].step[i]);
        }
        assert_string_equal(take_all(&order), cases[c].taken);
        fl_step_order_fini(&order);
    }
}

/* The last reports of the old leader arrive after the first ones of the new leader. */
static void test_step_order__waits_for_a_late_leader(void **state)
{
    (void)state;
    fl_step_order order = {0};
    add_step(&order, 0);
    assert_string_equal(take_all(&order), "0");
    add_step(&order, 3); /* new leader */
    add_step(&order, 4);
    assert_string_equal(take_all(&order), "");
    assert_int_equal(fl_step_order_gap(&order), 2);
    add_step(&order, 1); /* old leader */
    assert_string_equal(take_all(&order), "1");
    add_step(&order, 2);
    assert_string_equal(take_all(&order), "2 3 4");
    add_step(&order, 2); /* a duplicate of what was given out */
    assert_string_equal(take_all(&order), "");
    assert_int_equal(fl_step_order_gap(&order), 0);
    fl_step_order_fini(&order);
}

static void test_step_order__keeps_norms_and_evaluations_with_their_steps(void **state)
{
    (void)state;
    fl_step_order order = {0};
    add_norms(&order, 0);
    assert_string_equal(take_all(&order), ""); /* the step itself is to come */
    add_step(&order, 0);
    assert_string_equal(take_all(&order), "n0");
    add_norms(&order, 0); /* too late to count */
    add_eval(&order, 2);  /* a later leader's, whose step is not known yet */
    add_norms(&order, 2);
    add_step(&order, 2);
    assert_string_equal(take_all(&order), "");
    add_step(&order, 1);
    assert_string_equal(take_all(&order), "1 ne2");
    add_eval(&order, 2);
    assert_string_equal(take_all(&order), "e2"); /* alone: its step was given out */
    fl_step_order_fini(&order);
}

static void test_step_order__gives_up_what_nobody_can_report(void **state)
{
    (void)state;
    fl_step_order order = {0};
    add_step(&order, 0);
    assert_string_equal(take_all(&order), "0");
    add_norms(&order, 1); /* the last that the lost leader sent */
    add_step(&order, 5);
    assert_int_equal(fl_step_order_gap(&order), 4);
    fl_step_order_skip(&order);
    assert_string_equal(take_all(&order), "n1 5");
    add_step(&order, 3);
    assert_string_equal(take_all(&order), "");
    fl_step_order_fini(&order);
}

static void test_step_order__refuses_a_step_that_is_far_ahead(void **state)
{
    (void)state;
    fl_step_order order = {0};
    fl_step_report report = {.step = FL_REPORTS_AHEAD_MAX + 1};
    assert_int_equal(fl_step_order_step(&order, &report, 0), FL_EFORMAT);
    assert_null(order.first);
}

static void add_share(fl_step_order *order, int64_t step, int32_t replica, uint32_t n)
{
    static const int64_t ids[] = {7, 3, 5, 1};
    unsigned char bytes[FL_WIRE_HEADER_BYTES + 24 + sizeof ids];
    const unsigned char *at = bytes;
    fl_wire_message frame = {.type = FL_WIRE_LEDGER, .generation = 4}, back;
    frame.ledger = (fl_wire_ledger){.step = step, .replica = replica, .n = n, .ids = ids};
    size_t left = fl_wire_size(&frame);
    fl_wire_put(&frame, bytes);
    assert_int_equal(fl_wire_next(&at, &left, &back), FL_OK);
    assert_int_equal(fl_step_order_share(order, &back), FL_OK);
}

/* The samples of a step are counted with it: once, however often they are reported, in the order of
 * the replicas; and not at all if the step is not reported before the run regroups. */
static void test_step_order__keeps_samples_with_their_step(void **state)
{
    (void)state;
    fl_step_order order = {0};
    add_share(&order, 0, 1, 2);
    add_share(&order, 0, 0, 4);
    add_share(&order, 0, 1, 2);
    assert_null(fl_step_order_take(&order));
    add_step(&order, 0);
    fl_step_record *record = fl_step_order_take(&order);
    assert_non_null(record);
    const fl_step_share *first = record->shares, *second = first->next;
    assert_true(first->replica == 0 && first->n == 4 && first->ids[3] == 1);
    assert_true(second->replica == 1 && second->n == 2 && second->ids[0] == 7);
    assert_int_equal(second->generation, 4);
    assert_null(second->next);
    fl_step_record_free(&record);
    add_share(&order, 0, 0, 4); /* of a step that has been released */
    add_share(&order, 1, 0, 4);
    add_norms(&order, 1);
    fl_step_order_forget(&order);
    add_step(&order, 1);
    record = fl_step_order_take(&order);
    assert_non_null(record);
    assert_true(record->step == 1 && record->shares == NULL && !record->has_norms);
    fl_step_record_free(&record);
    fl_step_order_fini(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_order__gives_out_each_step_once_and_in_order),
        cmocka_unit_test(test_step_order__waits_for_a_late_leader),
        cmocka_unit_test(test_step_order__keeps_norms_and_evaluations_with_their_steps),
        cmocka_unit_test(test_step_order__keeps_samples_with_their_step),
        cmocka_unit_test(test_step_order__gives_up_what_nobody_can_report),
        cmocka_unit_test(test_step_order__refuses_a_step_that_is_far_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
