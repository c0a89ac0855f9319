/* How many descriptors a process may have before its ports are shut. Would catch: a limit that
 * leaves the run none, and one at which nobody can come in. */
#include "control/link/door.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_door__keeps_descriptors_for_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
