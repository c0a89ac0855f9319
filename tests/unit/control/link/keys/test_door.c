/* How many descriptors a process may have before its ports are shut. Would catch: a limit that
 * leaves the run none, and one at which nobody can come in. */
#include "control/link/keys/door.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_door__keeps_descriptors_for_the_run(void **state)
{
    (void)state;
    assert_int_equal(fl_door_most(1024, 40), 768); /* a quarter is the run's */
    assert_int_equal(fl_door_most(192, 40), 128);
    assert_int_equal(fl_door_most(1000000, 40), 40 + 1024); /* memory is bounded, too */
    assert_int_equal(fl_door_most(UINT64_MAX, 0), 1024);
    assert_int_equal(fl_door_most(1024, 900), 964); /* the program has opened most of them itself */
}

/* Would catch: workers that wait for a second because more of them start at once than a port lets
 * wait, and connections that take the run's descriptors while ports are shut. */
static void test_door__lets_some_wait(void **state)
{
    (void)state;
    assert_int_equal(fl_door_backlog(192, 128), 10);
    assert_int_equal(fl_door_backlog(1024, 768), 42);
    assert_int_equal(fl_door_backlog(1000000, 1064), 128);
    assert_int_equal(fl_door_backlog(64, 64), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_door__keeps_descriptors_for_the_run),
        cmocka_unit_test(test_door__lets_some_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
