/* Data sets of kind text. Would catch: a token that is no target or one twice, a block that starts
 * at the wrong token, tokens that depend on where a large file was cut, a fingerprint that misses a
 * change, damage that goes unnoticed. */
#include "data/text/read_text.h"
#include "data/text/text_dataset.h"
#include "data/tokenizer/files/tokenizer_open.h"

#include "device/system/alloc.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"
#define GPT2 FL_SOURCE_DIR "/tests/reference/tokenizer/gpt2"

enum { PATH_ROOM = 128, BLOCK = 8 };

static const char verse[] =
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n"
    "Speak, speak.\n";

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

static const char *write_file(const char *name, const void *bytes, size_t n, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const char *write_text(const char *name, const char *text, char path[PATH_ROOM])
{
    return write_file(name, text, strlen(text), path);
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

/* The ids of a text in one call of the tokenizer. */
static int64_t encode(const char *tokenizer_folder, const char *text, size_t n_bytes, int32_t **ids)
{
    fl_tokenizer *tokenizer = NULL;
    fl_token_scratch *scratch = NULL;
    assert_int_equal(fl_tokenizer_open(tokenizer_folder, &tokenizer), FL_OK);
    assert_int_equal(fl_token_scratch_create(tokenizer, &scratch), FL_OK);
    fl_tokens tokens = {.capacity = fl_tokenizer_capacity(tokenizer, n_bytes)};
    tokens.ids = calloc((size_t)tokens.capacity, sizeof *tokens.ids);
    const fl_token_request request = {.text = {text, n_bytes}};
    assert_int_equal(fl_tokenizer_encode(tokenizer, scratch, &request, &tokens), FL_OK);
    fl_token_scratch_destroy(&scratch);
    fl_tokenizer_close(&tokenizer);
    *ids = tokens.ids;
    return tokens.n;
}

static fl_dataset open_text(const char *train, const char *test, int64_t max_tokens,
                            fl_text_info *info)
{
    fl_dataset d = {0};
    const fl_text_options o = {{train, test}, GPT2, max_tokens};
    if (fl_dataset_text_open(&o, &d, info) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

/* Every block of the split against the ids of its text. */
static void check_blocks(const fl_dataset *d, fl_split split, const int32_t *ids, int64_t n)
{
    int64_t at = 0;
    for (int64_t id = 0; id < d->ops->count(d->self, split); id++) {
        int32_t input[BLOCK], target[BLOCK];
        fl_shape shape = {0};
        int64_t n_targets = 0, want = n - 1 - at < BLOCK ? n - 1 - at : BLOCK;
        assert_int_equal(d->ops->shape(d->self, split, id, &shape, &n_targets), FL_OK);
        assert_int_equal(shape.tokens, want);
        assert_int_equal(n_targets, want);
        assert_int_equal(shape.width, 1);
        assert_int_equal(shape.dtype, FL_I32);
        const fl_sample_key key = {.id = id};
        assert_int_equal(d->ops->read(d->self, split, &key, input), FL_OK);
        assert_int_equal(d->ops->targets(d->self, split, id, target), FL_OK);
        assert_memory_equal(input, ids + at, (size_t)want * sizeof *ids);
        assert_memory_equal(target, ids + at + 1, (size_t)want * sizeof *ids);
        at += want;
    }
    assert_int_equal(at, n - 1); /* every token but the first is a target */
}

static void test_text__cuts_a_file_into_blocks(void **state)
{
    (void)state;
    char train[PATH_ROOM], test[PATH_ROOM];
    static const char other[] = "You are all resolved rather to die than to famish?";
    int32_t *ids[2];
    int64_t n[2] = {encode(GPT2, verse, strlen(verse), &ids[0]),
                    encode(GPT2, other, strlen(other), &ids[1])};
    fl_text_info info;
    fl_dataset d = open_text(write_text("a.txt", verse, train), write_packed("b.gz", other, test),
                             BLOCK, &info);
    fl_shape shape = {0};
    int64_t n_targets = 0;
    assert_string_equal(d.ops->kind, "text");
    assert_true(n[0] % BLOCK > 1); /* so that the last block is a shorter one */
    assert_int_equal(info.n_tokens[FL_TRAIN], n[0]);
    assert_int_equal(info.n_tokens[FL_TEST], n[1]);
    assert_int_equal(fl_dataset_text_info(&d)->n_tokens[FL_TRAIN], n[0]);
    check_blocks(&d, FL_TRAIN, ids[0], n[0]);
    check_blocks(&d, FL_TEST, ids[1], n[1]);
    assert_int_equal(d.ops->max_shape(d.self, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.tokens, BLOCK);
    assert_int_equal(n_targets, BLOCK);
    assert_int_equal(shape.n_ids, info.n_ids);
    assert_int_equal(
        d.ops->shape(d.self, FL_TRAIN, d.ops->count(d.self, FL_TRAIN), &shape, &n_targets),
        FL_EINVAL);
    fl_dataset_destroy(&d);
    free(ids[0]);
    free(ids[1]);
}

/* A file without a test file, and one of two tokens, which is one sample of one token. */
static void test_text__needs_one_file_of_two_tokens(void **state)
{
    (void)state;
    char path[PATH_ROOM];
    int32_t *ids;
    int64_t n = encode(GPT2, "hi", 2, &ids);
    fl_dataset d = open_text(write_text("a.txt", "hi", path), NULL, BLOCK, NULL);
    assert_int_equal(n, 2);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 1);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 0);
    check_blocks(&d, FL_TRAIN, ids, n);
    fl_dataset_destroy(&d);
    free(ids);
}

/* Words, white space of all kinds, lines that begin with each of them, and letters of two and three
 * bytes: 3.4 MB, so several chunks, and each cut falls elsewhere. */
static char *make_large(size_t *n_bytes)
{
    static const char *const parts[] = {"speak", " the", "\n",       "\n\n", "\r\n",
                                        "  ",    "\t",   "\xC3\xA9", "'ll",  "\xE2\x80\x83",
                                        "3",     ",",    "\n ",      "\nA"};
    enum { N = sizeof parts / sizeof parts[0], PARTS = 1500000 };
    char *text = malloc((size_t)PARTS * 6);
    uint32_t x = 1;
    assert_non_null(text);
    *n_bytes = 0;
    for (int i = 0; i < PARTS; i++) {
        x = x * 1664525u + 1013904223u;
        const char *part = parts[(x >> 16) % N];
        memcpy(text + *n_bytes, part, strlen(part));
        *n_bytes += strlen(part);
    }
    return text;
}

static void test_text__a_large_file_has_the_tokens_of_its_whole_text(void **state)
{
    (void)state;
    static const char *const folders[] = {GPT2, BERT};
    char path[PATH_ROOM];
    size_t n_bytes = 0;
    char *text = make_large(&n_bytes);
    assert_true(n_bytes > (size_t)3 << 20);
    write_file("large.txt", text, n_bytes, path);
    for (int i = 0; i < 2; i++) {
        fl_tokenizer *tokenizer = NULL;
        int32_t *want, *ids = NULL;
        int64_t n = 0, n_want = encode(folders[i], text, n_bytes, &want);
        assert_int_equal(fl_tokenizer_open(folders[i], &tokenizer), FL_OK);
        assert_int_equal(fl__text_read(path, tokenizer, &ids, &n), FL_OK);
        assert_int_equal(n, n_want);
        assert_memory_equal(ids, want, (size_t)n * sizeof *ids);
        fl_free(ids);
        free(want);
        fl_tokenizer_close(&tokenizer);
    }
    free(text);
}

static uint64_t fingerprint_of(const char *train, const char *test, int64_t max_tokens)
{
    fl_dataset d = open_text(train, test, max_tokens, NULL);
    uint64_t fingerprint = d.ops->fingerprint(d.self);
    fl_dataset_destroy(&d);
    return fingerprint;
}

static void test_text__the_fingerprint_covers_every_sample(void **state)
{
    (void)state;
    char a[PATH_ROOM], b[PATH_ROOM], packed[PATH_ROOM];
    write_text("a.txt", verse, a);
    write_text("b.txt", "Speak, speak!\n", b);
    write_packed("a.gz", verse, packed);
    uint64_t first = fingerprint_of(a, NULL, BLOCK);
    assert_true(fingerprint_of(packed, NULL, BLOCK) == first);
    assert_true(fingerprint_of(b, NULL, BLOCK) != first);
    assert_true(fingerprint_of(a, b, BLOCK) != first);
    assert_true(fingerprint_of(NULL, a, BLOCK) != first);
    assert_true(fingerprint_of(a, NULL, BLOCK + 1) != first);
}

static void refuse(const fl_text_options *o, fl_status status, const char *text)
{
    fl_dataset d = {0};
    assert_int_equal(fl_dataset_text_open(o, &d, NULL), status);
    if (strstr(fl_errmsg(), text) == NULL) {
        fail_msg("message '%s', expected '%s' in it", fl_errmsg(), text);
    }
    assert_null(d.ops);
}

static void refuse_file(const char *name, const void *bytes, size_t n, const char *text)
{
    char path[PATH_ROOM];
    write_file(name, bytes, n, path);
    refuse(&(fl_text_options){{path, NULL}, GPT2, BLOCK}, FL_EFORMAT, text);
    assert_non_null(strstr(fl_errmsg(), name));
}

static void test_text__refuses_damaged_files(void **state)
{
    (void)state;
    char path[PATH_ROOM];
    unsigned char packed[256];
    write_packed("whole.gz", verse, path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(packed, 1, sizeof packed, file);
    fclose(file);
    assert_true(n > 20 && n + 2 < sizeof packed);
    memcpy(packed + n, "xy", 2);
    refuse_file("empty.txt", "", 0, "a text of 0 tokens found, at least 2 tokens allowed");
    refuse_file("one.txt", "i", 1, "a text of 1 token found, at least 2 tokens allowed");
    refuse_file("bytes.txt", "Speak\nspeak\n\xFF\n", 14,
                "in the text from line 1 on: the text: byte 13 (0xFF) is no UTF-8");
    refuse_file("cut.txt", "speak \xC3", 7, "byte 7 (0xC3) is no UTF-8");
    refuse_file("long.txt", "speak \xC0\xAF", 8, "byte 7 (0xC0) is no UTF-8");
    refuse_file("half.txt", "speak \xED\xA0\x80", 9, "byte 7 (0xED) is no UTF-8");
    refuse_file("cut.gz", packed, n / 2, "the end of the file found, more gzip data expected");
    refuse_file("more.gz", packed, n + 2, "trailing bytes found after the gzip data");
    packed[n - 5] ^= 1;
    refuse_file("sum.gz", packed, n, "check");
    refuse_file("plain.gz", verse, strlen(verse), "gzip");
    refuse_file("none.gz", "", 0, "gzip");
}

/* 5 MiB of one character, which is one word to the tokenizer, behind two lines: a file of 5 KB. */
static void test_text__refuses_a_word_without_end(void **state)
{
    (void)state;
    enum { WORD_BYTES = 5 << 20 };
    static const char units[] = {'\n', 'a'};
    char path[PATH_ROOM], *text = malloc(WORD_BYTES + 1);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof units; i++) {
        memset(text, units[i], WORD_BYTES);
        memcpy(text, "one\n1\nx", 7);
        text[WORD_BYTES] = '\0';
        write_packed("word.gz", text, path);
        refuse(&(fl_text_options){{path, NULL}, GPT2, BLOCK}, FL_EFORMAT,
               "bytes found, at most 4194304 allowed: letters, digits, marks or white space");
        assert_non_null(strstr(fl_errmsg(), "word.gz: in the text from line "));
        refuse(&(fl_text_options){{path, NULL}, GPT2, BLOCK}, FL_EFORMAT, ": a word of 52428");
    }
    free(text);
}

static void test_text__refuses_what_it_cannot_open(void **state)
{
    (void)state;
    char path[PATH_ROOM], missing[PATH_ROOM];
    write_text("a.txt", verse, path);
    snprintf(missing, sizeof missing, "%s/missing.txt", folder);
    refuse(&(fl_text_options){{missing, NULL}, GPT2, BLOCK}, FL_EIO, "missing.txt");
    refuse(&(fl_text_options){{path, missing}, GPT2, BLOCK}, FL_EIO, "missing.txt");
    refuse(&(fl_text_options){{folder, NULL}, GPT2, BLOCK}, FL_EIO, folder);
    refuse(&(fl_text_options){{path, NULL}, folder, BLOCK}, FL_EIO, folder);
    refuse(&(fl_text_options){{path, NULL}, GPT2, 0}, FL_EINVAL,
           "blocks of 0 tokens found, allowed: 1 to 1048576");
    refuse(&(fl_text_options){{path, NULL}, GPT2, FL_TEXT_TOKENS_MAX + 1}, FL_EINVAL,
           "blocks of 1048577 tokens found");
    refuse(&(fl_text_options){{NULL, ""}, GPT2, BLOCK}, FL_EINVAL, "no file of text found");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__cuts_a_file_into_blocks),
        cmocka_unit_test(test_text__needs_one_file_of_two_tokens),
        cmocka_unit_test(test_text__a_large_file_has_the_tokens_of_its_whole_text),
        cmocka_unit_test(test_text__the_fingerprint_covers_every_sample),
        cmocka_unit_test(test_text__refuses_damaged_files),
        cmocka_unit_test(test_text__refuses_a_word_without_end),
        cmocka_unit_test(test_text__refuses_what_it_cannot_open),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
