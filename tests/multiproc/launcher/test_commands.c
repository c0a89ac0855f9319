/* Runs the examples of docs/commands.md, docs/control.md and docs/report.md exactly as printed.
 * Would catch: an example whose output the program no longer produces. */
#include "control/socket/ctl_request.h"
#include "launcher/main/commands.h"
#include "support/formats/page.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static output result;
static char *folder;

static int set_up(void **state)
{
    (void)state;
    char command[4096];
    folder = fresh_folder(FL_BINARY_DIR);
    snprintf(command, sizeof command,
             "cp -r '%s/configs' configs; "
             "sed -i 's|/usr/share/datasets/fashion-mnist|" FL_TEST_FASHION_WHOLE
             "|' configs/*.yaml; ln -s '%s/tests/reference/tokenizer/bert' minilm; "
             "printf 'Is it cold?\\nThe ice freezes.\\n' >sentences.txt",
             FL_SOURCE_DIR, FL_SOURCE_DIR);
    run_command(folder, command, &result);
    return 0;
}

/* A run that a failed example has left is ended, too. */
static int tear_down(void **state)
{
    (void)state;
    char command[4096];
    run_command(folder, FL_BINARY_DIR "/frostline ctl stop", &result);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    run_command(NULL, command, &result);
    free(folder);
    return 0;
}

static void run_page(const char *name, int n_least)
{
    if (access(FL_TEST_FASHION_WHOLE "/train-images-idx3-ubyte", R_OK) != 0) {
        skip();
    }
    assert_true(page_run(name, folder) >= n_least);
}

static void test_commands__each_example_of_the_page_does_what_it_shows(void **state)
{
    (void)state;
    run_page("docs/commands.md", 9);
}

static void test_commands__a_run_is_setting_done_as_the_page_shows(void **state)
{
    (void)state;
    run_page("docs/control.md", 15);
}

static void test_commands__a_run_is_reported_as_the_page_shows(void **state)
{
    (void)state;
    run_page("docs/report.md", 3);
}

/* A page [1 << 16], ended by 0. */
static const char *read_page(const char *name)
{
    static char page[1 << 16];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", FL_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    return page;
}

static void check_has_example(const char *page, const char *program, const char *command)
{
    char example[64];
    snprintf(example, sizeof example, "\n$ %s %s", program, command);
    if (strstr(page, example) == NULL) {
        fail_msg("there is no example '%s'", example + 1);
    }
}

/* Would catch: a command without a worked example. */
static void test_commands__each_command_has_an_example(void **state)
{
    (void)state;
    const char *page = read_page("docs/commands.md");
    for (int i = 0; fl_commands[i] != NULL; i++) {
        check_has_example(page, "frostline", fl_commands[i]->name);
    }
    page = read_page("docs/control.md");
    for (int i = 0; fl_ctl_command_at(i) != NULL; i++) {
        check_has_example(page, "frostline ctl", fl_ctl_command_at(i)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commands__each_example_of_the_page_does_what_it_shows,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_commands__a_run_is_setting_done_as_the_page_shows,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_commands__a_run_is_reported_as_the_page_shows, set_up,
                                        tear_down),
        cmocka_unit_test(test_commands__each_command_has_an_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
