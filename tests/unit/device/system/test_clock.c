/* The time of day in years that its number does not hold. Would catch: a host whose clock is set to
 * such a year, and whose time of day is undefined or in another century. */
#include "device/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

static struct timespec date;

/* In the place of the C library's, for all of this program. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs are reserved */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = date;
    return 0;
}

static int64_t wall_ns_at(time_t seconds, long ns)
{
    date = (struct timespec){.tv_sec = seconds, .tv_nsec = ns};
    return fl_now_wall_ns();
}

static void test_clock__a_time_of_day_is_within_its_number(void **state)
{
    (void)state;
    assert_int_equal(wall_ns_at(2, 3), 2000000003);
    assert_int_equal(wall_ns_at(-2, 3), -1999999997);
    assert_int_equal(wall_ns_at(9223372036, 854775807), INT64_MAX);
    assert_int_equal(wall_ns_at(9223372036, 999999999), INT64_MAX);
    assert_int_equal(wall_ns_at(9223372037, 0), INT64_MAX);
    assert_int_equal(wall_ns_at(-9223372037, 0), INT64_MIN);
    assert_int_equal(wall_ns_at(INT64_MAX, 999999999), INT64_MAX);
    assert_int_equal(wall_ns_at(INT64_MIN, 0), INT64_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock__a_time_of_day_is_within_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
