#include "control/checkpoint/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PER_EPOCH = 40, END = 1000 };

typedef struct due_case {
    fl_interval every;
    int64_t steps, last_step, passed_ms; /* since the last checkpoint */
    int64_t lead, wanted;
} due_case;

static const due_case cases[] = {
    /* steps: asked as soon as the next multiple is within reach, and exactly for it */
    {{.steps = 100}, 80, 0, 0, 10, 0},
    {{.steps = 100}, 90, 0, 0, 10, 100},
    {{.steps = 100}, 99, 0, 0, 10, 100},
    {{.steps = 100}, 95, 100, 0, 10, 0}, /* asked for already */
    {{.steps = 100}, 190, 100, 0, 10, 200},
    {{.steps = 100}, 150, 0, 0, 10, 151}, /* something was in the way: as soon as possible */
    {{.steps = 1}, 5, 5, 0, 4, 6},
    {{.steps = 100}, 990, 900, 0, 10, 0}, /* the end has a checkpoint of its own */
    {{.steps = 2000}, 995, 0, 0, 2000, 0},
    /* a resumed run keeps the multiples */
    {{.steps = 100}, 199, 137, 0, 10, 200},
    /* epochs */
    {{.epochs = 1}, 29, 0, 0, 10, 0},
    {{.epochs = 1}, 30, 0, 0, 10, 40},
    {{.epochs = 3}, 115, 40, 0, 10, 120},
    {{.epochs = INT64_MAX / 2}, 115, 40, 0, 10, 0},
    /* time */
    {{.ms = 5000}, 30, 0, 4999, 7, 0},
    {{.ms = 5000}, 30, 0, 5000, 7, 37},
    {{.ms = 5000}, 994, 0, 5000, 7, 0},
    /* never */
    {{0}, 500, 0, 1000000, 7, 0},
};

static void test_schedule__a_checkpoint_is_due_at_its_interval(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const due_case *c = &cases[i];
        fl_checkpoint_schedule schedule = {.every = c->every, .steps_per_epoch = PER_EPOCH};
        fl_checkpoint_moment moment = {.steps = c->steps,
                                       .end_step = END,
                                       .now_us = 77 + c->passed_ms * 1000,
                                       .last_step = c->last_step,
                                       .last_us = 77,
                                       .lead = c->lead};
        print_message("case %zu\n", i);
        assert_int_equal(fl_checkpoint_due(&schedule, &moment), c->wanted);
    }
}

/* Would catch a schedule that asks twice for a step, or leaves out one that it can reach. */
static void test_schedule__every_multiple_comes_once(void **state)
{
    (void)state;
    for (int64_t period = 1; period <= 60; period += 7) {
        fl_checkpoint_schedule schedule = {.every = {.steps = period},
                                           .steps_per_epoch = PER_EPOCH};
        fl_checkpoint_moment moment = {.end_step = END, .lead = 4};
        int64_t n = 0;
        for (moment.steps = 0; moment.steps < END; moment.steps++) {
            int64_t due = fl_checkpoint_due(&schedule, &moment);
            if (due > 0) {
                assert_true(due > moment.last_step && due < END);
                assert_int_equal(due % period, 0);
                moment.last_step = due;
                n++;
            }
        }
        assert_int_equal(n, (END - 1) / period);
    }
}

static void test_schedule__the_lead_is_a_quarter_of_a_second(void **state)
{
    (void)state;
    assert_int_equal(fl_checkpoint_lead(1.0, 16, 0, 0), 250);
    assert_int_equal(fl_checkpoint_lead(0.0, 16, 0, 0), 16); /* no step was measured yet */
    assert_int_equal(fl_checkpoint_lead(1000.0, 16, 0, 0), 4);
    assert_int_equal(fl_checkpoint_lead(1.0, 16, 3, 0), 2000);
    assert_int_equal(fl_checkpoint_lead(1e-9, 16, 40, 0), 1 << 20);
    assert_int_equal(fl_checkpoint_lead(1.0, 16, 0, 2),
                     15); /* before the next change of the plan */
    assert_int_equal(fl_checkpoint_lead(1.0, 16, 0, 9), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule__a_checkpoint_is_due_at_its_interval),
        cmocka_unit_test(test_schedule__every_multiple_comes_once),
        cmocka_unit_test(test_schedule__the_lead_is_a_quarter_of_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
