/* Data sets of kind table. Would catch: cells of another column or row, quotes of a TSV file that
 * vanish, a label under another class, classes that depend on the order of rows, tokens that depend
 * on the number of threads, padding, a fingerprint that misses a change. */
#include "data/table/labels.h"
#include "data/table/rows.h"
#include "data/table/table_dataset.h"
#include "data/tokenizer/files/tokenizer_open.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"
#define GPT2 FL_SOURCE_DIR "/tests/reference/tokenizer/gpt2"

enum { PATH_ROOM = 128, TOKENS_MAX = 256, TYPES = 2 };

static char folder[FOLDER_SIZE];

static int make(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static const char *write_text(const char *name, const char *text, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) < 0, 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const char *write_packed(const char *name, const char *text, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzputs(file, text), (int)strlen(text));
    assert_int_equal(gzclose(file), Z_OK);
    return path;
}

static const fl_table_options plain = {
    .text = "text", .label = "label", .tokenizer = BERT, .max_tokens = 64, .types = true};

static fl_dataset open_table(const fl_table_options *options, const char *train, const char *test,
                             fl_table_info *info)
{
    fl_dataset d = {0};
    fl_table_options o = *options;
    o.path[FL_TRAIN] = train;
    o.path[FL_TEST] = test;
    fl_status status = fl_dataset_table_open(&o, &d, info);
    if (status != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

/* Sample `id` has the tokens of these texts, as the tokenizer gives them, and this class. */
static void check_sample(const fl_dataset *d, fl_split split, int64_t id, const char *text,
                         const char *pair, int64_t max_tokens, int32_t label)
{
    int32_t ids[TOKENS_MAX], types[TOKENS_MAX], read[TYPES * TOKENS_MAX], target = -2;
    fl_tokenizer *tokenizer = NULL;
    fl_token_scratch *scratch = NULL;
    fl_tokens tokens = {.ids = ids, .types = types, .capacity = TOKENS_MAX};
    fl_token_request request = {
        .text = {text, strlen(text)}, .special = true, .max_tokens = max_tokens};
    fl_shape shape;
    int64_t n_targets = 0;
    if (pair != NULL) {
        request.pair = (fl_text){pair, strlen(pair)};
    }
    assert_int_equal(fl_tokenizer_open(BERT, &tokenizer), FL_OK);
    assert_int_equal(fl_token_scratch_create(tokenizer, &scratch), FL_OK);
    assert_int_equal(fl_tokenizer_encode(tokenizer, scratch, &request, &tokens), FL_OK);
    assert_int_equal(d->ops->shape(d->self, split, id, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.tokens, tokens.n);
    assert_int_equal(shape.width, TYPES);
    assert_int_equal(shape.dtype, FL_I32);
    assert_int_equal(shape.n_ids, fl_tokenizer_n_ids(tokenizer));
    assert_int_equal(n_targets, 1);
    assert_int_equal(d->ops->read(d->self, split, &(fl_sample_key){.id = id}, read), FL_OK);
    for (int64_t i = 0; i < tokens.n; i++) {
        assert_int_equal(read[TYPES * i], ids[i]);
        assert_int_equal(read[TYPES * i + 1], types[i]);
    }
    assert_int_equal(d->ops->targets(d->self, split, id, &target), FL_OK);
    assert_int_equal(target, label);
    fl_token_scratch_destroy(&scratch);
    fl_tokenizer_close(&tokenizer);
}

static void test_table__reads_a_tsv_field_as_it_is(void **state)
{
    (void)state;
    char train[PATH_ROOM], test[PATH_ROOM];
    fl_table_info info;
    write_text("a.tsv", "id\ttext\tlabel\n0\ta \"good film\t1\n1\t\"so, so\"\t0\n", train);
    write_text("b.tsv", "text\tlabel\nit is\t0\n", test);
    fl_dataset d = open_table(&plain, train, test, &info);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 2);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 1);
    check_sample(&d, FL_TRAIN, 0, "a \"good film", NULL, 64, 1);
    check_sample(&d, FL_TRAIN, 1, "\"so, so\"", NULL, 64, 0);
    check_sample(&d, FL_TEST, 0, "it is", NULL, 64, 0);
    assert_int_equal(info.n_classes, 2);
    assert_string_equal(info.labels[1], "1");
    assert_ptr_equal(fl_dataset_table_info(&d)->labels, info.labels);
    fl_dataset_destroy(&d);
}

static void test_table__reads_csv_with_quotes_line_feeds_and_crlf(void **state)
{
    (void)state;
    char train[PATH_ROOM];
    write_text("a.csv",
               "\xEF\xBB\xBF\"text\",label\r\n\"one, \"\"two\"\"\",b\r\n\r\n\"a\nline\",a\r\n"
               "plain,\"b\"",
               train);
    fl_table_info info;
    fl_dataset d = open_table(&plain, train, NULL, &info);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 3);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 0);
    check_sample(&d, FL_TRAIN, 0, "one, \"two\"", NULL, 64, 1);
    check_sample(&d, FL_TRAIN, 1, "a\nline", NULL, 64, 0);
    check_sample(&d, FL_TRAIN, 2, "plain", NULL, 64, 1);
    assert_string_equal(info.labels[0], "a");
    assert_string_equal(info.labels[1], "b");
    fl_dataset_destroy(&d);
}

static void test_table__reads_jsonl_with_escapes(void **state)
{
    (void)state;
    char train[PATH_ROOM];
    write_text("a.jsonl",
               "{\"label\": 7, \"text\": \"caf\\u00e9 \\\"x\\\"\", \"more\": [1]}\n\n"
               "{\"text\": \"\\ud83d\\ude00 hi\", \"label\": 3}\r\n",
               train);
    fl_table_info info;
    fl_dataset d = open_table(&plain, train, NULL, &info);
    check_sample(&d, FL_TRAIN, 0, "caf\xC3\xA9 \"x\"", NULL, 64, 1);
    check_sample(&d, FL_TRAIN, 1, "\xF0\x9F\x98\x80 hi", NULL, 64, 0);
    assert_string_equal(info.labels[0], "3");
    assert_string_equal(info.labels[1], "7");
    fl_dataset_destroy(&d);
}

static void test_table__takes_columns_by_number_without_a_line_of_names(void **state)
{
    (void)state;
    char train[PATH_ROOM], named[PATH_ROOM];
    fl_table_options o = plain;
    o.text = "3";
    o.label = "1";
    write_text("a.tsv", "1\tx\tgood\n0\ty\tbad\n", train);
    fl_dataset d = open_table(&o, train, NULL, NULL);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 2);
    check_sample(&d, FL_TRAIN, 0, "good", NULL, 64, 1);
    fl_dataset_destroy(&d);
    /* One name is enough for the file to have them. */
    o.label = "which";
    write_text("b.tsv", "which\tx\ttext\n1\tx\tgood\n", named);
    d = open_table(&o, named, NULL, NULL);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 1);
    check_sample(&d, FL_TRAIN, 0, "good", NULL, 64, 0);
    fl_dataset_destroy(&d);
}

static void test_table__cuts_the_longer_text_of_a_pair_first(void **state)
{
    (void)state;
    char train[PATH_ROOM];
    fl_table_options o = plain;
    o.pair = "b";
    o.max_tokens = 9;
    write_text("a.tsv",
               "text\tb\tlabel\none two three four five six seven\tone two\t1\n"
               "a\tb\t0\n",
               train);
    fl_dataset d = open_table(&o, train, NULL, NULL);
    fl_shape longest;
    int64_t n_targets;
    check_sample(&d, FL_TRAIN, 0, "one two three four five six seven", "one two", 9, 1);
    check_sample(&d, FL_TRAIN, 1, "a", "b", 9, 0);
    assert_int_equal(d.ops->max_shape(d.self, &longest, &n_targets), FL_OK);
    assert_int_equal(longest.tokens, 9);
    fl_dataset_destroy(&d);
}

static void test_table__reads_gzip_as_the_plain_file(void **state)
{
    (void)state;
    static const char text[] = "text\tlabel\na film\tneg\nit\tpos\n";
    char train[PATH_ROOM], packed[PATH_ROOM];
    fl_dataset a = open_table(&plain, write_text("a.tsv", text, train), NULL, NULL);
    fl_dataset b = open_table(&plain, write_packed("b.tsv.gz", text, packed), NULL, NULL);
    assert_true(a.ops->fingerprint(a.self) == b.ops->fingerprint(b.self));
    fl_dataset_destroy(&a);
    fl_dataset_destroy(&b);
}

static void test_table__has_one_column_where_no_types_are_wanted(void **state)
{
    (void)state;
    char train[PATH_ROOM];
    int32_t read[TOKENS_MAX];
    fl_shape shape;
    int64_t n_targets;
    fl_table_options o = plain;
    o.tokenizer = GPT2;
    o.types = false;
    fl_dataset d = open_table(&o, write_text("a.tsv", "text\tlabel\nab\t0\n", train), NULL, NULL);
    assert_int_equal(d.ops->shape(d.self, FL_TRAIN, 0, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.width, 1);
    read[shape.tokens] = -7;
    assert_int_equal(d.ops->read(d.self, FL_TRAIN, &(fl_sample_key){.id = 0}, read), FL_OK);
    assert_int_equal(read[shape.tokens], -7);
    fl_dataset_destroy(&d);
}

/* Integers are ordered as numbers (10 behind 9), and rows do not matter. */
static void test_table__numbers_classes_by_sorted_labels(void **state)
{
    (void)state;
    char train[PATH_ROOM];
    fl_table_info info;
    write_text("a.tsv", "text\tlabel\na\t10\nb\t-2\nc\t9\nd\t10\n", train);
    fl_dataset d = open_table(&plain, train, NULL, &info);
    assert_int_equal(info.n_classes, 3);
    assert_string_equal(info.labels[0], "-2");
    assert_string_equal(info.labels[1], "9");
    assert_string_equal(info.labels[2], "10");
    check_sample(&d, FL_TRAIN, 3, "d", NULL, 64, 2);
    fl_dataset_destroy(&d);
}

static void test_table__takes_given_labels_and_files_without_them(void **state)
{
    (void)state;
    static const char *const labels[] = {"pos", "neg"};
    char test[PATH_ROOM], bare[PATH_ROOM];
    fl_table_options o = plain;
    o.labels = labels;
    o.n_labels = 2;
    o.labels_optional = true;
    fl_dataset d = open_table(&o, NULL, write_text("a.tsv", "text\tlabel\na\tneg\n", test), NULL);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 0);
    check_sample(&d, FL_TEST, 0, "a", NULL, 64, 1);
    fl_dataset_destroy(&d);
    d = open_table(&o, NULL, write_text("b.jsonl", "{\"text\": \"a\"}\n", bare), NULL);
    check_sample(&d, FL_TEST, 0, "a", NULL, 64, -1);
    fl_dataset_destroy(&d);
    /* as GLUE's test files have them, and a row without one */
    d = open_table(&o, NULL, write_text("c.tsv", "text\tlabel\na\t-1\nb\tneg\nc\t\n", bare), NULL);
    check_sample(&d, FL_TEST, 0, "a", NULL, 64, -1);
    check_sample(&d, FL_TEST, 1, "b", NULL, 64, 1);
    check_sample(&d, FL_TEST, 2, "c", NULL, 64, -1);
    fl_dataset_destroy(&d);
}

static void test_table__fingerprint_follows_texts_labels_and_settings(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "text\tlabel\na b\t0\nc\t1\n", "text\tlabel\na c\t0\nc\t1\n", "text\tlabel\na b\t1\nc\t0\n",
        "text\tlabel\na b\tx\nc\ty\n", "text\tlabel\na\t0\nb c\t1\n"};
    enum { N = sizeof texts / sizeof *texts };
    uint64_t seen[N + 1];
    char path[PATH_ROOM];
    for (int i = 0; i <= N; i++) {
        fl_table_options o = plain;
        o.max_tokens = i == N ? 3 : 64;
        fl_dataset d = open_table(&o, write_text("a.tsv", texts[i % N], path), NULL, NULL);
        seen[i] = d.ops->fingerprint(d.self);
        fl_dataset_destroy(&d);
        for (int k = 0; k < i; k++) {
            assert_true(seen[i] != seen[k]);
        }
    }
}

/* ---- threads ---- */

enum { MANY = 3000 };

static void fill_rows(fl_content *content, fl_table_rows *rows, size_t bad)
{
    static const fl_table_columns columns = {.name = {"text"}};
    size_t room = MANY * 40, used = 0;
    char *text = malloc(room);
    assert_non_null(text);
    for (size_t i = 0; i < MANY; i++) {
        const char *rest = i == bad ? "" : "a b c d e f g";
        used += (size_t)snprintf(text + used, room - used, "{\"text\": \"%.*s\"}\n",
                                 i == bad ? 0 : (int)(1 + 2 * (i % 7)), rest);
    }
    assert_int_equal(fl__content_copy("many.jsonl", text, used, FL_TABLE_LINE_BYTES_MAX, content),
                     FL_OK);
    assert_int_equal(fl__table_rows_read(content, &columns, rows), FL_OK);
    free(text);
}

static void test_table__tokens_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    fl_content content;
    fl_table_rows rows;
    fl_tokenizer *tokenizer = NULL;
    fl_token_samples one, other;
    assert_int_equal(fl_tokenizer_open(BERT, &tokenizer), FL_OK);
    fill_rows(&content, &rows, MANY);
    const fl_text_list texts = fl__table_texts(&rows);
    fl_token_encoding e = {
        .tokenizer = tokenizer, .special = true, .max_tokens = 16, .types = true, .n_threads = 1};
    assert_int_equal(fl__tokens_encode(&texts, &e, &one), FL_OK);
    assert_int_equal(one.n, MANY);
    for (e.n_threads = 2; e.n_threads <= 5; e.n_threads++) {
        assert_int_equal(fl__tokens_encode(&texts, &e, &other), FL_OK);
        assert_memory_equal(one.begin, other.begin, (MANY + 1) * sizeof *one.begin);
        assert_memory_equal(one.ids, other.ids, (size_t)one.begin[MANY] * sizeof *one.ids);
        assert_memory_equal(one.types, other.types, (size_t)one.begin[MANY]);
        fl__token_samples_fini(&other);
    }
    fl__token_samples_fini(&one);
    fl__table_rows_fini(&rows);
    fl__content_fini(&content);
    fl_tokenizer_close(&tokenizer);
}

/* GPT-2 puts nothing around a text, so an empty one has no token. */
static void test_table__names_the_first_line_without_a_token(void **state)
{
    (void)state;
    fl_content content;
    fl_table_rows rows;
    fl_tokenizer *tokenizer = NULL;
    fl_token_samples samples;
    assert_int_equal(fl_tokenizer_open(GPT2, &tokenizer), FL_OK);
    fill_rows(&content, &rows, 1400);
    rows.row[2900].cell[FL_TABLE_TEXT].n_bytes = 0;
    const fl_text_list texts = fl__table_texts(&rows);
    for (int n = 1; n <= 4; n++) {
        const fl_token_encoding e = {
            .tokenizer = tokenizer, .special = true, .max_tokens = 16, .n_threads = n};
        assert_int_equal(fl__tokens_encode(&texts, &e, &samples), FL_EFORMAT);
        assert_string_equal(fl_errmsg(), "many.jsonl: line 1401: a text without a token found, at "
                                         "least one token allowed");
    }
    fl__table_rows_fini(&rows);
    fl__content_fini(&content);
    fl_tokenizer_close(&tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__reads_a_tsv_field_as_it_is),
        cmocka_unit_test(test_table__reads_csv_with_quotes_line_feeds_and_crlf),
        cmocka_unit_test(test_table__reads_jsonl_with_escapes),
        cmocka_unit_test(test_table__takes_columns_by_number_without_a_line_of_names),
        cmocka_unit_test(test_table__cuts_the_longer_text_of_a_pair_first),
        cmocka_unit_test(test_table__reads_gzip_as_the_plain_file),
        cmocka_unit_test(test_table__has_one_column_where_no_types_are_wanted),
        cmocka_unit_test(test_table__numbers_classes_by_sorted_labels),
        cmocka_unit_test(test_table__takes_given_labels_and_files_without_them),
        cmocka_unit_test(test_table__fingerprint_follows_texts_labels_and_settings),
        cmocka_unit_test(test_table__tokens_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(test_table__names_the_first_line_without_a_token),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
