/* Man pages and completion, from a table of commands made here. */
#include "launcher/pages/completion.h"
#include "launcher/pages/man_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const fl_cli_command hard = {
    .name = "hard-one",
    .operand = "RUN",
    .operand_is_optional = true,
    .summary = "It's a 'hard' one.",
    .details = "First \\n line\n.of two\n\n  frostline hard-one -x\n  ../it\n\nafter [it]: done.\n",
    .exit_codes = {{FL_EXIT_DEFECT, "they differ"}},
    .options = {{"--key-file", 'k', "FILE", "don't lose it"}, {"--plain", 0, NULL, "as [text]"}},
};
static const fl_cli_command *const commands[] = {&hard, NULL};

/* Freed with free. */
static char *text_of_page(void (*write)(const fl_cli_command *const *, FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (write == NULL) {
        fl_man_page_command(&hard, out);
    } else {
        write(commands, out);
    }
    fclose(out);
    return text;
}

/* roff takes a line that begins with '.' for a request, and would drop it without a word. */
static void test_man_page__no_text_becomes_a_request(void **state)
{
    (void)state;
    char *page = text_of_page(NULL);
    assert_non_null(strstr(page, "First \\en line\n\\&.of two\n.PP\n.EX\n"));
    assert_non_null(
        strstr(page, "  frostline hard\\-one \\-x\n  ../it\n.EE\n.PP\nafter [it]: done.\n"));
    assert_non_null(
        strstr(page, "\\fB\\-k\\fR, \\fB\\-\\-key\\-file\\fR \\fIFILE\\fR\ndon\\(aqt lose it\n"));
    assert_non_null(strstr(page, "frostline\\-hard\\-one \\- It\\(aqs a \\(aqhard\\(aq one\n"));
    assert_non_null(strstr(page, "[\\fIRUN\\fR] [\\fIOPTION\\fR]..."));
    free(page);
}

/* Would catch: a script that takes the 1 of `frostline diff` for a defect of the program. */
static void test_man_page__has_the_exit_codes_of_its_command(void **state)
{
    (void)state;
    char *page = text_of_page(NULL);
    assert_non_null(strstr(page, "\\fB1\\fR\nthey differ\n"));
    assert_null(strstr(page, "internal error"));
    assert_non_null(strstr(page, "\\fB0\\fR\ndone\n"));
    free(page);
}

/* What would end a quoted text of the script must not. */
static void test_completion__quotes_of_documentation_are_escaped(void **state)
{
    (void)state;
    char *zsh = text_of_page(fl_completion_zsh), *fish = text_of_page(fl_completion_fish);
    assert_non_null(strstr(zsh, "'*--key-file[don'\\''t lose it]:FILE:_files'"));
    assert_non_null(strstr(zsh, "'*-k[don'\\''t lose it]:FILE:_files'"));
    assert_non_null(strstr(zsh, "'*--plain[as \\[text\\]]'"));
    assert_non_null(strstr(fish, "-l key-file -s k -r -F -d 'don\\'t lose it'\n"));
    free(zsh);
    free(fish);
}

static void test_completion__an_operand_tells_what_completes_it(void **state)
{
    (void)state;
    static const struct {
        const char *operand;
        fl_completes kind;
    } table[] = {
        {"RUN", FL_COMPLETES_RUN},          {"[RUN] COMMAND [ARGUMENT]...", FL_COMPLETES_RUN},
        {"RUN RUN", FL_COMPLETES_RUN},      {"MODEL [JOB.yaml]", FL_COMPLETES_RUN},
        {"JOB.yaml", FL_COMPLETES_FILE},    {"DIR", FL_COMPLETES_FOLDER},
        {"PATH=VALUE", FL_COMPLETES_FIELD}, {"PATH", FL_COMPLETES_FILE},
        {"COMMAND", FL_COMPLETES_COMMAND},  {"SECONDS", FL_COMPLETES_NOTHING},
        {"RUNS", FL_COMPLETES_NOTHING},     {NULL, FL_COMPLETES_NOTHING},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(fl_completion_kind(table[i].operand), table[i].kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_man_page__no_text_becomes_a_request),
        cmocka_unit_test(test_man_page__has_the_exit_codes_of_its_command),
        cmocka_unit_test(test_completion__quotes_of_documentation_are_escaped),
        cmocka_unit_test(test_completion__an_operand_tells_what_completes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
