/* Vocabularies and merges, in each form that they are stored in. */
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/files/files.h"

#include <string.h>

/* ---- pieces ---- */

/* Without White_Space at its end. */
static size_t trimmed_length(const char *line, size_t n, const fl_char_table *chars)
{
    while (n > 0) {
        size_t first = n - 1, size;
        while (first > 0 && ((unsigned char)line[first] & 0xC0) == 0x80) {
            first--;
        }
        uint32_t code = fl_char_decode((const uint8_t *)line + first, &size);
        if (!(fl_char_flags(chars, code) & FL_CHAR_SPACE)) {
            break;
        }
        n = first;
    }
    return n;
}

fl_status fl__vocab_txt_read(const fl_token_file *file, const fl_char_table *chars,
                             fl_vocabulary *v)
{
    fl_token_lines lines = {.file = file};
    while (fl__token_lines_next(&lines)) {
        size_t n = trimmed_length(lines.line, lines.n, chars);
        if (memchr(lines.line, '\0', n) != NULL) {
            return fl_fail(FL_EFORMAT, "%s: line %lld: a zero byte", file->path,
                           (long long)lines.number);
        }
        fl_status status = fl__vocabulary_add(v, lines.line, n, lines.number - 1);
        if (status != FL_OK) {
            return fl_within(status, "%s: line %lld", file->path, (long long)lines.number);
        }
    }
    return v->n_ids > 0 ? FL_OK : fl_fail(FL_EFORMAT, "%s: the file is empty", file->path);
}

fl_status fl__vocab_json_read(const char *path, const char *where, const json_t *object,
                              fl_vocabulary *v)
{
    const fl_json_place place = {.path = path, .where = where, .object = object};
    const char *text;
    json_t *id;
    if (!json_is_object(object)) {
        return fl__json_refuse(&place, "", object, "an object of pieces and their ids");
    }
    json_object_foreach((json_t *)object, text, id)
    {
        if (!json_is_integer(id)) {
            return fl__json_refuse(&place, text, id, "an integer from 0 up");
        }
        fl_status status = fl__vocabulary_add(v, text, strlen(text), json_integer_value(id));
        if (status != FL_OK) {
            return fl_within(status, "%s: %s: \"%.100s\"", path, where, text);
        }
    }
    return v->n_ids > 0 ? FL_OK : fl_fail(FL_EFORMAT, "%s: %s has no piece", path, where);
}

/* ---- merges ---- */

static fl_status missing_piece(const char *text, size_t n)
{
    return fl_fail(FL_EFORMAT, "\"%.*s\" is no piece of the vocabulary", (int)(n < 100 ? n : 100),
                   text);
}

/* The merge of rank `rank`: left and right, and what they make, are pieces. */
static fl_status add_merge(fl_tokenizer *t, const char *left, size_t n_left, const char *right,
                           size_t n_right, uint32_t rank)
{
    const fl_trie *trie = &t->vocabulary.trie;
    int32_t left_id = fl_trie_find(trie, left, n_left);
    int32_t right_id = fl_trie_find(trie, right, n_right);
    int found;
    if (left_id < 0 || right_id < 0) {
        return left_id < 0 ? missing_piece(left, n_left) : missing_piece(right, n_right);
    }
    uint32_t node = fl_trie_walk(trie, left, n_left, &found);
    for (size_t i = 0; i < n_right && found; i++) {
        node = fl_trie_next(trie, node, (uint8_t)right[i]);
        found = node != FL_TRIE_ROOT;
    }
    if (!found || trie->ids[node] < 0) {
        return fl_fail(FL_EFORMAT, "\"%.*s\" and \"%.*s\" make no piece of the vocabulary",
                       (int)(n_left < 100 ? n_left : 100), left,
                       (int)(n_right < 100 ? n_right : 100), right);
    }
    return fl__merges_add(&t->merges, left_id, right_id, trie->ids[node], rank);
}

/* "left right" */
static fl_status add_merge_line(fl_tokenizer *t, const char *line, size_t n, uint32_t rank)
{
    const char *space = memchr(line, ' ', n);
    size_t n_left = space == NULL ? n : (size_t)(space - line);
    if (space == NULL || memchr(space + 1, ' ', n - n_left - 1) != NULL) {
        return fl_fail(FL_EFORMAT, "\"%.*s\", allowed: two pieces with one space between them",
                       (int)(n < 100 ? n : 100), line);
    }
    return add_merge(t, line, n_left, space + 1, n - n_left - 1, rank);
}

static bool is_version_line(const char *line, size_t n)
{
    static const char version[] = "#version";
    return n >= sizeof version - 1 && memcmp(line, version, sizeof version - 1) == 0;
}

fl_status fl__merges_txt_read(const fl_token_file *file, fl_tokenizer *t)
{
    fl_token_lines lines = {.file = file};
    uint32_t rank = 0;
    while (fl__token_lines_next(&lines)) {
        if (is_version_line(lines.line, lines.n)) {
            continue;
        }
        fl_status status = add_merge_line(t, lines.line, lines.n, rank++);
        if (status != FL_OK) {
            return fl_within(status, "%s: line %lld", file->path, (long long)lines.number);
        }
    }
    return FL_OK;
}

/* An item of the list is "left right" or ["left", "right"]. */
static fl_status add_merge_item(fl_tokenizer *t, const json_t *item, uint32_t *rank)
{
    const json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
    if (json_is_string(item)) {
        const char *line = json_string_value(item);
        size_t n = json_string_length(item);
        return is_version_line(line, n) ? FL_OK : add_merge_line(t, line, n, (*rank)++);
    }
    if (json_array_size(item) != 2 || !json_is_string(left) || !json_is_string(right)) {
        return fl_fail(FL_EFORMAT, "allowed: a text \"left right\", or a list of two texts");
    }
    return add_merge(t, json_string_value(left), json_string_length(left), json_string_value(right),
                     json_string_length(right), (*rank)++);
}

fl_status fl__merges_json_read(const char *path, const json_t *list, fl_tokenizer *t)
{
    const fl_json_place place = {.path = path, .where = "model.merges", .object = list};
    uint32_t rank = 0;
    if (!json_is_array(list)) {
        return fl__json_refuse(&place, "", list, "a list of merges");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        fl_status status = add_merge_item(t, json_array_get(list, i), &rank);
        if (status != FL_OK) {
            return fl_within(status, "%s: model.merges[%zu]", path, i);
        }
    }
    return FL_OK;
}
