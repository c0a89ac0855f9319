/* What frostline doctor has ssh start on another host, and what comes back. */
#include "launcher/doctor/hosts/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Would catch: a path that a shell takes apart. */
static void test_doctor_ask__a_host_is_asked_for_the_folder_of_runs(void **state)
{
    (void)state;
    char command[FL_DOCTOR_COMMAND_MAX];
    assert_true(fl_doctor_ask_command("/usr/bin/frostline", NULL, command));
    assert_string_equal(command, "exec '/usr/bin/frostline' doctor --json");
    const fl_doctor_runs shared = {.path = "/it's $HOME"};
    assert_true(fl_doctor_ask_command("/a b/f", &shared, command));
    assert_string_equal(command, "exec '/a b/f' doctor --json --runs '/it'\\''s $HOME'");
    const fl_doctor_runs apart = {.path = "runs", .cwd = "/home/a"};
    assert_true(fl_doctor_ask_command("/f", &apart, command));
    assert_string_equal(command, "cd '/home/a' 2>/dev/null; exec '/f' doctor --json --runs 'runs'");
    const fl_doctor_runs proved = {.path = "/r", .proof = "joining-1"};
    assert_true(fl_doctor_ask_command("/f", &proved, command));
    assert_string_equal(command, "exec '/f' doctor --json --runs '/r' --proof 'joining-1'");
    static char long_path[FL_DOCTOR_COMMAND_MAX];
    memset(long_path, 'x', sizeof long_path - 1);
    const fl_doctor_runs too_long = {.path = long_path};
    assert_false(fl_doctor_ask_command("/f", &too_long, command));
}

/* Would catch: a wait for more after the result, and an answer that is cut off in the middle. */
static void test_doctor_ask__an_answer_is_whole_with_its_last_line(void **state)
{
    (void)state;
    static const char text[] =
        "hello\n{\"version\": \"1\", \"checks\": [{\"check\": \"a}\\n\"}]}\n";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        assert_false(fl_doctor_is_whole_answer(text, n));
    }
    assert_true(fl_doctor_is_whole_answer(text, sizeof text - 1));
    assert_false(fl_doctor_is_whole_answer("{}\n", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_ask__a_host_is_asked_for_the_folder_of_runs),
        cmocka_unit_test(test_doctor_ask__an_answer_is_whole_with_its_last_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
