/* Lines of the log that a peer can cause any number of times, and text from outside in them. Would
 * catch: a log that grows with each of them; a path that begins a line of its own, or that a
 * terminal obeys. */
#include "device/errors/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_BYTES = 4096 };

typedef struct kept_log {
    FILE *file;
    int own; /* the standard error of this program */
} kept_log;

static kept_log keep_log(void)
{
    kept_log kept = {.file = tmpfile(), .own = dup(STDERR_FILENO)};
    assert_true(kept.file != NULL && kept.own >= 0);
    assert_true(dup2(fileno(kept.file), STDERR_FILENO) >= 0);
    return kept;
}

static void read_log(kept_log *kept, char text[TEXT_BYTES])
{
    assert_true(dup2(kept->own, STDERR_FILENO) >= 0);
    close(kept->own);
    rewind(kept->file);
    text[fread(text, 1, TEXT_BYTES - 1, kept->file)] = '\0';
    fclose(kept->file);
}

/* What the log says for so many messages, of which the first `each` have a line of their own. */
static int count_lines(int messages, int64_t each, char text[TEXT_BYTES])
{
    int64_t n = 0;
    int lines = 0;
    kept_log kept = keep_log();
    for (int i = 0; i < messages; i++) {
        fl_log_counted(&n, each, "dropped a message: %s", "junk");
    }
    read_log(&kept, text);
    assert_int_equal(n, messages);
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

static void test_log__escapes_what_controls_a_terminal(void **state)
{
    (void)state;
    char text[TEXT_BYTES], junk[2 * TEXT_BYTES];
    int64_t n = 0;
    kept_log kept = keep_log();
    fl_log(FL_LOG_INFO, "one:\n%s", "/k\033[31m of l\xc3\xa4ufe");
    fl_log_counted(&n, 5, "dropped %s", "a\nb\033");
    read_log(&kept, text);
    assert_non_null(strstr(text, " info frostline: one:\n/k\\033[31m of l\xc3\xa4ufe\n"));
    assert_non_null(strstr(text, " warning frostline: dropped a\\012b\\033\n"));

    memset(junk, '\r', sizeof junk - 1);
    junk[sizeof junk - 1] = '\0';
    kept = keep_log();
    fl_log(FL_LOG_INFO, "%s", junk);
    read_log(&kept, text);
    assert_non_null(strstr(text, "\\015\\015"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__counts_what_may_come_by_the_thousand),
        cmocka_unit_test(test_log__escapes_what_controls_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
