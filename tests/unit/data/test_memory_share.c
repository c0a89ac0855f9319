/* What a small file makes of itself in memory. Would catch: rows, or values of JSON, of which the
 * memory is not counted. */
#include "data/memory_share.h"
#include "data/squad/squad_file.h"
#include "data/table/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ALLOWED_BYTES = 100 * 1000, TEXT_BYTES = 40 * 1000 };

#define RULE "bytes, at most 100000 allowed: half of the memory that this machine has available"

static void test_share__is_half_of_what_the_machine_has(void **state)
{
    (void)state;
    fl_memory_share share = {0};
    assert_int_equal(fl__memory_share_check(&share, "a.tsv", 0, SIZE_MAX), FL_OK); /* not known */
    share = fl__memory_share_take();
    assert_true(share.allowed_bytes > 0);
    share.allowed_bytes = ALLOWED_BYTES;
    assert_int_equal(fl__memory_share_check(&share, "a.tsv", 7, ALLOWED_BYTES), FL_OK);
    assert_int_equal(fl__memory_share_check(&share, "a.tsv", 7, ALLOWED_BYTES + 1), FL_EFORMAT);
    assert_string_equal(fl_errmsg(),
                        "a.tsv: line 7: the content unpacked, and what is read from it, take at "
                        "least 100001 " RULE);
}

/* The beginning, then what is repeated until the text is full. */
static fl_content make_content(const char *path, const char *begin, const char *repeated)
{
    static char text[TEXT_BYTES + 1];
    fl_content content = {0};
    size_t n = strlen(begin), step = strlen(repeated);
    memcpy(text, begin, n);
    for (; n + step <= TEXT_BYTES; n += step) {
        memcpy(text + n, repeated, step);
    }
    assert_int_equal(fl__content_copy(path, text, n, TEXT_BYTES, &content), FL_OK);
    content.share.allowed_bytes = ALLOWED_BYTES;
    return content;
}

static void test_share__counts_the_rows_of_a_table(void **state)
{
    (void)state;
    static const struct {
        const char *path, *begin, *repeated;
    } tables[] = {{"a.tsv", "x\ty\n", "b\tc\n"}, {"a.jsonl", "", "{\"x\":\"b\",\"y\":2}\n"}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        fl_content content = make_content(tables[i].path, tables[i].begin, tables[i].repeated);
        const fl_table_columns columns = {.name = {"x", NULL, "y"}};
        fl_table_rows rows = {0};
        assert_int_equal(fl__table_rows_read(&content, &columns, &rows), FL_EFORMAT);
        assert_null(rows.row);
        assert_non_null(strstr(fl_errmsg(), ": the content unpacked, and what is read from it"));
        assert_non_null(strstr(fl_errmsg(), RULE));
        fl__content_fini(&content);
    }
}

static void test_share__counts_the_values_of_json(void **state)
{
    (void)state;
    fl_content content = make_content("a.json", "{\"data\": [1", ",1");
    fl_squad_file file = {0};
    assert_int_equal(fl__squad_file_read(&content, &file), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "a.json: the content unpacked"));
    assert_non_null(strstr(fl_errmsg(), RULE));
    fl__content_fini(&content);
}

/* Empty lines have no row, and each still counts as a line. */
static void test_share__empty_lines_keep_the_numbers_of_lines(void **state)
{
    (void)state;
    fl_content content = make_content("a.tsv", "x\ty\n\n\r\n\nb\tc", "\n");
    const fl_table_columns columns = {.name = {"x", NULL, "y"}};
    fl_table_rows rows = {0};
    assert_int_equal(fl__table_rows_read(&content, &columns, &rows), FL_OK);
    assert_int_equal(rows.n, 1);
    assert_int_equal(rows.row[0].line, 5);
    fl__table_rows_fini(&rows);
    fl__content_fini(&content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share__is_half_of_what_the_machine_has),
        cmocka_unit_test(test_share__counts_the_rows_of_a_table),
        cmocka_unit_test(test_share__counts_the_values_of_json),
        cmocka_unit_test(test_share__empty_lines_keep_the_numbers_of_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
