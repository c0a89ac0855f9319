/* What the machine says about its memory. */
#include "device/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

static void test_meminfo__finds_the_line_of_a_key(void **state)
{
    (void)state;
    static const char text[] = "MemTotal:       24684084 kB\nMemFree: 7 kB\n"
                               "MemAvailable:   18000000 kB\nBad: kB\nHuge: 99999999999999999 kB\n";
    assert_int_equal(fl_meminfo_bytes(text, "MemTotal"), INT64_C(24684084) * 1024);
    assert_int_equal(fl_meminfo_bytes(text, "MemAvailable"), INT64_C(18000000) * 1024);
    assert_int_equal(fl_meminfo_bytes(text, "Mem"), INT64_MAX);
    assert_int_equal(fl_meminfo_bytes(text, "Available"), INT64_MAX);
    assert_int_equal(fl_meminfo_bytes(text, "Bad"), INT64_MAX);
    assert_int_equal(fl_meminfo_bytes(text, "Huge"), INT64_MAX);
    assert_int_equal(fl_meminfo_bytes("", "MemTotal"), INT64_MAX);
}

/* Would catch a unit mistaken, or a limit read from the wrong place. */
static void test_machine__has_less_available_than_it_has(void **state)
{
    (void)state;
    int64_t physical = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t available = fl_machine_available_bytes();
    assert_true(available > 0 && available <= physical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meminfo__finds_the_line_of_a_key),
        cmocka_unit_test(test_machine__has_less_available_than_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
