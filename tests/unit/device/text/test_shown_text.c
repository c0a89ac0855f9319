#include "device/text/shown_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Would catch: a name of a folder that begins a line of its own, or that a terminal obeys. */
static void test_shown__escapes_what_controls_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"", ""},
        {"my run's \"1\"\\2", "my run's \"1\"\\2"},
        {"l\xc3\xa4ufe", "l\xc3\xa4ufe"},
        {"a\nb\tc\r", "a\\012b\\011c\\015"},
        {"\033[2J", "\\033[2J"},
        {"\xc2\x9b", "\\302\\233"},            /* one character that begins a terminal's command */
        {"a\xe2\x80\xae", "a\\342\\200\\256"}, /* from right to left */
        {"a\x80z\xff", "a\\200z\\377"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char shown[64];
        assert_string_equal(fl_text_shown(cases[i].text, shown, sizeof shown), cases[i].shown);
    }
}

/* Would catch: a message of several lines that becomes one. */
static void test_shown__keeps_lines_of_a_message(void **state)
{
    (void)state;
    char shown[32];
    assert_string_equal(fl_text_shown_lines("a:\n  b\r\033\n", shown, sizeof shown),
                        "a:\n  b\\015\\033\n");
}

static void test_shown__is_cut_between_characters(void **state)
{
    (void)state;
    char shown[6];
    assert_string_equal(fl_text_shown("1234567", shown, sizeof shown), "12345");
    assert_string_equal(fl_text_shown("a\nb", shown, sizeof shown), "a\\012");
    assert_string_equal(fl_text_shown("ab\nc", shown, sizeof shown), "ab");
    assert_string_equal(fl_text_shown("1234\xc3\xa4", shown, sizeof shown), "1234");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shown__escapes_what_controls_a_terminal),
        cmocka_unit_test(test_shown__keeps_lines_of_a_message),
        cmocka_unit_test(test_shown__is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
