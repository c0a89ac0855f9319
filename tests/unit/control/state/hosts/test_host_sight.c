/* Which host a run does without when hosts do not reach each other. Would catch: a choice that
 * depends on who answered first, the head left out, and the host that most others cannot reach kept
 * in the run. */
#include "control/state/hosts/host_sight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { HOSTS = 5 };

static const fl_host_loss even[HOSTS] = {
    {.keeps_all = true, .has_plan = true, .step_us = 9.0, .n_devices = 1},
    {.keeps_all = true, .has_plan = true, .step_us = 9.0, .n_devices = 1},
    {.keeps_all = true, .has_plan = true, .step_us = 9.0, .n_devices = 1},
    {.keeps_all = true, .has_plan = true, .step_us = 9.0, .n_devices = 1},
    {.keeps_all = true, .has_plan = true, .step_us = 9.0, .n_devices = 1}};

/* pairs: "12 23", each of two hosts, or of one with itself. */
static fl_host_sight sight_of(const char *pairs)
{
    fl_host_sight s = {.number = 1};
    for (const char *c = pairs; *c != '\0'; c += c[2] == ' ' ? 3 : 2) {
        fl_host_sight_add(&s, c[0] - '0', c[1] - '0', 0, "no answer");
    }
    return s;
}

static int chosen(const char *pairs, const fl_host_loss *without)
{
    fl_host_sight s = sight_of(pairs);
    return fl_host_sight_choose(&s, without, HOSTS);
}

static void test_host_sight__leaves_out_the_host_that_most_cannot_reach(void **state)
{
    (void)state;
    static const struct {
        const char *pairs;
        int host;
    } cases[] = {{"", -1},  {"12", 2},  {"21", 2},        {"13 23", 3}, {"12 13", 1},
                 {"01", 1}, {"10", 1},  {"01 12", 1},     {"02 12", 2}, {"12 34", 4},
                 {"22", 2}, {"00", -1}, {"12 13 42 1", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases - 1; i++) {
        assert_int_equal(chosen(cases[i].pairs, even), cases[i].host);
    }
}

/* Each reason counts only where those before it are equal. */
static void test_host_sight__keeps_the_better_plan(void **state)
{
    (void)state;
    fl_host_loss without[HOSTS];
    memcpy(without, even, sizeof without);
    without[1].n_devices = 2;
    assert_int_equal(chosen("12", without), 2);
    without[2].n_devices = 3;
    assert_int_equal(chosen("12", without), 1);
    without[1].step_us = 10.0;
    assert_int_equal(chosen("12", without), 2);
    without[2].has_plan = false;
    assert_int_equal(chosen("12", without), 1);
    without[1].keeps_all = false;
    assert_int_equal(chosen("12", without), 2);
    assert_int_equal(chosen("12 13", without), 1); /* but the others agree about it */
}

static void test_host_sight__has_each_pair_once(void **state)
{
    (void)state;
    fl_host_sight s = sight_of("12 21 12 33 23 33");
    assert_int_equal(s.n, 3);
    fl_host_sight_drop(&s, 1);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.pair[0].a, 3);
    assert_int_equal(s.pair[0].b, 3);
    assert_int_equal(s.pair[1].a, 2);
    assert_int_equal(s.pair[1].b, 3);
    for (int i = 0; i < 1000; i++) {
        fl_host_sight_add(&s, i + 10, i + 11, 0, "no answer");
    }
    assert_int_equal(s.n, FL_HOST_PAIRS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_sight__leaves_out_the_host_that_most_cannot_reach),
        cmocka_unit_test(test_host_sight__keeps_the_better_plan),
        cmocka_unit_test(test_host_sight__has_each_pair_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
