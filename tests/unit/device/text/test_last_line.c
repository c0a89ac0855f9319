/* The last words of a program, and texts that are cut. Would catch: a line that is cut within a
 * character, or that looks whole though it is not; and one with which the next line begins. */
#include "device/text/last_line.h"
#include "device/text/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(fl_last_line *line, const char *text)
{
    fl_last_line_add(line, text, strlen(text));
}

static void test_last_line__is_the_last_that_is_not_empty(void **state)
{
    (void)state;
    fl_last_line line = {.n = 0};
    add(&line, "first\nsec");
    add(&line, "ond\r\n\n");
    assert_string_equal(line.text, "second");
    add(&line, "a\x1b[2J");
    assert_string_equal(line.text, "a?[2J");
}

static void test_last_line__shows_that_it_is_cut(void **state)
{
    (void)state;
    fl_last_line line = {.n = 0};
    for (int i = 0; i < FL_LAST_LINE_MAX; i++) {
        add(&line, "\xc3\xa9");
    }
    size_t n = strlen(line.text);
    assert_true(n <= FL_LAST_LINE_MAX && n > FL_LAST_LINE_MAX - 6);
    assert_string_equal(line.text + n - 5, "\xc3\xa9...");
    add(&line, "\n");
    for (int i = 0; i < FL_LAST_LINE_MAX; i++) {
        add(&line, "x");
    }
    assert_int_equal(strlen(line.text), FL_LAST_LINE_MAX); /* it just fits */
    assert_null(strstr(line.text, "..."));
}

static void test_text_fit__cuts_after_a_whole_character(void **state)
{
    (void)state;
    static const struct {
        const char *text, *out;
    } cases[] = {
        {"", ""},
        {"1234567", "1234567"},
        {"12345678", "1234..."},
        {"123\xc3\xa9\xc3\xa9", "123\xc3\xa9\xc3\xa9"},
        {"123\xc3\xa9\xc3\xa9x", "123..."},
        {"1\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", "1\xe2\x82\xac..."},
        {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80..."},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80", "\x80..."}, /* no text: no further back */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[8];
        assert_string_equal(fl_text_fit(cases[i].text, out, sizeof out), cases[i].out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_line__is_the_last_that_is_not_empty),
        cmocka_unit_test(test_last_line__shows_that_it_is_cut),
        cmocka_unit_test(test_text_fit__cuts_after_a_whole_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
