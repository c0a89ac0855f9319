/* Would catch: a line for people with "7.57e+03 ms". */
#include "device/text/number_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_number_text__has_no_exponent(void **state)
{
    (void)state;
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
        {0.0, 3, "0"},         {0.0123456, 3, "0.0123"},
        {13.54, 3, "13.5"},    {999.4, 3, "999"},
        {999.6, 3, "1000"},    {7571.3, 3, "7571"},
        {7571.3, 4, "7571"},   {9999.4, 4, "9999"},
        {9999.6, 4, "10000"},  {86400123, 3, "86400123"},
        {-7571.3, 3, "-7571"}, {1e9, 3, "1e+09"},
        {INFINITY, 3, "inf"},  {NAN, 3, "-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[FL_NUMBER_TEXT_MAX];
        assert_string_equal(fl_number_text(cases[i].value, cases[i].digits, text), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_number_text__has_no_exponent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
