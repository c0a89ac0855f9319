/* Lines of a text as samples. Would catch: a line that is lost or read with its neighbour, a target
 * that comes twice or never where a line has parts, CR LF that becomes a token, a line of one token
 * that counts. */
#include "data/text/lines_dataset.h"
#include "data/tokenizer/files/tokenizer_open.h"

#include "device/system/alloc.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GPT2 FL_SOURCE_DIR "/tests/reference/tokenizer/gpt2"

enum { PATH_ROOM = 128, TOKENS_ROOM = 64, PART = 4 };

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

static const char *write_text(const char *text, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/lines.txt", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static fl_status open_lines(const char *text, fl_dataset *out)
{
    char path[PATH_ROOM];
    const fl_text_options options = {
        .path = {[FL_TEST] = write_text(text, path)}, .tokenizer = GPT2, .max_tokens = PART};
    return fl_dataset_lines_open(&options, out);
}

/* The ids of a text in one call of the tokenizer. */
static int64_t encode(const char *text, int32_t ids[TOKENS_ROOM])
{
    fl_tokenizer *tokenizer = NULL;
    fl_token_scratch *scratch = NULL;
    fl_tokens tokens = {.ids = ids, .capacity = TOKENS_ROOM};
    const fl_token_request request = {.text = {text, strlen(text)}};
    assert_int_equal(fl_tokenizer_open(GPT2, &tokenizer), FL_OK);
    assert_int_equal(fl_token_scratch_create(tokenizer, &scratch), FL_OK);
    assert_int_equal(fl_tokenizer_encode(tokenizer, scratch, &request, &tokens), FL_OK);
    fl_token_scratch_destroy(&scratch);
    fl_tokenizer_close(&tokenizer);
    return tokens.n;
}

/* Sample *id and those behind it are this line; *id: the first one behind. */
static void check_line(const fl_dataset *d, int64_t line, const char *text, int64_t *id)
{
    int32_t ids[TOKENS_ROOM], input[PART], targets[PART];
    int64_t n = encode(text, ids), n_parts = n < 2 ? 1 : (n - 1 + PART - 1) / PART, seen = 0;
    for (int64_t part = 0; part < n_parts; part++, ++*id) {
        fl_line_part p;
        fl_shape shape;
        int64_t n_targets = 0;
        assert_true(fl_dataset_line_part(d, FL_TEST, *id, &p));
        assert_int_equal(p.line, line);
        assert_int_equal(p.part, part);
        assert_int_equal(p.n_parts, n_parts);
        assert_int_equal(d->ops->shape(d->self, FL_TEST, *id, &shape, &n_targets), FL_OK);
        assert_int_equal(shape.tokens, n_targets);
        assert_int_equal(n_targets, n < 2 ? 1 : p.n_targets);
        const fl_sample_key key = {.id = *id};
        assert_int_equal(d->ops->read(d->self, FL_TEST, &key, input), FL_OK);
        assert_int_equal(d->ops->targets(d->self, FL_TEST, *id, targets), FL_OK);
        for (int64_t i = 0; i < p.n_targets; i++) {
            assert_int_equal(input[i], ids[part * PART + i]);
            assert_int_equal(targets[i], ids[part * PART + i + 1]);
        }
        seen += p.n_tokens;
    }
    assert_int_equal(seen, n);
}

static void test_lines__are_samples_of_their_own(void **state)
{
    (void)state;
    fl_dataset d = {0};
    fl_shape shape;
    int64_t id = 0, n_targets = 0;
    assert_int_equal(
        open_lines("Speak\r\n\n,\nBefore we proceed, hear me speak.\n  All:\n\nso", &d), FL_OK);
    check_line(&d, 0, "Speak", &id);
    check_line(&d, 1, "", &id);
    check_line(&d, 2, ",", &id);
    check_line(&d, 3, "Before we proceed, hear me speak.", &id);
    check_line(&d, 4, "  All:", &id);
    check_line(&d, 5, "", &id);
    check_line(&d, 6, "so", &id);
    assert_int_equal(d.ops->count(d.self, FL_TEST), id);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 0);
    assert_int_equal(d.ops->shape(d.self, FL_TEST, id, &shape, &n_targets), FL_EINVAL);
    assert_int_equal(d.ops->max_shape(d.self, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.tokens, PART);
    fl_dataset_destroy(&d);
}

/* Every sample must have a token, and lines that predict nothing have none. */
static void test_lines__may_have_no_token_at_all(void **state)
{
    (void)state;
    fl_dataset d = {0};
    fl_shape shape;
    int64_t id = 0, n_targets = 0;
    assert_int_equal(open_lines("\n\n", &d), FL_OK);
    check_line(&d, 0, "", &id);
    check_line(&d, 1, "", &id);
    assert_int_equal(d.ops->max_shape(d.self, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.tokens, 1);
    fl_dataset_destroy(&d);
}

static void test_lines__name_what_is_wrong(void **state)
{
    (void)state;
    fl_dataset d = {0};
    assert_int_equal(open_lines("", &d), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "lines.txt: an empty file found, text allowed"));
    assert_memory_equal(fl_errmsg(), "data.path: ", 11);
    assert_int_equal(open_lines("a\nb\xFF\n", &d), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "lines.txt: line 2, byte 2: 0xFF found"));
    assert_null(d.ops);
}

static void test_lines__survive_failing_allocations(void **state)
{
    (void)state;
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_dataset d = {0};
        fl_alloc_fail_at(n);
        status = open_lines("one line\nand another one\n", &d);
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
        n_failed += status != FL_OK;
        fl_dataset_destroy(&d);
    }
    assert_true(n_failed >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines__are_samples_of_their_own),
        cmocka_unit_test(test_lines__may_have_no_token_at_all),
        cmocka_unit_test(test_lines__name_what_is_wrong),
        cmocka_unit_test(test_lines__survive_failing_allocations),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
