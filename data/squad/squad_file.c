/* The levels of the file, each read by a function of its own:
 *
 *     root ──> data[i] ──> paragraphs[j]: context ──> qas[k]: question, id ──> answers[l]
 *
 * A place in a message is the path through these levels. */
#include "data/squad/squad_file.h"

#include "data/squad/question_ids.h"
#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { PLACE_BYTES = 160, SHOWN_BYTES = 60, QUESTIONS_MAX = 100 * 1000 * 1000 };

/* Where reading is; -1: not that deep. */
typedef struct squad_place {
    const char *path;
    int64_t article, paragraph, question, answer;
} squad_place;

typedef struct squad_reader {
    squad_place at;
    fl_squad_file *file;
} squad_reader;

/* ---- messages ---- */

/* "data[3].paragraphs[0].qas[2].answers[0]" */
static void write_place(const squad_place *p, char *to, size_t room)
{
    const struct {
        const char *name;
        int64_t index;
    } levels[] = {{"data", p->article},
                  {".paragraphs", p->paragraph},
                  {".qas", p->question},
                  {".answers", p->answer}};
    size_t used = 0;
    to[0] = '\0';
    for (size_t i = 0; i < sizeof levels / sizeof *levels && levels[i].index >= 0; i++) {
        used += (size_t)snprintf(to + used, room - used, "%s[%lld]", levels[i].name,
                                 (long long)levels[i].index);
    }
}

static void describe_value(const json_t *value, char shown[SHOWN_BYTES])
{
    static const char *const names[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_STRING] = "a text",
                                        [JSON_INTEGER] = "an integer",
                                        [JSON_REAL] = "a number with a fraction",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    if (json_is_integer(value)) {
        snprintf(shown, SHOWN_BYTES, "%lld", (long long)json_integer_value(value));
    } else {
        snprintf(shown, SHOWN_BYTES, "%s", value == NULL ? "nothing" : names[json_typeof(value)]);
    }
}

/* "FILE: data[0].paragraphs[0].context: a list found, allowed: a text" */
static fl_status refuse_value(const squad_reader *r, const char *key, const json_t *found,
                              const char *allowed)
{
    char place[PLACE_BYTES], shown[SHOWN_BYTES];
    write_place(&r->at, place, sizeof place);
    describe_value(found, shown);
    return fl_fail(FL_EFORMAT, "%s: %s%s%s: %s found, allowed: %s", r->at.path, place,
                   place[0] == '\0' || key[0] == '\0' ? "" : ".", key, shown, allowed);
}

/* ---- members ---- */

static fl_status get_list(const squad_reader *r, const json_t *object, const char *key,
                          const json_t **out)
{
    *out = json_object_get(object, key);
    return json_is_array(*out) ? FL_OK : refuse_value(r, key, *out, "a list");
}

static fl_status check_object(const squad_reader *r, const json_t *value)
{
    return json_is_object(value) ? FL_OK : refuse_value(r, "", value, "an object");
}

static fl_status get_text(const squad_reader *r, const json_t *object, const char *key,
                          fl_text *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) {
        return refuse_value(r, key, value, "a text");
    }
    *out = (fl_text){.bytes = json_string_value(value), .n_bytes = json_string_length(value)};
    return FL_OK;
}

/* ---- answers ---- */

/* The byte of code point `n` of the text; false if the text is shorter. */
static bool find_char(fl_text text, int64_t n, size_t *at)
{
    uint32_t code;
    *at = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t size =
            *at < text.n_bytes ? fl_utf8_next(text.bytes + *at, text.n_bytes - *at, &code) : 0;
        if (size == 0) {
            return false;
        }
        *at += size;
    }
    return true;
}

static int64_t count_chars(fl_text text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        n += ((unsigned char)text.bytes[i] & 0xC0) != 0x80;
    }
    return n;
}

static bool stands_at(fl_text context, fl_text answer, int64_t start)
{
    size_t at;
    return answer.n_bytes > 0 && find_char(context, start, &at) &&
           context.n_bytes - at >= answer.n_bytes &&
           memcmp(context.bytes + at, answer.bytes, answer.n_bytes) == 0;
}

static fl_status read_answer(squad_reader *r, const json_t *value, fl_text context,
                             fl_squad_question *q)
{
    fl_text text = {0};
    FL_TRY(check_object(r, value));
    FL_TRY(get_text(r, value, "text", &text));
    const json_t *start = json_object_get(value, "answer_start");
    if (!json_is_integer(start) || json_integer_value(start) < 0 ||
        json_integer_value(start) > (json_int_t)context.n_bytes) {
        return refuse_value(r, "answer_start", start, "a code point of the context");
    }
    if (q->kind == FL_SQUAD_MISPLACED && stands_at(context, text, json_integer_value(start))) {
        q->kind = FL_SQUAD_ANSWERED;
        q->begin = (int32_t)json_integer_value(start);
        q->end = q->begin + (int32_t)count_chars(text);
    }
    return fl__text_pool_add(&r->file->answers, text.bytes, text.n_bytes);
}

static fl_status read_answers(squad_reader *r, const json_t *object, fl_text context,
                              fl_squad_question *q)
{
    const json_t *impossible = json_object_get(object, "is_impossible"), *answers = NULL;
    if (impossible != NULL && !json_is_boolean(impossible)) {
        return refuse_value(r, "is_impossible", impossible, "true or false");
    }
    if (json_is_true(impossible)) { /* its plausible answers are none */
        q->kind = FL_SQUAD_IMPOSSIBLE;
        return FL_OK;
    }
    FL_TRY(get_list(r, object, "answers", &answers));
    if (json_array_size(answers) > FL_SQUAD_ANSWERS_MAX) {
        return refuse_value(r, "answers", answers, "a list of at most 1000 answers");
    }
    q->kind = json_array_size(answers) == 0 ? FL_SQUAD_IMPOSSIBLE : FL_SQUAD_MISPLACED;
    for (size_t i = 0; i < json_array_size(answers); i++) {
        r->at.answer = (int64_t)i;
        FL_TRY(read_answer(r, json_array_get(answers, i), context, q));
    }
    r->at.answer = -1;
    return FL_OK;
}

/* ---- questions ---- */

/* As transformers does: some questions of SQuAD begin with many spaces. */
static fl_text strip_left(fl_text text)
{
    while (text.n_bytes > 0 &&
           (text.bytes[0] == ' ' || (text.bytes[0] >= '\t' && text.bytes[0] <= '\r'))) {
        text.bytes++;
        text.n_bytes--;
    }
    return text;
}

static void count_question(squad_reader *r, const fl_squad_question *q, fl_text id)
{
    fl_squad_file *f = r->file;
    if (q->kind == FL_SQUAD_MISPLACED && f->n_misplaced == 0) {
        write_place(&r->at, f->misplaced, sizeof f->misplaced - SHOWN_BYTES);
        size_t used = strlen(f->misplaced);
        snprintf(f->misplaced + used, sizeof f->misplaced - used, " (id %.40s)", id.bytes);
    }
    f->n_misplaced += q->kind == FL_SQUAD_MISPLACED;
    f->n_impossible += q->kind == FL_SQUAD_IMPOSSIBLE;
}

static fl_status read_question(squad_reader *r, const json_t *value, fl_text context)
{
    fl_squad_file *f = r->file;
    fl_text text = {0}, id = {0};
    fl_squad_question q = {.context = (int32_t)f->contexts.n - 1, .first_answer = f->answers.n};
    FL_TRY(check_object(r, value));
    FL_TRY(get_text(r, value, "question", &text));
    FL_TRY(get_text(r, value, "id", &id));
    FL_TRY(read_answers(r, value, context, &q));
    if (f->texts.n == QUESTIONS_MAX) {
        return refuse_value(r, "", value, "at most 100000000 questions");
    }
    FL_TRY(fl_alloc_room((void **)&f->questions, (size_t)f->texts.n, 1, sizeof *f->questions,
                         &f->questions_room));
    f->questions[f->texts.n] = q;
    count_question(r, &q, id);
    text = strip_left(text);
    FL_TRY(fl__text_pool_add(&f->texts, text.bytes, text.n_bytes));
    return fl__text_pool_add(&f->ids, id.bytes, id.n_bytes);
}

static fl_status read_paragraph(squad_reader *r, const json_t *value)
{
    const json_t *qas = NULL;
    fl_text context = {0};
    FL_TRY(check_object(r, value));
    FL_TRY(get_text(r, value, "context", &context));
    FL_TRY(get_list(r, value, "qas", &qas));
    if (context.n_bytes > FL_TEXT_BYTES_MAX) {
        return refuse_value(r, "context", json_object_get(value, "context"),
                            "a text of at most 268435456 bytes");
    }
    if (json_array_size(qas) == 0) {
        return FL_OK; /* nothing asks for this context */
    }
    FL_TRY(fl__text_pool_add(&r->file->contexts, context.bytes, context.n_bytes));
    for (size_t i = 0; i < json_array_size(qas); i++) {
        r->at.question = (int64_t)i;
        FL_TRY(read_question(r, json_array_get(qas, i), context));
    }
    r->at.question = -1;
    return FL_OK;
}

static fl_status read_article(squad_reader *r, const json_t *value)
{
    const json_t *paragraphs = NULL;
    FL_TRY(check_object(r, value));
    FL_TRY(get_list(r, value, "paragraphs", &paragraphs));
    for (size_t i = 0; i < json_array_size(paragraphs); i++) {
        r->at.paragraph = (int64_t)i;
        FL_TRY(read_paragraph(r, json_array_get(paragraphs, i)));
    }
    r->at.paragraph = -1;
    return FL_OK;
}

static fl_status read_root(squad_reader *r, const json_t *root)
{
    const json_t *data = NULL;
    if (!json_is_object(root)) {
        char shown[SHOWN_BYTES];
        describe_value(root, shown);
        return fl_fail(FL_EFORMAT, "%s: %s found, allowed: an object with the list 'data'",
                       r->at.path, shown);
    }
    FL_TRY(get_list(r, root, "data", &data));
    for (size_t i = 0; i < json_array_size(data); i++) {
        r->at.article = (int64_t)i;
        FL_TRY(read_article(r, json_array_get(data, i)));
    }
    return r->file->texts.n > 0
               ? FL_OK
               : fl_fail(FL_EFORMAT, "%s: no question found, at least one allowed", r->at.path);
}

/* What the library takes for a tree: of the marks between values, none lies in more than one. Marks
 * within texts count as well, so this is an upper bound. */
static fl_status check_memory(const fl_content *content)
{
    enum { VALUE_BYTES = 80 };
    size_t n_values = 1;
    for (size_t i = 0; i < content->n_bytes; i++) {
        char c = content->bytes[i];
        n_values += c == ',' || c == ':' || c == '[' || c == '{';
    }
    return fl__memory_share_check(&content->share, content->path, 0,
                                  2 * content->n_bytes + n_values * VALUE_BYTES);
}

fl_status fl__squad_file_read(const fl_content *content, fl_squad_file *out)
{
    fl_squad_file file = {0};
    squad_reader r = {.at = {content->path, -1, -1, -1, -1}, .file = &file};
    json_error_t error;
    FL_TRY(check_memory(content));
    json_t *root = json_loadb(content->bytes, content->n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return fl_fail(FL_EFORMAT, "%s: line %d, column %d: no valid JSON: %s", content->path,
                       error.line, error.column, error.text);
    }
    fl_status status = read_root(&r, root);
    json_decref(root);
    if (status == FL_OK) {
        status = fl__question_ids_check(content->path, &file.ids);
    }
    if (status == FL_OK) {
        *out = file;
    } else {
        fl__squad_file_fini(&file);
    }
    return status;
}

void fl__squad_file_fini(fl_squad_file *file)
{
    fl__text_pool_fini(&file->contexts);
    fl__text_pool_fini(&file->texts);
    fl__text_pool_fini(&file->ids);
    fl__text_pool_fini(&file->answers);
    fl_free(file->questions);
    *file = (fl_squad_file){0};
}
