/* Bad tables: each case is a file and the one message that it gives. Would catch a row that is
 * taken as another one, a crash, a message that names another line, and memory that a failure
 * leaves behind. */
#include "data/table/table_dataset.h"
#include "device/alloc.h"

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

typedef struct bad_table {
    const char *name, *bytes;
    size_t n; /* 0: up to the first zero byte */
    const char *message;
} bad_table;

/* One whose columns have other names than text and label. */
typedef struct bad_columns {
    const char *text, *label;
    bad_table table;
} bad_columns;

/* Bytes with zeros among them. */
#define RAW(bytes) bytes, sizeof(bytes) - 1

static const bad_table bad[] = {
    /* no rows */
    {"a.tsv", RAW(""), "data.path: a.tsv: an empty file found, text allowed"},
    {"a.csv", RAW("\xEF\xBB\xBF"), "data.path: a.csv: an empty file found, text allowed"},
    {"a.tsv", RAW("\n\n\r\n"), "data.path: a.tsv: no row found, at least one allowed"},
    {"a.tsv", RAW("text\tlabel\n"), "data.path: a.tsv: no row found, at least one allowed"},
    {"a.jsonl", RAW(" \n\t\n"), "data.path: a.jsonl: no row found, at least one allowed"},

    /* columns */
    {"a.tsv", RAW("Text\tlabel\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: 'Text', 'label'"},
    {"a.csv", RAW("\ntext,\"la,bel\"\na,1\n"),
     "data.label: a.csv: line 2: no column 'label' found, allowed: 'text', 'la,bel'"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"lable\": 1}\n"),
     "data.label: a.jsonl: line 2: no column 'label' found, allowed: 'text', 'lable'"},
    {"a.jsonl", RAW("{}"),
     "data.text: a.jsonl: line 1: no column 'text' found, allowed: no name at all"},
    {"a.tsv", RAW("text\x1B\tl\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: 'text?', 'l'"},
    {"a.tsv", RAW("text\tlabel\na\t1\nb\n"),
     "data.path: a.tsv: line 3: 1 columns found, 2 allowed, as in line 1"},
    {"a.tsv", RAW("text\tlabel\na\t1\t\n"),
     "data.path: a.tsv: line 2: 3 columns found, 2 allowed, as in line 1"},

    /* quotes in CSV */
    {"a.csv", RAW("text,label\na \"b\" c,1\n"),
     "data.path: a.csv: line 2, column 1: a quote within a field found, allowed only where the "
     "whole field stands in quotes, doubled"},
    {"a.csv", RAW("text,label\n\"a\nb,1\nc,2\n"),
     "data.path: a.csv: line 2, column 1: a quote found that no other one closes"},
    {"a.csv", RAW("text,label\n\"a\"b,1\n"),
     "data.path: a.csv: line 2, column 1: text behind the closing quote found, allowed: a comma or "
     "the end of the line; quotes of the text are doubled"},
    {"a.csv", RAW("text,label\nx,\"1\"\r"),
     "data.path: a.csv: line 2, column 2: text behind the closing quote found, allowed: a comma or "
     "the end of the line; quotes of the text are doubled"},
    {"a.csv", RAW("text,label\na,\""),
     "data.path: a.csv: line 2, column 2: a quote found that no other one closes"},

    /* JSON */
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"\n"),
     "data.path: a.jsonl: line 2, byte 12: no valid JSON: '}' expected near end of file"},
    {"a.jsonl", RAW("[1]\n"),
     "data.path: a.jsonl: line 1: a list found, allowed: an object a line"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"text\": \"b\", \"label\": 1}\n"),
     "data.path: a.jsonl: line 1, byte 20: no valid JSON: duplicate object key near '\"text\"'"},
    {"a.jsonl", RAW("{\"text\": 5, \"label\": 1}\n"),
     "data.path: a.jsonl: line 1: 'text': an integer found, allowed: a text"},
    {"a.jsonl", RAW("{\"text\": null, \"label\": 1}\n"),
     "data.path: a.jsonl: line 1: 'text': null found, allowed: a text"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1.5}\n"),
     "data.path: a.jsonl: line 1: 'label': a number with a fraction found, allowed: a text or an "
     "integer"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": true}\n"),
     "data.path: a.jsonl: line 1: 'label': true or false found, allowed: a text or an integer"},
    {"a.jsonl", RAW("{\"text\": \"a\\u0000\", \"label\": 1}\n"),
     "data.path: a.jsonl: line 1: 'text': a zero byte found, text allowed"},

    /* labels */
    {"a.tsv", RAW("text\tlabel\na\t1\nb\tpos\n"),
     "data.path: a.tsv: line 3: label 'pos' found, allowed: an integer, as '1' in line 2"},
    {"a.tsv", RAW("text\tlabel\na\t1\nb\t02\n"),
     "data.path: a.tsv: line 3: label '02' found, allowed: an integer, as '1' in line 2"},
    {"a.tsv", RAW("text\tlabel\na\tpos\nb\t-1\n"),
     "data.path: a.tsv: line 3: label '-1' found, allowed: a text that is no integer, as 'pos' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\t\n"),
     "data.path: a.tsv: line 2: an empty label found, allowed: an integer or a text"},

    /* bytes */
    {"a.tsv", RAW("text\tlabel\na\0b\t1\n"),
     "data.path: a.tsv: line 2, byte 2: a zero byte found, text allowed"},
    {"a.tsv", RAW("text\tlabel\nabcdefghijklm\t1\nab\xFF\t1\n"),
     "data.path: a.tsv: line 3, byte 3: 0xFF found, text in UTF-8 allowed; iconv converts other "
     "encodings"},
    {"a.tsv", RAW("text\tlabel\na\t1\xE2\x82"),
     "data.path: a.tsv: line 2, byte 4: 0xE2 found, text in UTF-8 allowed; iconv converts other "
     "encodings"},
    {"a.csv", RAW("\xFF\xFEt\0e\0x\0t\0"),
     "data.path: a.csv: line 1, byte 1: 0xFF found, text in UTF-8 allowed; iconv converts other "
     "encodings"},

    /* packing */
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"),
     "data.path: a.tsv.gz: byte 0: 0x74 0x65 found, gzip's 0x1f 0x8b expected"},
};

static const bad_columns other_columns[] = {
    {"0",
     "2",
     {"a.tsv", RAW("a\t1\n"), "data.text: a.tsv: line 1: no column '0' found, allowed: 1 to 2"}},
    {"1",
     "3",
     {"a.tsv", RAW("a\t1\n"), "data.label: a.tsv: line 1: no column '3' found, allowed: 1 to 2"}},
    {"1",
     "2",
     {"a.jsonl", RAW("{\"text\": \"a\"}\n"),
      "data.text: a.jsonl: line 1: no column '1' found, allowed: 'text'"}},
    {"1",
     "2",
     {"a.csv", RAW("a,1\n\"b\n\",2\n\nc,d,3\n"),
      "data.path: a.csv: line 5: 3 columns found, 2 allowed, as in line 1"}},
    {"1",
     "2",
     {"a.tsv", RAW("text\tlabel\na\t1\n"),
      "data.path: a.tsv: line 2: label '1' found, allowed: a text that is no integer, as 'label' "
      "in "
      "line 1; where line 1 has the names of the columns, give data.label by its name"}},
};

static void check_bad(const bad_table *b, const char *text, const char *label)
{
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    fl_table_options o = plain;
    write_bytes(b->name, b->bytes, b->n, path);
    o.path[FL_TRAIN] = path;
    o.text = text;
    o.label = label;
    assert_string_equal(message_of(&o, message), b->message);
    unlink(path);
}

static void test_table__refuses_bad_files_with_one_message_each(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_bad(&bad[i], "text", "label");
    }
    for (size_t i = 0; i < sizeof other_columns / sizeof *other_columns; i++) {
        const bad_columns *b = &other_columns[i];
        check_bad(&b->table, b->text, b->label);
    }
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
    o.max_tokens = 1;
    assert_string_equal(message_of(&o, message),
                        "data.max_tokens: a limit of 1 tokens, allowed: at least the 2 special "
                        "ones");
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
    int n_failed = 0;
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
        fl_dataset_destroy(&d);
    }
    assert_true(n_failed >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__refuses_bad_files_with_one_message_each),
        cmocka_unit_test(test_table__refuses_a_test_label_that_training_lacks),
        cmocka_unit_test(test_table__refuses_what_is_no_file_of_a_known_name),
        cmocka_unit_test(test_table__refuses_options_that_do_not_fit),
        cmocka_unit_test(test_table__refuses_gzip_that_is_cut_or_changed),
        cmocka_unit_test(test_table__refuses_a_line_that_is_too_long),
        cmocka_unit_test(test_table__refuses_too_many_columns_and_labels),
        cmocka_unit_test(test_table__survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
