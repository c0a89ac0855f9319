/* Tables that cannot be used, beyond the files of test_table_cases.c: what is no file, options,
 * damaged packing, sizes, failing allocations. Each gives one message. */
#include "data/table/table_dataset.h"
#include "device/system/alloc.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"

enum { PATH_ROOM = 128, MESSAGE_ROOM = 1024 };

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

static void write_bytes(const char *name, const char *bytes, size_t n, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static const fl_table_options plain = {
    .text = "text", .label = "label", .tokenizer = BERT, .max_tokens = 64, .types = true};

/* The message, with the folder's path taken out of it; "" where the table opens. */
static const char *message_of(const fl_table_options *o, char text[MESSAGE_ROOM])
{
    fl_dataset d = {0};
    fl_status status = fl_dataset_table_open(o, &d, NULL);
    text[0] = '\0';
    if (status == FL_OK) {
        fl_dataset_destroy(&d);
        return text;
    }
    assert_null(d.ops);
    snprintf(text, MESSAGE_ROOM, "%s", fl_errmsg());
    size_t n = strlen(folder) + 1;
    for (char *at = strstr(text, folder); at != NULL; at = strstr(text, folder)) {
        memmove(at, at + n, strlen(at + n) + 1);
    }
    return text;
}

static const char sound[] = "text\tlabel\na film\t1\nit\t0\n";

static void test_table__refuses_a_test_label_that_training_lacks(void **state)
{
    (void)state;
    static const char test[] = "text\tlabel\na\t1\nb\t2\n";
    char a[PATH_ROOM], b[PATH_ROOM], message[MESSAGE_ROOM];
    fl_table_options o = plain;
    write_bytes("a.tsv", sound, sizeof sound - 1, a);
    write_bytes("b.tsv", test, sizeof test - 1, b);
    o.path[FL_TRAIN] = a;
    o.path[FL_TEST] = b;
    assert_string_equal(message_of(&o, message),
                        "data.path: b.tsv: line 3: label '2' found, allowed: a label of a.tsv: "
                        "'0', '1'");
    static const char *const given[] = {"1", "0", "1"};
    o.labels = given;
    o.n_labels = 3;
    assert_string_equal(message_of(&o, message),
                        "data.path: the model: classes 0 and 2 have one label, '1'");
    o.n_labels = 1;
    assert_string_equal(message_of(&o, message),
                        "data.path: a.tsv: line 3: label '0' found, allowed: a label of the "
                        "model: '1'");
}

static void test_table__refuses_what_is_no_file_of_a_known_name(void **state)
{
    (void)state;
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    fl_table_options o = plain;
    o.path[FL_TRAIN] = path;
    snprintf(path, sizeof path, "%s/no.tsv", folder);
    assert_string_equal(message_of(&o, message), "data.path: no.tsv: No such file or directory");
    snprintf(path, sizeof path, "%s", folder);
    char *end = strrchr(path, '/') + 1;
    assert_int_equal(fl_dataset_table_open(&o, &(fl_dataset){0}, NULL), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), ": a folder found, a file expected"));
    assert_non_null(strstr(fl_errmsg(), end));
    snprintf(path, sizeof path, "%s/pipe.tsv", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_string_equal(message_of(&o, message), "data.path: pipe.tsv: something that is not a "
                                                 "file found, a file expected");
    write_bytes("a.txt", sound, sizeof sound - 1, path);
    assert_string_equal(message_of(&o, message),
                        "data.path: a.txt: the name does not tell the format, allowed: a name that "
                        "ends in .tsv, .csv, .jsonl or .ndjson, or in one of them and .gz");
    write_bytes(".tsv.gz", sound, sizeof sound - 1, path);
    assert_non_null(strstr(message_of(&o, message), "gzip's 0x1f 0x8b expected"));
}

static void test_table__refuses_options_that_do_not_fit(void **state)
{
    (void)state;
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    fl_table_options o = plain;
    write_bytes("a.tsv", sound, sizeof sound - 1, path);
    o.path[FL_TRAIN] = path;
    o.max_tokens = 2; /* the special tokens alone would fill each sample */
    assert_string_equal(message_of(&o, message),
                        "data.max_tokens: found 2, allowed: at least 3, for 2 special tokens and "
                        "one of the text");
    o.max_tokens = 4;
    o.pair = "label";
    assert_string_equal(message_of(&o, message),
                        "data.max_tokens: found 4, allowed: at least 5, for 3 special tokens and "
                        "one of each text");
    o.pair = NULL;
    o.max_tokens = 64;
    o.tokenizer = folder;
    assert_memory_equal(message_of(&o, message), "data.tokenizer: ", 16);
}

/* ---- packed files ---- */

static void write_packed(const char *name, const char *bytes, size_t n, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)n), (int)n);
    assert_int_equal(gzclose(file), Z_OK);
}

/* Wherever it is cut, and whatever byte is changed, a packed table gives a message or, where the
 * byte has no meaning (the time in its header), the same table. */
static void test_table__refuses_gzip_that_is_cut_or_changed(void **state)
{
    (void)state;
    char path[PATH_ROOM], message[MESSAGE_ROOM], bytes[256];
    fl_table_options o = plain;
    o.path[FL_TRAIN] = path;
    write_packed("a.tsv.gz", sound, sizeof sound - 1, path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(n, 30, sizeof bytes - 1);
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes("a.tsv.gz", bytes, cut, path);
        assert_memory_equal(message_of(&o, message), "data.path: a.tsv.gz: ", 21);
    }
    enum { HEADER_BYTES = 10 };
    for (size_t at = HEADER_BYTES; at < n; at++) {
        bytes[at] ^= 0x55;
        write_bytes("a.tsv.gz", bytes, n, path);
        assert_memory_equal(message_of(&o, message), "data.path: a.tsv.gz: ", 21);
        bytes[at] ^= 0x55;
    }
    write_bytes("a.tsv.gz", bytes, n, path);
    assert_string_equal(message_of(&o, message), "");
}

/* A line that never ends must not fill the memory. */
static void test_table__refuses_a_line_that_is_too_long(void **state)
{
    (void)state;
    enum { CHUNK = 1 << 20, CHUNKS = 66 };
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    char *chunk = malloc(CHUNK);
    assert_non_null(chunk);
    memset(chunk, 'a', CHUNK);
    snprintf(path, sizeof path, "%s/long.tsv.gz", folder);
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, "text\tlabel\n", 11), 11);
    for (int i = 0; i < CHUNKS; i++) {
        assert_int_equal(gzwrite(file, chunk, CHUNK), CHUNK);
    }
    assert_int_equal(gzclose(file), Z_OK);
    free(chunk);
    fl_table_options o = plain;
    o.path[FL_TRAIN] = path;
    assert_string_equal(message_of(&o, message),
                        "data.path: long.tsv.gz: line 2: at least 68157429 bytes found, at most "
                        "67108864 allowed in a line");
}

/* A parser that calls itself at each bracket must stop before its stack ends. */
static void test_table__refuses_json_that_is_too_deep(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 18 };
    static const char begin[] = "{\"label\": 1, \"text\": ";
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    char *text = malloc(DEPTH);
    assert_non_null(text);
    memset(text, '[', DEPTH);
    memcpy(text, begin, sizeof begin - 1);
    write_bytes("deep.jsonl", text, DEPTH, path);
    free(text);
    fl_table_options o = plain;
    o.path[FL_TRAIN] = path;
    assert_string_equal(message_of(&o, message),
                        "data.path: deep.jsonl: line 1, byte 2069: no valid JSON: maximum parsing "
                        "depth reached near '['");
}

/* ---- many ---- */

static void test_table__refuses_too_many_columns_and_labels(void **state)
{
    (void)state;
    enum { LABELS = FL_TABLE_CLASSES_MAX + 1, ROOM = 1 << 20, COLUMNS = 5000 };
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    char *text = malloc(ROOM);
    assert_non_null(text);
    fl_table_options o = plain;
    o.path[FL_TRAIN] = path;
    size_t n = (size_t)snprintf(text, ROOM, "text\tlabel\n");
    for (int i = 0; i < LABELS; i++) {
        n += (size_t)snprintf(text + n, ROOM - n, "a\tlabel %d\n", i);
    }
    write_bytes("a.tsv", text, n, path);
    assert_string_equal(message_of(&o, message),
                        "data.path: a.tsv: line 10002: more than 10000 different labels found; "
                        "data.label names the column of the classes");
    memset(text, '\t', COLUMNS);
    write_bytes("a.tsv", text, COLUMNS, path);
    assert_string_equal(message_of(&o, message), "data.path: a.tsv: line 1: more columns found "
                                                 "than the 4096 that are allowed");
    /* The list of columns in a message ends before it fills the message. */
    n = 0;
    for (int i = 0; i < COLUMNS / 4; i++) {
        n += (size_t)snprintf(text + n, ROOM - n, "column %d\t", i);
    }
    write_bytes("a.tsv", text, n, path);
    message_of(&o, message);
    assert_in_range(strlen(message), 200, 600);
    assert_string_equal(message + strlen(message) - 5, ", ...");
    free(text);
}

static void test_table__survives_failing_allocations(void **state)
{
    (void)state;
    static const char json[] =
        "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}";
    char train[PATH_ROOM], test[PATH_ROOM];
    fl_table_options o = plain;
    int n_failed = 0, n_named = 0;
    write_bytes("a.tsv", "text\tlabel\na\tx\nb\ty\n", 19, train);
    write_bytes("b.jsonl", json, sizeof json - 1, test);
    o.path[FL_TRAIN] = train;
    o.path[FL_TEST] = test;
    fl_status status = FL_ENOMEM;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_dataset d = {0};
        fl_alloc_fail_at(n);
        status = fl_dataset_table_open(&o, &d, NULL);
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
        n_failed += status != FL_OK;
        /* the tokenizer comes first, then the files, whose names stand in the message once */
        const char *name = strstr(fl_errmsg(), folder);
        assert_true(status == FL_OK || name != NULL || n_named == 0);
        assert_true(name == NULL || strstr(name + 1, folder) == NULL);
        n_named += status != FL_OK && name != NULL;
        fl_dataset_destroy(&d);
    }
    assert_true(n_failed >= 20);
    assert_true(n_named >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__refuses_a_test_label_that_training_lacks),
        cmocka_unit_test(test_table__refuses_what_is_no_file_of_a_known_name),
        cmocka_unit_test(test_table__refuses_options_that_do_not_fit),
        cmocka_unit_test(test_table__refuses_gzip_that_is_cut_or_changed),
        cmocka_unit_test(test_table__refuses_a_line_that_is_too_long),
        cmocka_unit_test(test_table__refuses_json_that_is_too_deep),
        cmocka_unit_test(test_table__refuses_too_many_columns_and_labels),
        cmocka_unit_test(test_table__survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
