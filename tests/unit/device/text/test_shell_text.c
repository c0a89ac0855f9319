#include "device/text/shell_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct word_case {
    const char *word, *shown;
} word_case;

static void check_shown(const word_case *c)
{
    char shown[256];
    assert_string_equal(fl_shell_shown(c->word, shown, sizeof shown), c->shown);
}

static void test_shown__quotes_where_needed(void **state)
{
    (void)state;
    static const word_case cases[] = {
        {"runs/first-20260101_120000.2", "runs/first-20260101_120000.2"},
        {"tcp://10.0.0.1:5570", "tcp://10.0.0.1:5570"},
        {"tcp://[fd00::1]:5570", "'tcp://[fd00::1]:5570'"},
        {"", "''"},
        {"my hosts.yaml", "'my hosts.yaml'"},
        {"it's.yaml", "'it'\\''s.yaml'"},
        {"h$(touch X).yaml", "'h$(touch X).yaml'"},
        {"~/run", "'~/run'"},
        {"=ls", "'=ls'"},
        {"l\xc3\xa4ufe", "'l\xc3\xa4ufe'"},
        {"a\\b", "'a\\b'"},
        {"a\nb", "$'a\\012b'"},
        {"\033[2J'\\", "$'\\033[2J\\047\\134'"},
        {"a\x80z", "$'a\\200z'"},
        {"\xc2\x9b", "$'\\302\\233'"},            /* one byte that begins a terminal's command */
        {"a\xe2\x80\xae", "$'a\\342\\200\\256'"}, /* from right to left */
        {"\xc3\xa4\t", "$'\xc3\xa4\\011'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_shown(&cases[i]);
    }
}

static void test_shown__is_never_cut(void **state)
{
    (void)state;
    char shown[8];
    assert_string_equal(fl_shell_shown("1234567", shown, sizeof shown), "1234567");
    assert_string_equal(fl_shell_shown("12345678", shown, sizeof shown), "...");
    assert_string_equal(fl_shell_shown("12 45", shown, sizeof shown), "'12 45'");
    assert_string_equal(fl_shell_shown("12 456", shown, sizeof shown), "...");
    assert_string_equal(fl_shell_shown("a\nb", shown, sizeof shown), "...");
}

/* What the shell makes of the word, as its only argument. */
static void read_by(const char *shell, const char *shown, char said[256])
{
    char script[512], command[1024], quoted[900];
    snprintf(script, sizeof script, "printf '%%s|' %s", shown);
    fl_shell_shown(script, quoted, sizeof quoted);
    snprintf(command, sizeof command, "%s -c %s", shell, quoted);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    said[fread(said, 1, 255, out)] = '\0';
    assert_int_equal(pclose(out), 0);
}

static void test_shown__is_what_a_shell_reads(void **state)
{
    (void)state;
    static const char *const words[] = {"my hosts.yaml",   "it's",     "h$(touch X)`touch Y`",
                                        "a\\'b\"c",        "~",        "",
                                        "*;|&<>(){}[]?!#", "l\xc3\xa4"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char shown[256], said[256], wanted[256];
        fl_shell_shown(words[i], shown, sizeof shown);
        snprintf(wanted, sizeof wanted, "%s|", words[i]);
        read_by("sh", shown, said);
        assert_string_equal(said, wanted);
    }
}

/* bash reads the escapes; to a shell that does not know them it is one other word. */
static void test_shown__with_control_characters_is_one_word(void **state)
{
    (void)state;
    char shown[256], said[256];
    fl_shell_shown("a\n$(echo b)'; echo c\\\033", shown, sizeof shown);
    read_by("bash", shown, said);
    assert_string_equal(said, "a\n$(echo b)'; echo c\\\033|");
    read_by("sh", shown, said);
    assert_null(strchr(strchr(said, '|') + 1, '|'));
    assert_non_null(strstr(said, "$(echo b)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shown__quotes_where_needed),
        cmocka_unit_test(test_shown__is_never_cut),
        cmocka_unit_test(test_shown__is_what_a_shell_reads),
        cmocka_unit_test(test_shown__with_control_characters_is_one_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
