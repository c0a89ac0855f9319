/* The examples of docs/commands.md, run as they stand there. Would catch a page that shows what the
 * program no longer does. A line "..." of the page stands for any lines, and at the end of a line
 * for any rest of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/shell.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE_MAX = 1 << 16, LINES_MAX = 1024 };

static char page[PAGE_MAX];
static output result;

/* Cut text into lines; a newline at the end makes no further line. */
static int split(char *text, char **lines)
{
    int n = 0;
    for (char *line = text; *line != '\0' && n < LINES_MAX;) {
        char *end = strchr(line, '\n');
        lines[n++] = line;
        if (end == NULL) {
            break;
        }
        *end = '\0';
        line = end + 1;
    }
    return n;
}

static bool line_matches(const char *expected, const char *line)
{
    size_t length = strlen(expected);
    if (length > 3 && strcmp(expected + length - 3, "...") == 0) {
        return strncmp(expected, line, length - 3) == 0;
    }
    return strcmp(expected, line) == 0;
}

static bool matches(char **expected, int n_expected, char **lines, int n)
{
    if (n_expected == 0) {
        return n == 0;
    }
    if (strcmp(expected[0], "...") == 0) {
        for (int skipped = 0; skipped <= n; skipped++) {
            if (matches(expected + 1, n_expected - 1, lines + skipped, n - skipped)) {
                return true;
            }
        }
        return false;
    }
    return n > 0 && line_matches(expected[0], lines[0]) &&
           matches(expected + 1, n_expected - 1, lines + 1, n - 1);
}

static void run_example(const char *folder, const char *command, char **expected, int n_expected)
{
    char *lines[LINES_MAX], whole[4096], said[OUTPUT_MAX];
    snprintf(whole, sizeof whole, "export PATH='%s':\"$PATH\"; (%s) 2>&1", FL_BINARY_DIR, command);
    run_command(folder, whole, &result);
    snprintf(said, sizeof said, "%s", result.out);
    int n = split(result.out, lines);
    if (!matches(expected, n_expected, lines, n)) {
        fail_msg("docs/commands.md shows something else than\n$ %s\n%s", command, said);
    }
}

/* Run every "$ ..." of the block that ends at the line "```"; returns how many there were. */
static int run_block(const char *folder, char **lines, int n)
{
    int n_run = 0;
    for (int i = 0; i < n;) {
        assert_int_equal(strncmp(lines[i], "$ ", 2), 0);
        int end = i + 1;
        while (end < n && strncmp(lines[end], "$ ", 2) != 0) {
            end++;
        }
        run_example(folder, lines[i] + 2, lines + i + 1, end - i - 1);
        n_run++;
        i = end;
    }
    return n_run;
}

static void test_commands__each_example_of_the_page_does_what_it_shows(void **state)
{
    (void)state;
    char *lines[LINES_MAX], command[4096];
    int n_run = 0;
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0) {
        skip();
    }
    FILE *file = fopen(FL_SOURCE_DIR "/docs/commands.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    int n = split(page, lines);
    char *folder = fresh_folder(FL_BINARY_DIR);
    snprintf(command, sizeof command, "ln -s '%s/configs' '%s/configs'", FL_SOURCE_DIR, folder);
    run_command(NULL, command, &result);
    for (int i = 0; i < n; i++) {
        if (strcmp(lines[i], "```console") == 0) {
            int end = i + 1;
            while (end < n && strcmp(lines[end], "```") != 0) {
                end++;
            }
            n_run += run_block(folder, lines + i + 1, end - i - 1);
        }
    }
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    run_command(NULL, command, &result);
    free(folder);
    assert_true(n_run >= 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands__each_example_of_the_page_does_what_it_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
