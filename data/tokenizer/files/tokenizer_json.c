/* tokenizer.json: the file in which Hugging Face's tokenizers store all of a tokenizer. What it may
 * hold besides WordPiece and byte-level BPE is refused by name. */
#include "data/tokenizer/added.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/files/files.h"

#include <stdio.h>
#include <string.h>

static fl_json_place place_of(const char *path, const json_t *parent, const char *where)
{
    return (fl_json_place){.path = path, .where = where, .object = json_object_get(parent, where)};
}

static bool is_given(const fl_json_place *p)
{
    return p->object != NULL && !json_is_null(p->object);
}

/* The "type" of a part; "" for one that is absent or null. */
static fl_status read_type(const fl_json_place *p, const char **type)
{
    *type = "";
    if (!is_given(p)) {
        return FL_OK;
    }
    if (!json_is_object(p->object)) {
        return fl__json_refuse(p, "", p->object, "an object with a type");
    }
    return fl__json_text(p, "type", type);
}

static fl_status refuse_type(const fl_json_place *p, const char *type, const char *allowed)
{
    return fl_fail(FL_ENOTSUP, "%s: %s.type: found \"%.60s\", allowed: %s", p->path, p->where,
                   *type == '\0' ? "nothing" : type, allowed);
}

/* ---- the model ---- */

static fl_status read_wordpiece(const fl_json_place *p, fl_tokenizer *t)
{
    const char *unknown = "[UNK]", *prefix = "##";
    int found;
    t->kind = FL_WORDPIECE;
    FL_TRY(fl__vocab_json_read(p->path, "model.vocab", json_object_get(p->object, "vocab"),
                               &t->vocabulary));
    FL_TRY(fl__json_text(p, "unk_token", &unknown));
    FL_TRY(fl__json_text(p, "continuing_subword_prefix", &prefix));
    FL_TRY(fl__json_count(p, "max_input_chars_per_word", &t->word_chars_max));
    t->unknown = fl_trie_find(&t->vocabulary.trie, unknown, strlen(unknown));
    if (t->unknown < 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: model.unk_token: found \"%.60s\", allowed: a piece of "
                       "model.vocab",
                       p->path, unknown);
    }
    t->suffix_root = fl_trie_walk(&t->vocabulary.trie, prefix, strlen(prefix), &found);
    t->has_suffixes = found != 0;
    return FL_OK;
}

/* A variant of BPE that a field would switch on. */
static fl_status refuse_variants(const fl_json_place *p)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    bool byte_fallback = false;
    for (int i = 0; i < 2; i++) {
        const char *text = "";
        FL_TRY(fl__json_text(p, texts[i], &text));
        if (*text != '\0') {
            return fl__json_refuse(p, texts[i], json_object_get(p->object, texts[i]),
                                   "\"\", as byte-level BPE has it");
        }
    }
    const json_t *dropout = json_object_get(p->object, "dropout");
    if (dropout != NULL && !json_is_null(dropout) && json_number_value(dropout) != 0) {
        return fl__json_refuse(p, "dropout", dropout, "null");
    }
    FL_TRY(fl__json_bool(p, "byte_fallback", &byte_fallback));
    return byte_fallback ? fl__json_refuse(p, "byte_fallback", json_true(), "false") : FL_OK;
}

static fl_status read_bpe(const fl_json_place *p, fl_tokenizer *t)
{
    const char *unknown = NULL;
    t->kind = FL_BYTE_BPE;
    FL_TRY(refuse_variants(p));
    FL_TRY(fl__vocab_json_read(p->path, "model.vocab", json_object_get(p->object, "vocab"),
                               &t->vocabulary));
    FL_TRY(fl__merges_json_read(p->path, json_object_get(p->object, "merges"), t));
    FL_TRY(fl__json_bool(p, "ignore_merges", &t->whole_words));
    FL_TRY(fl__json_bool(p, "fuse_unk", &t->fuse_unknown));
    FL_TRY(fl__json_text(p, "unk_token", &unknown));
    t->unknown = unknown == NULL ? -1 : fl_trie_find(&t->vocabulary.trie, unknown, strlen(unknown));
    if (unknown != NULL && t->unknown < 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: model.unk_token: found \"%.60s\", allowed: a piece of "
                       "model.vocab",
                       p->path, unknown);
    }
    return FL_OK;
}

/* Files of old versions do not name the type of their model: only BPE has merges. */
static fl_status read_model(const char *path, const json_t *root, fl_tokenizer *t)
{
    const fl_json_place p = place_of(path, root, "model");
    const char *type;
    FL_TRY(read_type(&p, &type));
    if (!json_is_object(p.object)) {
        return fl__json_refuse(&p, "", p.object, "an object");
    }
    if (*type == '\0') {
        type = json_object_get(p.object, "merges") != NULL ? "BPE" : "WordPiece";
    }
    if (strcmp(type, "WordPiece") == 0) {
        return read_wordpiece(&p, t);
    }
    return strcmp(type, "BPE") == 0 ? read_bpe(&p, t) : refuse_type(&p, type, "WordPiece or BPE");
}

/* ---- what comes before it ---- */

static fl_status read_bert_parts(const char *path, const json_t *root, fl_tokenizer *t)
{
    const fl_json_place n = place_of(path, root, "normalizer");
    const fl_json_place p = place_of(path, root, "pre_tokenizer");
    const char *type;
    FL_TRY(read_type(&p, &type));
    if (strcmp(type, "BertPreTokenizer") != 0) {
        return refuse_type(&p, type, "BertPreTokenizer with a WordPiece model");
    }
    FL_TRY(read_type(&n, &type));
    t->clean_text = t->chinese = t->lower_case = t->strip_accents = false;
    if (!is_given(&n)) {
        return FL_OK;
    }
    if (strcmp(type, "BertNormalizer") != 0) {
        return refuse_type(&n, type, "BertNormalizer with a WordPiece model");
    }
    t->clean_text = t->chinese = t->lower_case = true;
    FL_TRY(fl__json_bool(&n, "clean_text", &t->clean_text));
    FL_TRY(fl__json_bool(&n, "handle_chinese_chars", &t->chinese));
    FL_TRY(fl__json_bool(&n, "lowercase", &t->lower_case));
    t->strip_accents = t->lower_case;
    FL_TRY(fl__json_bool(&n, "strip_accents", &t->strip_accents));
    return FL_OK;
}

static fl_status read_bpe_parts(const char *path, const json_t *root, fl_tokenizer *t)
{
    const fl_json_place n = place_of(path, root, "normalizer");
    const fl_json_place p = place_of(path, root, "pre_tokenizer");
    const char *type;
    bool use_regex = true;
    FL_TRY(read_type(&n, &type));
    if (is_given(&n)) {
        return refuse_type(&n, type, "null with a BPE model");
    }
    FL_TRY(read_type(&p, &type));
    if (strcmp(type, "ByteLevel") != 0) {
        return refuse_type(&p, type, "ByteLevel with a BPE model");
    }
    t->prefix_space = true;
    FL_TRY(fl__json_bool(&p, "add_prefix_space", &t->prefix_space));
    FL_TRY(fl__json_bool(&p, "use_regex", &use_regex));
    return use_regex ? FL_OK
                     : fl_fail(FL_ENOTSUP,
                               "%s: pre_tokenizer.use_regex: found false, allowed: true", path);
}

fl_status fl__tokenizer_json_read(const char *path, const json_t *root, fl_tokenizer *t)
{
    const fl_json_place top = {.path = path, .where = "", .object = root};
    const char *version = "1.0";
    FL_TRY(fl__json_text(&top, "version", &version));
    if (strcmp(version, "1.0") != 0) {
        return fl__json_refuse(&top, "version", json_object_get(root, "version"), "\"1.0\"");
    }
    FL_TRY(read_model(path, root, t));
    return t->kind == FL_WORDPIECE ? read_bert_parts(path, root, t) : read_bpe_parts(path, root, t);
}

/* ---- added tokens ---- */

fl_status fl__json_added_token(const fl_json_place *p, fl_tokenizer *t)
{
    const char *text = NULL;
    fl_added_token token = {0};
    bool special = false;
    if (!json_is_object(p->object)) {
        return fl__json_refuse(p, "", p->object, "an object");
    }
    FL_TRY(fl__json_text(p, "content", &text));
    FL_TRY(fl__json_bool(p, "single_word", &token.single_word));
    FL_TRY(fl__json_bool(p, "lstrip", &token.lstrip));
    FL_TRY(fl__json_bool(p, "rstrip", &token.rstrip));
    FL_TRY(fl__json_bool(p, "special", &special));
    token.normalized = !special;
    FL_TRY(fl__json_bool(p, "normalized", &token.normalized));
    if (text == NULL) {
        return fl__json_refuse(p, "content", NULL, "a text");
    }
    fl_status status = fl__added_add(t, text, strlen(text), token);
    return status == FL_OK ? FL_OK : fl_within(status, "%s: %s", p->path, p->where);
}

/* Tokens that model.vocab lacks are numbered behind it, as Hugging Face's library numbers them,
 * whatever their "id" is. One below that is a hole in the vocabulary: that library would give the
 * token the id of another one. */
static fl_status check_id(const fl_json_place *p, const fl_tokenizer *t)
{
    const json_t *listed = json_object_get(p->object, "id");
    const char *text = json_string_value(json_object_get(p->object, "content"));
    int32_t id = fl__added_find(t, text);
    bool is_piece = fl_trie_find(&t->vocabulary.trie, text, strlen(text)) >= 0;
    char allowed[80];
    if (!json_is_integer(listed) || json_integer_value(listed) >= id || is_piece) {
        return FL_OK;
    }
    snprintf(allowed, sizeof allowed, "%d: added tokens are numbered behind model.vocab", id);
    return fl__json_refuse(p, "id", listed, allowed);
}

fl_status fl__tokenizer_json_read_added(const char *path, const json_t *root, fl_tokenizer *t)
{
    const fl_json_place top = place_of(path, root, "added_tokens");
    char where[64];
    if (top.object == NULL || json_is_null(top.object)) {
        return FL_OK;
    }
    if (!json_is_array(top.object)) {
        return fl__json_refuse(&top, "", top.object, "a list");
    }
    for (size_t i = 0; i < json_array_size(top.object); i++) {
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        const fl_json_place p = {
            .path = path, .where = where, .object = json_array_get(top.object, i)};
        FL_TRY(fl__json_added_token(&p, t));
        FL_TRY(check_id(&p, t));
    }
    return FL_OK;
}
