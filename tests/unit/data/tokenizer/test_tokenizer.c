/* Tokenizers against what Hugging Face's give (tests/reference/make_tokenizer_reference.py): ids,
 * types and spans of texts that decide each rule, cut texts and pairs, and what is refused. */
#include "data/tokenizer/files/tokenizer_open.h"
#include "device/system/alloc.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference/tokenizer/"

enum { PLACES = 1 << 14, LINES_MAX = 1000 };

static int32_t ids[PLACES], types[PLACES];
static fl_token_span spans[PLACES];

/* The lines of a file of JSON values. */
static int load_lines(const char *name, json_t *lines[LINES_MAX])
{
    char path[512];
    snprintf(path, sizeof path, REFERENCE "%s", name);
    FILE *file = fopen(path, "r");
    int n = 0;
    assert_non_null(file);
    for (;;) {
        json_error_t error;
        json_t *line =
            json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
        if (line == NULL) {
            break;
        }
        assert_true(n < LINES_MAX);
        lines[n++] = line;
    }
    fclose(file);
    assert_true(n > 300);
    return n;
}

static void free_lines(json_t *lines[LINES_MAX], int n)
{
    for (int i = 0; i < n; i++) {
        json_decref(lines[i]);
    }
}

static fl_text text_of(const json_t *value)
{
    return (fl_text){.bytes = json_string_value(value), .n_bytes = json_string_length(value)};
}

static fl_token_request request_of(const json_t *line)
{
    const char *cut = json_string_value(json_object_get(line, "cut"));
    return (fl_token_request){
        .text = text_of(json_object_get(line, "text")),
        .pair = text_of(json_object_get(line, "pair")),
        .special = true,
        .max_tokens = json_integer_value(json_object_get(line, "max_tokens")),
        .cut = cut == NULL                       ? FL_CUT_LONGEST_FIRST
               : strcmp(cut, "only_first") == 0  ? FL_CUT_ONLY_FIRST
               : strcmp(cut, "only_second") == 0 ? FL_CUT_ONLY_SECOND
                                                 : FL_CUT_LONGEST_FIRST,
    };
}

static int64_t number_at(const json_t *list, int64_t i)
{
    return json_integer_value(json_array_get(list, (size_t)i));
}

/* One request as expected; with spans or, from the cache of words, without. */
static void check_line(const fl_tokenizer *t, fl_token_scratch *s, int number, const json_t *line,
                       const json_t *expected, bool with_spans)
{
    fl_token_request request = request_of(line);
    fl_tokens got = {.ids = ids, .types = types, .capacity = PLACES, .n = -1};
    got.spans = with_spans ? spans : NULL;
    fl_status status = fl_tokenizer_encode(t, s, &request, &got);
    if (json_is_null(expected)) {
        assert_int_equal(status, FL_EINVAL);
        assert_int_equal(got.n, -1);
        return;
    }
    assert_int_equal(status, FL_OK);
    const json_t *want = json_object_get(expected, "ids");
    const json_t *want_types = json_object_get(expected, "types");
    const json_t *want_spans = json_object_get(expected, "spans");
    bool same = got.n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < got.n; i++) {
        const json_t *span = json_array_get(want_spans, (size_t)i);
        same = ids[i] == number_at(want, i) && types[i] == number_at(want_types, i) &&
               (!with_spans ||
                (spans[i].begin == number_at(span, 0) && spans[i].end == number_at(span, 1)));
        if (!same) {
            print_error("line %d, token %lld: id %d (%s), type %d, span %d to %d\n", number,
                        (long long)i, ids[i], fl_tokenizer_piece(t, ids[i]), types[i],
                        spans[i].begin, spans[i].end);
        }
    }
    if (!same) {
        char *text = json_dumps(line, JSON_ENSURE_ASCII);
        print_error("line %d: %s: %lld tokens, expected %zu\n", number, text, (long long)got.n,
                    json_array_size(want));
        free(text);
    }
    assert_true(same);
}

static void check_tokenizer(const char *name)
{
    static json_t *lines[LINES_MAX], *expected[LINES_MAX];
    char path[512], file[64];
    fl_tokenizer *t = NULL;
    fl_token_scratch *s = NULL;
    int n = load_lines("texts.jsonl", lines);
    snprintf(file, sizeof file, "%s.expected.jsonl", name);
    assert_int_equal(load_lines(file, expected), n);
    snprintf(path, sizeof path, REFERENCE "%s", name);
    assert_int_equal(fl_tokenizer_open(path, &t), FL_OK);
    assert_int_equal(fl_token_scratch_create(t, &s), FL_OK);
    for (int pass = 0; pass < 4; pass++) { /* words come from the cache from the second one on */
        for (int i = 0; i < n; i++) {
            check_line(t, s, i + 1, lines[i], expected[i], pass % 2 == 0);
        }
    }
    fl_token_scratch_destroy(&s);
    fl_tokenizer_close(&t);
    assert_null(t);
    free_lines(lines, n);
    free_lines(expected, n);
}

static void test_tokenizer__reads_vocab_txt_as_bert_does(void **state)
{
    (void)state;
    check_tokenizer("bert");
}

static void test_tokenizer__keeps_case_and_finds_added_tokens(void **state)
{
    (void)state;
    check_tokenizer("cased");
}

static void test_tokenizer__reads_vocab_json_as_gpt2_does(void **state)
{
    (void)state;
    check_tokenizer("gpt2");
}

static void test_tokenizer__prefixes_and_trims_as_roberta_does(void **state)
{
    (void)state;
    check_tokenizer("roberta");
}

/* ---- what the reference does not say ---- */

static void open_one(const char *name, fl_tokenizer **t, fl_token_scratch **s)
{
    char path[512];
    *t = NULL;
    *s = NULL;
    snprintf(path, sizeof path, REFERENCE "%s", name);
    assert_int_equal(fl_tokenizer_open(path, t), FL_OK);
    assert_int_equal(fl_token_scratch_create(*t, s), FL_OK);
}

static void test_tokenizer__names_the_byte_that_is_no_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *message;
    } cases[] = {
        {"\xFF", 1, "the text: byte 1 (0xFF) is no UTF-8"},
        {"twelve bytes\xC3", 13, "the text: byte 13 (0xC3) is no UTF-8"},
        {"sur\xED\xA0\x80rogate", 13, "the text: byte 4 (0xED) is no UTF-8"},
        {"overlong\xC0\xAF.......", 16, "the text: byte 9 (0xC0) is no UTF-8"},
        {"\xF4\x90\x80\x80", 4, "the text: byte 1 (0xF4) is no UTF-8"},
    };
    fl_tokenizer *t;
    fl_token_scratch *s;
    open_one("bert", &t, &s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_token_request request = {.text = {cases[i].text, cases[i].n}};
        fl_tokens got = {.ids = ids, .capacity = PLACES};
        assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_EFORMAT);
        assert_string_equal(fl_errmsg(), cases[i].message);
    }
    fl_token_scratch_destroy(&s);
    fl_tokenizer_close(&t);
}

static void test_tokenizer__refuses_what_does_not_fit(void **state)
{
    (void)state;
    fl_tokenizer *t, *other;
    fl_token_scratch *s, *other_s;
    open_one("bert", &t, &s);
    open_one("gpt2", &other, &other_s);
    fl_token_request request = {.text = {"the ice freezes", 15}, .special = true};
    fl_tokens got = {.ids = ids, .capacity = 3};
    assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "do not fit into the 3 places"));
    got.capacity = fl_tokenizer_capacity(t, 15);
    request.max_tokens = 1;
    assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "a limit of 1 tokens, allowed: at least the 2 special ones");
    request.max_tokens = 0;
    assert_int_equal(fl_tokenizer_encode(t, other_s, &request, &got), FL_EINVAL);
    assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_OK);
    request.special = false;
    int64_t n = got.n;
    assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_OK);
    assert_int_equal(got.n, n - 2);
    assert_int_equal(fl_tokenizer_find(t, "[CLS]"), 2);
    assert_int_equal(fl_tokenizer_find(t, "[CLS"), -1);
    assert_string_equal(fl_tokenizer_piece(t, 2), "[CLS]");
    assert_string_equal(fl_tokenizer_piece(t, fl_tokenizer_n_ids(t)), "");
    assert_string_equal(fl_tokenizer_piece(t, -1), "");
    fl_token_scratch_destroy(&s);
    fl_token_scratch_destroy(&other_s);
    fl_tokenizer_close(&t);
    fl_tokenizer_close(&other);
}

/* A word without end must not take quadratic time; the check is that this test ends. */
static void test_tokenizer__takes_long_words_in_its_stride(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static const char *const names[] = {"bert", "gpt2"};
    static const char *const units[] = {"a", " ", "!", "\xCC\x81\xCC\xA7", "\xE4\xB8\xAD", "ab"};
    char *text = malloc(N + 8);
    int64_t capacity = 4 * (int64_t)N + 100;
    fl_tokens got = {.capacity = capacity};
    got.ids = malloc((size_t)capacity * sizeof *got.ids);
    got.spans = malloc((size_t)capacity * sizeof *got.spans);
    assert_non_null(text);
    for (int m = 0; m < 2; m++) {
        fl_tokenizer *t;
        fl_token_scratch *s;
        open_one(names[m], &t, &s);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = 0, size = strlen(units[u]);
            for (; n < N; n += size) {
                memcpy(text + n, units[u], size);
            }
            fl_token_request request = {.text = {text, n}};
            assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_OK);
        }
        fl_token_scratch_destroy(&s);
        fl_tokenizer_close(&t);
    }
    free(text);
    free(got.ids);
    free(got.spans);
}

static void test_tokenizer__allocates_nothing_for_text_like_before(void **state)
{
    (void)state;
    static const char text[] = "The fa\xC3\xA7"
                               "ade freezes; [MASK] unfrozen \xE4\xB8\xAD\xE6\x96\x87 99 times.";
    static const char *const names[] = {"bert", "cased", "gpt2", "roberta"};
    for (int m = 0; m < 4; m++) {
        fl_tokenizer *t;
        fl_token_scratch *s;
        open_one(names[m], &t, &s);
        fl_token_request request = {.text = {text, sizeof text - 1}, .special = true};
        fl_tokens got = {.ids = ids, .spans = spans, .capacity = PLACES};
        assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_OK);
        got.spans = NULL;
        assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_OK);
        uint64_t before = fl_alloc_count();
        for (int i = 0; i < 10; i++) {
            got.spans = i % 2 == 0 ? spans : NULL;
            assert_int_equal(fl_tokenizer_encode(t, s, &request, &got), FL_OK);
        }
        assert_int_equal(fl_alloc_count(), before);
        fl_token_scratch_destroy(&s);
        fl_tokenizer_close(&t);
    }
}

enum { THREADS = 4 };

typedef struct encoder {
    const fl_tokenizer *tokenizer;
    json_t *const *lines;
    int n;
    uint64_t sum; /* of all ids, in order; 0: something failed */
} encoder;

static void *encode_all(void *argument)
{
    encoder *e = argument;
    fl_token_scratch *s = NULL;
    int32_t mine[4096];
    uint64_t sum = 1;
    if (fl_token_scratch_create(e->tokenizer, &s) != FL_OK) {
        return NULL;
    }
    for (int i = 0; i < 20 * e->n; i++) {
        fl_token_request request = request_of(e->lines[i % e->n]);
        fl_tokens got = {.ids = mine, .capacity = 4096};
        if (fl_tokenizer_encode(e->tokenizer, s, &request, &got) == FL_OK) {
            for (int64_t k = 0; k < got.n; k++) {
                sum = sum * 31 + (uint64_t)mine[k];
            }
        }
    }
    e->sum = sum;
    fl_token_scratch_destroy(&s);
    return NULL;
}

/* One tokenizer, a scratch for each thread. ThreadSanitizer sees a write to what they share. */
static void test_tokenizer__encodes_in_several_threads_at_once(void **state)
{
    (void)state;
    static json_t *lines[LINES_MAX];
    static const char *const names[] = {"cased", "roberta"};
    int n = load_lines("texts.jsonl", lines);
    for (int m = 0; m < 2; m++) {
        char path[512];
        fl_tokenizer *t = NULL;
        pthread_t threads[THREADS];
        encoder encoders[THREADS + 1];
        snprintf(path, sizeof path, REFERENCE "%s", names[m]);
        assert_int_equal(fl_tokenizer_open(path, &t), FL_OK);
        for (int i = 0; i <= THREADS; i++) {
            encoders[i] = (encoder){.tokenizer = t, .lines = lines, .n = n};
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, encode_all, &encoders[i]), 0);
        }
        encode_all(&encoders[THREADS]);
        assert_true(encoders[THREADS].sum != 0);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_true(encoders[i].sum == encoders[THREADS].sum);
        }
        fl_tokenizer_close(&t);
    }
    free_lines(lines, n);
}

/* Each allocation of opening and encoding made to fail in turn: nothing leaks, nothing is half
 * there.
 */
static void test_tokenizer__survives_each_failed_allocation(void **state)
{
    (void)state;
    static const char *const names[] = {"bert", "cased", "gpt2", "roberta"};
    for (int m = 0; m < 4; m++) {
        char path[512];
        bool done = false;
        snprintf(path, sizeof path, REFERENCE "%s", names[m]);
        for (uint64_t n = 1; !done; n++) {
            fl_tokenizer *t = NULL;
            fl_token_scratch *s = NULL;
            fl_token_request request = {.text = {"caf\xC3\xA9 frost line o\xCC\x81\xCC\xA7", 20},
                                        .special = true};
            fl_tokens got = {.ids = ids, .spans = spans, .capacity = PLACES};
            fl_alloc_fail_at(n);
            fl_status status = fl_tokenizer_open(path, &t);
            if (status == FL_OK) {
                status = fl_token_scratch_create(t, &s);
            }
            if (status == FL_OK) {
                status = fl_tokenizer_encode(t, s, &request, &got);
            }
            done = status == FL_OK;
            assert_true(done || status == FL_ENOMEM);
            fl_alloc_fail_at(0);
            fl_token_scratch_destroy(&s);
            fl_tokenizer_close(&t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer__reads_vocab_txt_as_bert_does),
        cmocka_unit_test(test_tokenizer__keeps_case_and_finds_added_tokens),
        cmocka_unit_test(test_tokenizer__reads_vocab_json_as_gpt2_does),
        cmocka_unit_test(test_tokenizer__prefixes_and_trims_as_roberta_does),
        cmocka_unit_test(test_tokenizer__names_the_byte_that_is_no_utf8),
        cmocka_unit_test(test_tokenizer__refuses_what_does_not_fit),
        cmocka_unit_test(test_tokenizer__takes_long_words_in_its_stride),
        cmocka_unit_test(test_tokenizer__allocates_nothing_for_text_like_before),
        cmocka_unit_test(test_tokenizer__encodes_in_several_threads_at_once),
        cmocka_unit_test(test_tokenizer__survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
