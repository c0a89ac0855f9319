/* The words for a worker's state. Would catch: a worker that was drained and is shown as one that
 * was lost, or the other way round. */
#include "control/state/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_worker__names_its_state(void **state)
{
    (void)state;
    static const struct {
        fl_worker worker;
        const char *text;
    } cases[] = {
        {{.incarnation = 1}, "starting"},
        {{.incarnation = 1, .ready = true}, "standby"},
        {{.incarnation = 1, .ready = true, .place.active = true}, "active"},
        {{.incarnation = 1, .done = true, .exited_us = 5}, "done"},
        {{.incarnation = 1, .exited_us = 5}, "gone"},
        {{.incarnation = 1, .ready = true, .departed = true}, "leaving"},
        {{.incarnation = 1, .ready = true, .departed = true, .exited_us = 5}, "drained"},
        {{.incarnation = 1, .departed = true, .exited_us = 5, .lost = true}, "lost"},
        {{.incarnation = 1, .departed = true, .exited_us = 5, .lost_outside = true}, "lost"},
        {{.incarnation = 1, .departed = true, .exited_us = 5, .lost = true, .restarts_us = 9},
         "restarting"},
        {{.incarnation = 2, .departed = true, .joins = true}, "joining"},
        {{.departed = true, .exited_us = 5}, "left"}, /* of the controller before this one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(fl_worker_state_text(&cases[i].worker), cases[i].text);
    }
}

/* The operation is the last one that the worker reported. Would catch: a worker of a lost host that
 * is shown as starting, since it had reported nothing to this controller. */
static void test_worker__has_no_operation_without_a_process(void **state)
{
    (void)state;
    static const fl_worker works = {.operation = "forward"};
    static const fl_worker lost = {.operation = "starting", .departed = true, .exited_us = 5};
    assert_string_equal(fl_worker_operation(&works), "forward");
    assert_string_equal(fl_worker_operation(&lost), "");
}

/* A worker in standby is not told of steps; the reports of a worker that trains may be late. */
static void test_worker__knows_the_finished_steps_of_the_run(void **state)
{
    (void)state;
    static const fl_worker workers[] = {{.steps = 261}, {.steps = 427}, {.steps = 426}};
    assert_int_equal(fl_workers_finished_steps(workers, 3, 420), 427);
    assert_int_equal(fl_workers_finished_steps(workers, 1, 420), 420);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker__names_its_state),
        cmocka_unit_test(test_worker__has_no_operation_without_a_process),
        cmocka_unit_test(test_worker__knows_the_finished_steps_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
