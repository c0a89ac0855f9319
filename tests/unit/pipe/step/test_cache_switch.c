/* When the cache is used: by what was measured, and nothing else. */
#include "pipe/step/input/cache_switch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_cache_switch__is_on_until_both_are_measured(void **state)
{
    (void)state;
    fl_cache_switch c;
    fl_cache_switch_init(&c, FL_CACHE_AUTO);
    fl_cache_switch_decide(&c);
    assert_true(c.on && !c.changed);
    fl_cache_switch_read(&c, 50.0);
    fl_cache_switch_decide(&c);
    assert_true(c.on && !c.changed);
    fl_cache_switch_computed(&c, 40.0);
    fl_cache_switch_decide(&c);
    assert_true(!c.on && c.changed);
}

static void test_cache_switch__tells_the_first_decision_and_each_change(void **state)
{
    (void)state;
    fl_cache_switch c;
    fl_cache_switch_init(&c, FL_CACHE_AUTO);
    fl_cache_switch_read(&c, 2.0);
    fl_cache_switch_computed(&c, 40.0);
    fl_cache_switch_decide(&c);
    assert_true(c.on && c.changed);
    c.changed = false; /* reported */
    fl_cache_switch_decide(&c);
    assert_true(c.on && !c.changed);
    for (int i = 0; i < 20; i++) {
        fl_cache_switch_read(&c, 100.0);
        fl_cache_switch_decide(&c);
    }
    assert_true(!c.on && c.changed);
}

/* A machine that once did something else for a while is no slow disk. */
static void test_cache_switch__one_long_wait_decides_nothing(void **state)
{
    (void)state;
    fl_cache_switch c;
    fl_cache_switch_init(&c, FL_CACHE_AUTO);
    fl_cache_switch_read(&c, 2.0);
    fl_cache_switch_computed(&c, 40.0);
    fl_cache_switch_decide(&c);
    fl_cache_switch_read(&c, 5000.0);
    fl_cache_switch_decide(&c);
    assert_true(c.on);
    for (int i = 0; i < 10; i++) {
        fl_cache_switch_read(&c, 5000.0);
    }
    fl_cache_switch_decide(&c);
    assert_false(c.on);
}

/* A slow disk is unknown until a step has waited for it; then it counts fully. */
static void test_cache_switch__a_guess_gives_way_to_what_is_measured(void **state)
{
    (void)state;
    fl_cache_switch c;
    fl_cache_switch_init(&c, FL_CACHE_AUTO);
    fl_cache_switch_computed(&c, 40.0);
    fl_cache_switch_guess(&c, 2.0);
    fl_cache_switch_decide(&c);
    assert_true(c.on && c.changed);
    fl_cache_switch_read(&c, 100.0);
    fl_cache_switch_guess(&c, 2.0); /* no longer of interest */
    fl_cache_switch_decide(&c);
    assert_false(c.on);
}

static void test_cache_switch__tries_again_in_the_next_epoch(void **state)
{
    (void)state;
    fl_cache_switch c;
    fl_cache_switch_init(&c, FL_CACHE_AUTO);
    fl_cache_switch_epoch(&c, 0);
    fl_cache_switch_read(&c, 100.0);
    fl_cache_switch_computed(&c, 40.0);
    fl_cache_switch_decide(&c);
    assert_false(c.on);
    c.changed = false;
    fl_cache_switch_epoch(&c, 0);
    assert_false(c.on);
    fl_cache_switch_epoch(&c, 1);
    assert_true(c.on);
    fl_cache_switch_decide(&c); /* nothing was read yet */
    assert_true(c.on && !c.changed);
    fl_cache_switch_read(&c, 100.0);
    fl_cache_switch_decide(&c); /* as before: nothing new to tell */
    assert_true(!c.on && !c.changed);
    fl_cache_switch_epoch(&c, 2);
    for (int i = 0; i < 20; i++) {
        fl_cache_switch_read(&c, 1.0);
    }
    fl_cache_switch_decide(&c);
    assert_true(c.on && c.changed);
}

static void test_cache_switch__on_means_on(void **state)
{
    (void)state;
    fl_cache_switch c;
    fl_cache_switch_init(&c, FL_CACHE_ON);
    fl_cache_switch_read(&c, 100.0);
    fl_cache_switch_computed(&c, 1.0);
    fl_cache_switch_decide(&c);
    assert_true(c.on && !c.changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_switch__is_on_until_both_are_measured),
        cmocka_unit_test(test_cache_switch__tells_the_first_decision_and_each_change),
        cmocka_unit_test(test_cache_switch__one_long_wait_decides_nothing),
        cmocka_unit_test(test_cache_switch__a_guess_gives_way_to_what_is_measured),
        cmocka_unit_test(test_cache_switch__tries_again_in_the_next_epoch),
        cmocka_unit_test(test_cache_switch__on_means_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
