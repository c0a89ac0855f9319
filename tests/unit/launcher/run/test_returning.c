/* What is said of a run that goes back, from its record. Would catch: a status that waits for a
 * controller which is not there, and a return that is over and still told. */
#include "launcher/run/runs/returning.h"

#include "support/folder.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RETURNS                                                                                    \
    "{\"time\": 9.5, \"wall\": \"2026-01-31T09:30:00.000Z\", \"event\": \"run.returning\", "       \
    "\"why\": \"worker 2 was killed\", \"to\": \"checkpoint\", \"step\": 2200, \"steps\": 2388}\n"
#define RESUMED "{\"time\": 0.1, \"event\": \"run.resumed\", \"step\": 5, \"why\": \"a loss\"}\n"
#define BY_USER "{\"time\": 0.1, \"event\": \"run.resumed\", \"step\": 5}\n"

static const char *say(const char *events, char text[FL_RETURNING_TEXT])
{
    char dir[FOLDER_SIZE], path[PATH_MAX];
    make_folder(dir);
    snprintf(path, sizeof path, "%s/events.jsonl", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(events, file);
    fclose(file);
    fl_run_returning(dir, text);
    assert_int_equal(remove_folder(dir), 0);
    return text;
}

static void test_returning__reads_the_record(void **state)
{
    (void)state;
    char text[FL_RETURNING_TEXT];
    long seconds = 0;
    assert_int_equal(
        sscanf(say("{\"event\": \"run.started\"}\n" RETURNS, text), "for %ld s, ", &seconds), 1);
    assert_true(seconds > 0);
    assert_non_null(strstr(text, "return 1, from step 2388 to step 2200 (checkpoint): worker 2 was "
                                 "killed"));
    assert_non_null(strstr(say(BY_USER RETURNS RESUMED RETURNS, text), "return 2,"));
    assert_string_equal(say(RETURNS RESUMED, text), "");
    assert_string_equal(say("", text), "");
    assert_string_equal(say("{\"event\": \"run.returning\"\n", text), "");
    assert_string_equal(say("{\"event\": \"run.returning\", \"wall\": 7, \"to\": {}}\n", text), "");
    assert_string_equal(fl_run_returning("/nowhere", text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_returning__reads_the_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
