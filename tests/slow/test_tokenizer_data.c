/* Every row of real data sets, against hashes of the ids that Hugging Face's tokenizers give
 * (tests/reference/make_tokenizer_data_reference.py, which also says which files these are). The
 * data is not part of the project: FL_TOKENIZER_DATA names its folder, and what is missing is
 * skipped. */
#include "data/tokenizer/files/tokenizer_open.h"
#include "support/folder.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference/tokenizer/datasets.json"

/* What a data set's texts become. */
typedef struct summary {
    const fl_tokenizer *tokenizer;
    fl_token_scratch *scratch;
    fl_tokens tokens;
    int64_t n_texts, n_tokens;
    uLong crc32;
} summary;

static const char *data_folder(void)
{
    const char *folder = getenv("FL_TOKENIZER_DATA");
    return folder == NULL || *folder == '\0' ? NULL : folder;
}

/* The unpacked content of a file, and a zero byte; NULL if there is no such file. free it. */
static char *unpack(const char *name, size_t *n)
{
    char path[4096];
    size_t room = 1 << 24;
    snprintf(path, sizeof path, "%s/%s", data_folder(), name);
    gzFile file = gzopen(path, "rb");
    if (file == NULL) {
        print_message("skipped: %s is not there\n", path);
        return NULL;
    }
    char *content = malloc(room);
    assert_non_null(content);
    *n = 0;
    for (int got; (got = gzread(file, content + *n, (unsigned)(room - *n - 1))) > 0;) {
        *n += (size_t)got;
        if (room - *n < 2) {
            room *= 2;
            char *larger = realloc(content, room);
            assert_non_null(larger);
            content = larger;
        }
    }
    assert_int_equal(gzclose(file), Z_OK);
    content[*n] = '\0';
    return content;
}

static void add_text(summary *s, fl_text text, fl_text pair)
{
    fl_token_request request = {.text = text, .pair = pair, .special = true};
    int64_t capacity = fl_tokenizer_capacity(s->tokenizer, text.n_bytes + pair.n_bytes);
    if (capacity > s->tokens.capacity) {
        s->tokens.ids = realloc(s->tokens.ids, (size_t)capacity * sizeof *s->tokens.ids);
        assert_non_null(s->tokens.ids);
        s->tokens.capacity = capacity;
    }
    assert_int_equal(fl_tokenizer_encode(s->tokenizer, s->scratch, &request, &s->tokens), FL_OK);
    int32_t n = (int32_t)s->tokens.n;
    s->crc32 = crc32(s->crc32, (const Bytef *)&n, sizeof n);
    s->crc32 = crc32(s->crc32, (const Bytef *)s->tokens.ids, (uInt)n * sizeof *s->tokens.ids);
    s->n_texts++;
    s->n_tokens += n;
}

static const fl_text none = {0};

static void add_json_texts(summary *s, const char *content, size_t n)
{
    json_t *root = json_loadb(content, n, 0, NULL);
    size_t i, k, q;
    json_t *article, *paragraph, *question;
    json_array_foreach(json_object_get(root, "data"), i, article)
    {
        json_array_foreach(json_object_get(article, "paragraphs"), k, paragraph)
        {
            const json_t *value = json_object_get(paragraph, "context");
            fl_text context = {json_string_value(value), json_string_length(value)};
            add_text(s, context, none);
            json_array_foreach(json_object_get(paragraph, "qas"), q, question)
            {
                value = json_object_get(question, "question");
                fl_text text = {json_string_value(value), json_string_length(value)};
                add_text(s, text, context);
            }
        }
    }
    json_decref(root);
}

/* Field `number` of a line, from 0. */
static fl_text field_of(const char *line, const char *end, int number)
{
    const char *stop;
    for (;; line = stop + 1, number--) {
        stop = memchr(line, '\t', (size_t)(end - line));
        stop = stop == NULL ? end : stop;
        if (number == 0) {
            return (fl_text){line, (size_t)(stop - line)};
        }
        assert_true(stop < end);
    }
}

static void add_lines(summary *s, const char *name, const char *content, size_t n)
{
    bool whole = strncmp(name, "lm/", 3) == 0;
    const char *line = content, *stop;
    if (whole) {
        add_text(s, (fl_text){content, n}, none);
    }
    for (; line < content + n; line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(content + n - line));
        stop = stop == NULL ? content + n : stop;
        if (whole) {
            add_text(s, (fl_text){line, (size_t)(stop - line)}, none);
        } else if (line == content) {
            continue; /* the header */
        } else if (strncmp(name, "sst2/", 5) == 0) {
            add_text(s, field_of(line, stop, 0), none);
        } else {
            add_text(s, field_of(line, stop, 3), none);
            add_text(s, field_of(line, stop, 4), none);
            add_text(s, field_of(line, stop, 3), field_of(line, stop, 4));
        }
    }
}

/* Unpack a vocabulary's file into the folder; false if it is not there. */
static bool place_file(const char *folder, const char *name, const char *source)
{
    char path[4096];
    size_t n;
    char *content = unpack(source, &n);
    if (content == NULL) {
        return false;
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    free(content);
    return true;
}

static void check_data_set(summary *s, const json_t *expected)
{
    const char *name = json_string_value(json_object_get(expected, "file"));
    size_t n;
    char *content = unpack(name, &n);
    if (content == NULL) {
        return;
    }
    s->n_texts = s->n_tokens = 0;
    s->crc32 = crc32(0, NULL, 0);
    if (strstr(name, ".json") != NULL) {
        add_json_texts(s, content, n);
    } else {
        add_lines(s, name, content, n);
    }
    free(content);
    print_message("%s: %lld texts, %lld tokens\n", name, (long long)s->n_texts,
                  (long long)s->n_tokens);
    assert_int_equal(s->n_texts, json_integer_value(json_object_get(expected, "texts")));
    assert_int_equal(s->n_tokens, json_integer_value(json_object_get(expected, "tokens")));
    assert_int_equal(s->crc32, json_integer_value(json_object_get(expected, "crc32")));
}

static void check_model(const char *model, const char *folder)
{
    json_t *list = json_load_file(REFERENCE, 0, NULL), *expected;
    fl_tokenizer *t = NULL;
    summary s = {0};
    size_t i;
    int n_checked = 0;
    assert_int_equal(fl_tokenizer_open(folder, &t), FL_OK);
    assert_int_equal(fl_token_scratch_create(t, &s.scratch), FL_OK);
    s.tokenizer = t;
    json_array_foreach(list, i, expected)
    {
        if (strcmp(json_string_value(json_object_get(expected, "model")), model) == 0) {
            check_data_set(&s, expected);
            n_checked++;
        }
    }
    assert_int_equal(n_checked, 8);
    free(s.tokens.ids);
    fl_token_scratch_destroy(&s.scratch);
    fl_tokenizer_close(&t);
    json_decref(list);
}

static void test_tokenizer_data__gives_berts_ids(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    if (data_folder() == NULL) {
        print_message("skipped: FL_TOKENIZER_DATA names no folder\n");
        skip();
    }
    make_folder(folder);
    bool found = place_file(folder, "vocab.txt", "vocab/bert-base-uncased-vocab.txt.gz");
    if (found) {
        check_model("bert", folder);
    }
    assert_int_equal(remove_folder(folder), 0);
    if (!found) {
        skip();
    }
}

static void test_tokenizer_data__gives_gpt2s_ids(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    if (data_folder() == NULL) {
        print_message("skipped: FL_TOKENIZER_DATA names no folder\n");
        skip();
    }
    make_folder(folder);
    bool found = place_file(folder, "vocab.json", "vocab/gpt2-vocab.json.gz") &&
                 place_file(folder, "merges.txt", "vocab/gpt2-merges.txt.gz");
    if (found) {
        check_model("gpt2", folder);
    }
    assert_int_equal(remove_folder(folder), 0);
    if (!found) {
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_data__gives_berts_ids),
        cmocka_unit_test(test_tokenizer_data__gives_gpt2s_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
