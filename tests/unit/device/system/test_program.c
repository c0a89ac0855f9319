/* The program in a command that is printed. Would catch: a command that a user pastes and whose
 * program the shell does not find, or that starts another one of that name. */
#include "device/system/program.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE], self[4096];

static int make_place(void **state)
{
    (void)state;
    make_folder(folder);
    return fl_program_path(self, sizeof self) == FL_OK ? 0 : -1;
}

static int remove_place(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static void test_program__has_its_path_unless_the_shell_finds_it(void **state)
{
    (void)state;
    char path[FOLDER_SIZE + 64], shown[4096];
    assert_int_equal(setenv("PATH", "/nowhere:/bin", 1), 0);
    assert_string_equal(fl_program_shown(shown, sizeof shown), self);
    snprintf(path, sizeof path, "/nowhere:%s:/bin", folder);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_string_equal(fl_program_shown(shown, sizeof shown), self);
    snprintf(path, sizeof path, "%s/frostline", folder);
    assert_int_equal(symlink("/bin/sh", path), 0);
    assert_string_equal(fl_program_shown(shown, sizeof shown), self); /* another one */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(self, path), 0);
    assert_string_equal(fl_program_shown(shown, sizeof shown), "frostline");
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(setenv("PATH", ".", 1), 0); /* from here alone */
    assert_string_equal(fl_program_shown(shown, sizeof shown), self);
    assert_int_equal(unsetenv("PATH"), 0);
    assert_string_equal(fl_program_shown(shown, sizeof shown), self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_program__has_its_path_unless_the_shell_finds_it,
                                        make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
