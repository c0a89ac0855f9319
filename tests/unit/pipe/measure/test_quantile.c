/* Would catch: a quantile of unsorted values, the wrong middle of an even number of values. */
#include "pipe/measure/quantile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_quantile__of_few_and_many_values(void **state)
{
    (void)state;
    double one[] = {7}, two[] = {9, 1}, five[] = {5, 1, 4, 2, 3},
           eight[] = {8, 1, 7, 2, 6, 3, 5, 4};
    assert_true(fl_quantile_median(one, 1) == 7.0);
    assert_true(fl_quantile_lower(one, 1) == 7.0);
    assert_true(fl_quantile_median(two, 2) == 5.0);
    assert_true(fl_quantile_lower(two, 2) == 1.0);
    assert_true(fl_quantile_lower(five, 5) == 2.0);
    assert_true(fl_quantile_median(five, 5) == 3.0);
    assert_true(fl_quantile_median(eight, 8) == 4.5);
    assert_true(fl_quantile_lower(eight, 8) == 3.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantile__of_few_and_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
