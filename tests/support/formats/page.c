#include "support/formats/page.h"

#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PAGE_MAX = 1 << 16, LINES_MAX = 1024 };

static char page[PAGE_MAX];
static const char *page_name;
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

/* "..." stands for any text. */
static bool line_matches(const char *expected, const char *line)
{
    const char *gap = strstr(expected, "...");
    if (gap == NULL) {
        return strcmp(expected, line) == 0;
    }
    size_t before = (size_t)(gap - expected);
    if (strncmp(expected, line, before) != 0) {
        return false;
    }
    for (const char *rest = line + before; !line_matches(gap + 3, rest); rest++) {
        if (*rest == '\0') {
            return false;
        }
    }
    return true;
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
        fail_msg("%s shows something else than\n$ %s\n%s", page_name, command, said);
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

int page_run(const char *name, const char *folder)
{
    char *lines[LINES_MAX], path[512];
    int n_run = 0;
    snprintf(path, sizeof path, FL_SOURCE_DIR "/%s", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    page_name = name;
    int n = split(page, lines);
    for (int i = 0; i < n; i++) {
        if (strcmp(lines[i], "```console") == 0) {
            int end = i + 1;
            while (end < n && strcmp(lines[end], "```") != 0) {
                end++;
            }
            n_run += run_block(folder, lines + i + 1, end - i - 1);
        }
    }
    return n_run;
}
