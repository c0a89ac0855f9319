/* Changes of the plan that are asked for again. Would catch: one that fails every second for as
 * long as the run lasts, one that leaves no time for other changes, and a message for each. */
#include "control/controller/judge/attempts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SECOND_US = 1000000, MANY = 70 };

/* Seconds until the next attempt, after one that took `took_s` and failed. */
static int64_t fail_after(fl_attempts *a, int64_t took_s, int64_t *now_us)
{
    fl_attempts_begin(a, *now_us);
    *now_us += took_s * SECOND_US;
    int64_t due_us = fl_attempts_failed(a, *now_us), pause_us = due_us - *now_us;
    *now_us = due_us;
    return pause_us / SECOND_US;
}

static void test_attempts__become_rarer(void **state)
{
    (void)state;
    static const int64_t pauses_s[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
    fl_attempts a = {.n = 0};
    int64_t now_us = 5;
    for (size_t i = 0; i < sizeof pauses_s / sizeof *pauses_s; i++) {
        assert_int_equal(fail_after(&a, 0, &now_us), pauses_s[i]);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(fail_after(&a, 1, &now_us), 60);
    }
}

/* Only one change is prepared at a time. */
static void test_attempts__leave_time_for_others(void **state)
{
    (void)state;
    fl_attempts a = {.n = 0};
    int64_t now_us = 5;
    assert_int_equal(fail_after(&a, 60, &now_us), 240);
    assert_int_equal(fail_after(&a, 0, &now_us), 2);
}

static void test_attempts__are_told_with_their_number(void **state)
{
    (void)state;
    fl_attempts a = {.n = 0};
    char text[64];
    int n_told = 0;
    for (int i = 1; i <= 64; i++) {
        int64_t due_us = fl_attempts_failed(&a, 0);
        n_told += fl_attempts_tell(&a, due_us, 0, text, sizeof text);
        if (i == 4) {
            assert_string_equal(text, "; attempt 4, the next one in 8 s");
            assert_int_equal(n_told, 3);
        }
    }
    assert_int_equal(n_told, 7); /* 1, 2, 4 ... 64 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attempts__become_rarer),
        cmocka_unit_test(test_attempts__leave_time_for_others),
        cmocka_unit_test(test_attempts__are_told_with_their_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
