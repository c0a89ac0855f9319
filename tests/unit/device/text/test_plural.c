#include "device/text/plural.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_count__knows_singular_and_plural(void **state)
{
    (void)state;
    static const struct {
        int64_t n;
        const char *noun, *text;
    } cases[] = {
        {0, "step", "0 steps"},
        {1, "step", "1 step"},
        {1, "epoch", "1 epoch"},
        {2, "epoch", "2 epochs"},
        {2, "step", "2 steps"},
        {1, "micro-batch", "1 micro-batch"},
        {12, "micro-batch", "12 micro-batches"},
        {-1, "block", "-1 blocks"},
        {3, "loss", "3 losses"},
        {INT64_MIN, "test sample", "-9223372036854775808 test samples"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[FL_COUNT_BYTES];
        assert_string_equal(fl_count(cases[i].n, cases[i].noun, text), cases[i].text);
    }
}

static void test_count__names_a_range(void **state)
{
    (void)state;
    char text[FL_COUNT_BYTES];
    assert_string_equal(fl_count_range(2, 1, "worker", text), "worker 2");
    assert_string_equal(fl_count_range(0, 2, "stage", text), "stages 0 .. 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count__knows_singular_and_plural),
        cmocka_unit_test(test_count__names_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
