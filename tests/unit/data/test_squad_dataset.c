/* Questions about contexts as samples. Would catch: a window or an answer's place other than
 * Hugging Face's, a question that is left out without need, windows of other settings that are
 * taken from the cache, a damaged file there that is believed, and memory that a failure leaves
 * behind. tests/reference/make_squad_reference.py makes the folder of references. */
#include "data/squad/squad_dataset.h"
#include "data/squad/squad_kept.h"
#include "device/system/alloc.h"

#include "support/folder.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference/squad/"
#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"
#define GPT2 FL_SOURCE_DIR "/tests/reference/tokenizer/gpt2"

enum { PATH_ROOM = 160, MESSAGE_ROOM = 1024, TOKENS = 80, STRIDE = 20, LINE = 4096 };

static char folder[FOLDER_SIZE], cache[PATH_ROOM];

static int make(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static const fl_squad_options reference = {.path = {NULL, REFERENCE "questions.json"},
                                           .tokenizer = BERT,
                                           .max_tokens = TOKENS,
                                           .stride = STRIDE,
                                           .types = true};

static fl_dataset open_data(const fl_squad_options *o, fl_squad_info *info)
{
    fl_dataset d = {0};
    if (fl_dataset_squad_open(o, &d, info) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

/* ---- windows ---- */

static void test_squad__windows_are_those_of_hugging_face(void **state)
{
    (void)state;
    char line[LINE];
    int64_t n = 0, n_answered = 0;
    fl_squad_info info;
    fl_dataset d = open_data(&reference, &info);
    const fl_squad_split *split = fl_dataset_squad_split(&d, FL_TEST);
    FILE *file = fopen(REFERENCE "windows.txt", "r");
    assert_non_null(file);
    for (; fgets(line, sizeof line, file) != NULL; n++) {
        int32_t ids[2 * TOKENS], target[2];
        fl_shape shape;
        int64_t n_targets;
        char *at = line;
        const fl_sample_key key = {.id = n};
        assert_true(n < d.ops->count(d.self, FL_TEST));
        assert_int_equal(d.ops->shape(d.self, FL_TEST, n, &shape, &n_targets), FL_OK);
        assert_int_equal(d.ops->read(d.self, FL_TEST, &key, ids), FL_OK);
        assert_int_equal(d.ops->targets(d.self, FL_TEST, n, target), FL_OK);
        assert_true(n_targets == 2 && shape.width == 2 && shape.tokens <= TOKENS);
        assert_int_equal(split->windows[n].question, strtol(at, &at, 10));
        assert_int_equal(target[0], strtol(at, &at, 10));
        assert_int_equal(target[1], strtol(at, &at, 10));
        for (int64_t t = 0; t < shape.tokens; t++) {
            assert_int_equal(ids[2 * t], strtol(at, &at, 10));
            assert_int_equal(*at++, ':');
            assert_int_equal(ids[2 * t + 1], strtol(at, &at, 10));
        }
        assert_int_equal(*at, '\n');
        n_answered += target[0] > 0;
    }
    fclose(file);
    assert_int_equal(n, d.ops->count(d.self, FL_TEST));
    assert_int_equal(n, info.n_windows);
    assert_true(n_answered > 11 && n_answered < n && n > 20);
    assert_int_equal(info.n_questions, 11);
    assert_false(info.impossible);
    fl_dataset_destroy(&d);
}

static void test_squad__without_types_samples_are_ids_alone(void **state)
{
    (void)state;
    fl_squad_options o = reference;
    o.types = false;
    fl_dataset both = open_data(&reference, NULL), alone = open_data(&o, NULL);
    int32_t ids[2 * TOKENS], bare[TOKENS];
    const fl_sample_key key = {.id = 3};
    fl_shape shape;
    int64_t n_targets;
    assert_int_equal(alone.ops->shape(alone.self, FL_TEST, 3, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.width, 1);
    assert_int_equal(both.ops->read(both.self, FL_TEST, &key, ids), FL_OK);
    assert_int_equal(alone.ops->read(alone.self, FL_TEST, &key, bare), FL_OK);
    for (int64_t i = 0; i < shape.tokens; i++) {
        assert_int_equal(bare[i], ids[2 * i]);
    }
    assert_int_equal(alone.ops->read(alone.self, FL_TEST, &(fl_sample_key){.id = 999}, bare),
                     FL_EINVAL);
    fl_dataset_destroy(&both);
    fl_dataset_destroy(&alone);
}

/* ---- questions without an answer in its place ---- */

static const char *write_text(const char *name, const char *text, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    return path;
}

#define FILE_OF(paragraphs) "{\"version\": \"1.1\", \"data\": [{\"paragraphs\": [" paragraphs "]}]}"
#define QUESTION(id, answers)                                                                      \
    "{\"question\": \"what is it\", \"id\": \"" id "\", \"answers\": [" answers "]}"
#define ANSWER(text, start) "{\"text\": \"" text "\", \"answer_start\": " start "}"

static const char three_questions[] =
    FILE_OF("{\"context\": \"the cat sat on the mat\", \"qas\": [" QUESTION(
        "a",
        ANSWER("cat", "4")) ", " QUESTION("b",
                                          ANSWER("dog",
                                                 "4")) ", " QUESTION("c",
                                                                     ANSWER("dog", "0") ", " ANSWER(
                                                                         "mat", "19")) "]}");

/* In training a wrong answer would teach the model wrong: the question is left out. In the test
 * split it has no target, and its answers still count. */
static void test_squad__an_answer_that_does_not_stand_in_its_place(void **state)
{
    (void)state;
    char path[PATH_ROOM];
    fl_squad_info info;
    fl_squad_options o = reference;
    write_text("three.json", three_questions, path);
    o.path[FL_TRAIN] = o.path[FL_TEST] = path;
    fl_dataset d = open_data(&o, &info);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 2);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 3);
    assert_int_equal(info.n_left_out, 1);
    assert_int_equal(info.n_questions, 5);
    int32_t target[2];
    assert_int_equal(d.ops->targets(d.self, FL_TEST, 1, target), FL_OK);
    assert_true(target[0] == -1 && target[1] == -1);
    assert_int_equal(d.ops->targets(d.self, FL_TRAIN, 1, target), FL_OK);
    assert_true(target[0] > 0 && target[1] >= target[0]); /* the second answer, in its place */
    fl_dataset_destroy(&d);
}

static void test_squad__questions_without_an_answer_point_at_the_first_token(void **state)
{
    (void)state;
    fl_squad_info info;
    fl_squad_options o = reference;
    o.path[FL_TEST] = REFERENCE "impossible.json";
    fl_dataset d = open_data(&o, &info);
    const fl_squad_split *split = fl_dataset_squad_split(&d, FL_TEST);
    assert_true(info.impossible);
    for (int64_t i = 0; i < split->n_windows; i++) {
        const fl_squad_window *w = &split->windows[i];
        assert_true(w->question % 3 != 0 || (w->target[0] == 0 && w->target[1] == 0));
    }
    fl_dataset_destroy(&d);
}

/* ---- the cache ---- */

static fl_squad_options cached(void)
{
    fl_squad_options o = reference;
    o.path[FL_TRAIN] = REFERENCE "impossible.json";
    o.cache = cache;
    return o;
}

static bool is_cached(const fl_squad_options *o, uint64_t *hash)
{
    fl_squad_info info;
    fl_dataset d = open_data(o, &info);
    *hash = d.ops->fingerprint(d.self);
    fl_dataset_destroy(&d);
    return info.from_cache;
}

static void find_file(char path[PATH_MAX])
{
    int n = 0;
    DIR *dir = opendir(cache);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            snprintf(path, PATH_MAX, "%s/%s", cache, e->d_name);
            n++;
        }
    }
    closedir(dir);
    assert_int_equal(n, 1);
}

static void test_squad__the_second_time_gives_the_same_windows(void **state)
{
    (void)state;
    uint64_t first, second, bare, other;
    fl_squad_options o = cached();
    assert_false(is_cached(&o, &first));
    assert_true(is_cached(&o, &second));
    assert_true(first == second);
    o.cache = NULL;
    assert_false(is_cached(&o, &bare));
    assert_true(first == bare);
    o = cached();
    o.stride = STRIDE - 1;
    assert_false(is_cached(&o, &other));
    assert_true(other != first);
    o = cached();
    o.max_tokens = TOKENS - 1;
    assert_false(is_cached(&o, &other));
    assert_true(other != first);
    assert_int_equal(remove_folder(cache), 0);
}

/* What a file holds is written from windows, so windows that do not fit together give a file with
 * a right hash. */
typedef void spoiler(fl_squad_split *split);

static void spoil_question(fl_squad_split *s)
{
    s->windows[1].question = (int32_t)s->ids.n;
}

static void spoil_order(fl_squad_split *s)
{
    s->windows[0].question = 1;
    s->windows[1].question = 0;
}

static void spoil_first(fl_squad_split *s)
{
    s->windows[0].first = -1;
}

static void spoil_length(fl_squad_split *s)
{
    s->windows[0].n = 1 << 20;
}

static void spoil_target(fl_squad_split *s)
{
    s->windows[0].target[1] = TOKENS;
}

static void spoil_context(fl_squad_split *s)
{
    s->questions[0].context = (int32_t)s->contexts.n;
}

static void spoil_answers(fl_squad_split *s)
{
    s->questions[0].first_answer = s->answers.n + 1;
}

static void spoil_text(fl_squad_split *s)
{
    s->contexts.begin[1] = 1 << 20;
}

static void spoil_id(fl_squad_split *s)
{
    s->question_tokens.ids[0] = -1;
}

static void test_squad__refuses_kept_windows_that_do_not_fit_together(void **state)
{
    (void)state;
    static spoiler *const spoils[] = {spoil_question, spoil_order,  spoil_first,
                                      spoil_length,   spoil_target, spoil_context,
                                      spoil_answers,  spoil_text,   spoil_id};
    enum { N_IDS = 1000 };
    char path[PATH_MAX];
    uint64_t unused;
    fl_squad_options o = cached();
    assert_false(is_cached(&o, &unused));
    find_file(path);
    fl_kept_key key;
    assert_int_equal(sscanf(strrchr(path, '/') + sizeof "/tokens-" - 1, "%16" SCNx64 "%16" SCNx64,
                            &key.hash[0], &key.hash[1]),
                     2);
    fl_dataset d = open_data(&o, NULL);
    const fl_token_frame *frame = fl_dataset_squad_frame(&d);
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        fl_squad_split split[2];
        bool found;
        assert_int_equal(fl__squad_kept_read(path, &key, N_IDS, frame, split, &found), FL_OK);
        spoils[i](&split[FL_TEST]);
        assert_int_equal(fl__squad_kept_write(path, &key, split), FL_OK);
        fl__squad_split_fini(&split[0]);
        fl__squad_split_fini(&split[1]);
        assert_int_equal(fl__squad_kept_read(path, &key, N_IDS, frame, split, &found), FL_EFORMAT);
        assert_non_null(strstr(fl_errmsg(), "windows that do not fit together"));
        assert_false(is_cached(&o, &unused)); /* made again */
        assert_true(is_cached(&o, &unused));
    }
    fl_dataset_destroy(&d);
    assert_int_equal(remove_folder(cache), 0);
}

/* ---- bad files ---- */

typedef struct bad_file {
    const char *text, *message;
} bad_file;

#define ONE(question) FILE_OF("{\"context\": \"the cat\", \"qas\": [" question "]}")

static const bad_file bad[] = {
    {"", "data.path: a.json: an empty file found, text allowed"},
    {"{\"data\": [}",
     "data.path: a.json: line 1, column 11: no valid JSON: unexpected token near '}'"},
    {"{\"data\": []} x",
     "data.path: a.json: line 1, column 14: no valid JSON: end of file expected near 'x'"},
    {"{\"data\": 1, \"data\": 2}",
     "data.path: a.json: line 1, column 18: no valid JSON: duplicate object key near '\"data\"'"},
    {"\xFF{}", "data.path: a.json: line 1, byte 1: 0xFF found, text in UTF-8 allowed; iconv "
               "converts other encodings"},
    {"[]", "data.path: a.json: a list found, allowed: an object with the list 'data'"},
    {"{}", "data.path: a.json: data: nothing found, allowed: a list"},
    {"{\"data\": []}", "data.path: a.json: no question found, at least one allowed"},
    {"{\"data\": [3]}", "data.path: a.json: data[0]: 3 found, allowed: an object"},
    {"{\"data\": [{}]}", "data.path: a.json: data[0].paragraphs: nothing found, allowed: a list"},
    {"{\"data\": [{\"paragraphs\": [{\"qas\": []}]}]}",
     "data.path: a.json: data[0].paragraphs[0].context: nothing found, allowed: a text"},
    {FILE_OF("{\"context\": \"c\"}"),
     "data.path: a.json: data[0].paragraphs[0].qas: nothing found, allowed: a list"},
    {FILE_OF("{\"context\": 1.5, \"qas\": []}"),
     "data.path: a.json: data[0].paragraphs[0].context: a number with a fraction found, allowed: a "
     "text"},
    {ONE("true"),
     "data.path: a.json: data[0].paragraphs[0].qas[0]: true found, allowed: an object"},
    {ONE("{\"id\": \"a\", \"answers\": []}"),
     "data.path: a.json: data[0].paragraphs[0].qas[0].question: nothing found, allowed: a text"},
    {ONE("{\"question\": \"a\", \"id\": 7, \"answers\": []}"),
     "data.path: a.json: data[0].paragraphs[0].qas[0].id: 7 found, allowed: a text"},
    {ONE("{\"question\": \"a\", \"id\": \"7\"}"),
     "data.path: a.json: data[0].paragraphs[0].qas[0].answers: nothing found, allowed: a list"},
    {ONE("{\"question\": \"a\", \"id\": \"7\", \"is_impossible\": 1, \"answers\": []}"),
     "data.path: a.json: data[0].paragraphs[0].qas[0].is_impossible: 1 found, allowed: true or "
     "false"},
    {ONE(QUESTION("a", "null")),
     "data.path: a.json: data[0].paragraphs[0].qas[0].answers[0]: null found, allowed: an object"},
    {ONE(QUESTION("a", ANSWER("cat", "4") ", {\"answer_start\": 1}")),
     "data.path: a.json: data[0].paragraphs[0].qas[0].answers[1].text: nothing found, allowed: a "
     "text"},
    {ONE(QUESTION("a", "{\"text\": \"cat\"}")),
     "data.path: a.json: data[0].paragraphs[0].qas[0].answers[0].answer_start: nothing found, "
     "allowed: a code point of the context"},
    {ONE(QUESTION("a", ANSWER("cat", "-1"))),
     "data.path: a.json: data[0].paragraphs[0].qas[0].answers[0].answer_start: -1 found, allowed: "
     "a "
     "code point of the context"},
    {ONE(QUESTION("a", ANSWER("cat", "99"))),
     "data.path: a.json: data[0].paragraphs[0].qas[0].answers[0].answer_start: 99 found, allowed: "
     "a "
     "code point of the context"},
    {FILE_OF("{\"context\": \" \", \"qas\": [" QUESTION("a", "") "]}"),
     "data.path: a.json: the context of paragraph 1: a text without a token found, at least one "
     "token allowed"},
    {ONE(QUESTION("a", ANSWER("dog", "4"))),
     "data.path: a.json: no question found whose answer stands where answer_start says, at least "
     "one allowed"},
    {FILE_OF("{\"context\": \"c\", \"qas\": [" QUESTION(
         "a", "") "]}, {\"context\": \"d\", "
                  "\"qas\": [" QUESTION("b", "") ", " QUESTION("a", "") "]}"),
     "data.path: a.json: questions 1 and 3 have one id, 'a', allowed: an id of its own for each "
     "question"},
};

static const char *message_of(const fl_squad_options *o, char text[MESSAGE_ROOM])
{
    fl_dataset d = {0};
    assert_int_not_equal(fl_dataset_squad_open(o, &d, NULL), FL_OK);
    assert_null(d.ops);
    snprintf(text, MESSAGE_ROOM, "%s", fl_errmsg());
    size_t n = strlen(folder) + 1;
    for (char *at = strstr(text, folder); at != NULL; at = strstr(text, folder)) {
        memmove(at, at + n, strlen(at + n) + 1);
    }
    return text;
}

static void test_squad__refuses_bad_files_with_their_place(void **state)
{
    (void)state;
    char path[PATH_ROOM], message[MESSAGE_ROOM];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fl_squad_options o = reference;
        o.path[FL_TEST] = NULL;
        o.path[FL_TRAIN] = write_text("a.json", bad[i].text, path);
        assert_string_equal(message_of(&o, message), bad[i].message);
    }
}

static void test_squad__refuses_limits_that_do_not_fit_a_question(void **state)
{
    (void)state;
    char message[MESSAGE_ROOM];
    fl_squad_options o = reference;
    o.max_tokens = 12;
    assert_non_null(strstr(message_of(&o, message), "data.max_tokens: found 12, but "));
    assert_non_null(strstr(message, "questions.json: question q0 has "));
    assert_non_null(strstr(message, "so that its context fits"));
    o.max_tokens = TOKENS;
    o.stride = TOKENS - 10;
    assert_non_null(strstr(message_of(&o, message), "data.stride: found 70, but "));
    assert_non_null(strstr(message, " of 80 tokens to its context: allowed: less than that"));
    o = reference;
    o.path[FL_TEST] = "/nowhere/a.json";
    assert_non_null(strstr(message_of(&o, message), "data.path: /nowhere/a.json: "));
    o = reference;
    o.tokenizer = "/nowhere";
    assert_non_null(strstr(message_of(&o, message), "data.tokenizer: "));
}

/* Each allocation fails once; the sanitizer looks for what is left. */
static void test_squad__gives_all_memory_back_when_there_is_too_little(void **state)
{
    (void)state;
    fl_dataset d = {0};
    fl_status status = FL_ENOMEM;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_alloc_fail_at(n);
        status = fl_dataset_squad_open(&reference, &d, NULL);
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
    }
    fl_dataset_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_squad__windows_are_those_of_hugging_face),
        cmocka_unit_test(test_squad__without_types_samples_are_ids_alone),
        cmocka_unit_test(test_squad__an_answer_that_does_not_stand_in_its_place),
        cmocka_unit_test(test_squad__questions_without_an_answer_point_at_the_first_token),
        cmocka_unit_test(test_squad__the_second_time_gives_the_same_windows),
        cmocka_unit_test(test_squad__refuses_kept_windows_that_do_not_fit_together),
        cmocka_unit_test(test_squad__refuses_bad_files_with_their_place),
        cmocka_unit_test(test_squad__refuses_limits_that_do_not_fit_a_question),
        cmocka_unit_test(test_squad__gives_all_memory_back_when_there_is_too_little),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
