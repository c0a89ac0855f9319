/* Lines of the log that a peer can cause any number of times. Would catch: a log that grows with
 * each of them. */
#include "device/errors/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_BYTES = 4096 };

/* What the log says for so many messages, of which the first `each` have a line of their own. */
static int count_lines(int messages, int64_t each, char text[TEXT_BYTES])
{
    FILE *file = tmpfile();
    int64_t n = 0;
    int lines = 0, own = dup(STDERR_FILENO);
    assert_true(file != NULL && own >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    for (int i = 0; i < messages; i++) {
        fl_log_counted(&n, each, "dropped a message: %s", "junk");
    }
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    assert_int_equal(n, messages);
    rewind(file);
    text[fread(text, 1, TEXT_BYTES - 1, file)] = '\0';
    fclose(file);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    return lines;
}

static void test_log__counts_what_may_come_by_the_thousand(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(count_lines(1, 1, text), 1);
    assert_non_null(strstr(text, "dropped a message: junk; more of them are counted\n"));
    assert_int_equal(count_lines(100000, 1, text), 6);
    assert_non_null(strstr(text, "dropped a message: junk; that is number 100000\n"));
    assert_int_equal(count_lines(3, 5, text), 3);
    assert_null(strstr(text, "counted"));
    assert_int_equal(count_lines(1000, 5, text), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__counts_what_may_come_by_the_thousand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
