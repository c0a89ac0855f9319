/* tokenizer_config.json: what transformers keeps beside a tokenizer. A field that is there counts
 * more than the same in tokenizer.json, as in transformers. */
#include "data/tokenizer/added.h"
#include "data/tokenizer/files/files.h"
#include "device/system/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Special tokens by the names of their fields, in the order in which missing ones get ids; what
 * they are where no file tells: WordPiece, BPE. */
typedef struct named_token {
    const char *key, *bert, *gpt2;
} named_token;

enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, N_NAMED };

static const named_token named[N_NAMED] = {
    [BOS] = {"bos_token", NULL, "<|endoftext|>"},
    [EOS] = {"eos_token", NULL, "<|endoftext|>"},
    [UNK] = {"unk_token", "[UNK]", "<|endoftext|>"},
    [SEP] = {"sep_token", "[SEP]", NULL},
    [PAD] = {"pad_token", "[PAD]", NULL},
    [CLS] = {"cls_token", "[CLS]", NULL},
    [MASK] = {"mask_token", "[MASK]", NULL},
};

/* The text of a named token: a text, or an object that has it as its content. */
static fl_status read_named(const fl_json_place *p, int which, const char **text)
{
    const json_t *value = json_object_get(p->object, named[which].key);
    const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
    if (value == NULL || json_is_null(value)) {
        return FL_OK;
    }
    if (!json_is_string(content)) {
        return fl__json_refuse(p, named[which].key, value, "a text, or an object with a content");
    }
    *text = json_string_value(content);
    return FL_OK;
}

static bool is_added(const fl_tokenizer *t, const char *text)
{
    return fl_trie_find(&t->added_names, text, strlen(text)) >= 0;
}

static fl_status add_named(const fl_json_place *p, fl_tokenizer *t, int which, const char *text)
{
    const json_t *value = json_object_get(p->object, named[which].key);
    const fl_json_place token = {.path = p->path, .where = named[which].key, .object = value};
    if (text == NULL || is_added(t, text)) {
        return FL_OK;
    }
    if (json_is_object(value)) {
        return fl__json_added_token(&token, t);
    }
    return fl__added_add(t, text, strlen(text), (fl_added_token){0});
}

/* ---- added_tokens_decoder: {"0": {"content": "[PAD]", ...}, ...} ---- */

static int compare_ids(const void *a, const void *b)
{
    long long x = atoll(*(const char *const *)a), y = atoll(*(const char *const *)b);
    return (x > y) - (x < y);
}

static fl_status add_listed(const fl_json_place *p, const char **ids, size_t n, fl_tokenizer *t)
{
    char where[64];
    qsort(ids, n, sizeof *ids, compare_ids);
    for (size_t i = 0; i < n; i++) {
        snprintf(where, sizeof where, "added_tokens_decoder.%.20s", ids[i]);
        const fl_json_place token = {
            .path = p->path, .where = where, .object = json_object_get(p->object, ids[i])};
        FL_TRY(fl__json_added_token(&token, t));
    }
    return FL_OK;
}

static fl_status read_listed(const fl_json_place *p, fl_tokenizer *t)
{
    json_t *object = json_object_get(p->object, "added_tokens_decoder");
    const fl_json_place list = {.path = p->path, .where = "", .object = object};
    const char *id, **ids;
    json_t *token;
    size_t n = 0;
    if (object == NULL || json_is_null(object)) {
        return FL_OK;
    }
    if (!json_is_object(object)) {
        return fl__json_refuse(p, "added_tokens_decoder", object, "an object of ids and tokens");
    }
    FL_TRY(fl_alloc_array(json_object_size(object) + 1, sizeof *ids, (void **)&ids));
    json_object_foreach(object, id, token)
    {
        ids[n++] = id;
    }
    fl_status status = add_listed(&list, ids, n, t);
    fl_free(ids);
    return status;
}

/* ---- the kinds ---- */

static fl_status need_piece(const fl_json_place *p, const fl_tokenizer *t, int which,
                            const char *text, int32_t *id)
{
    *id = fl__added_find(t, text);
    return *id >= 0 ? FL_OK
                    : fl_fail(FL_EFORMAT, "%s: %s is \"%.60s\", which the vocabulary lacks",
                              p->path, named[which].key, text);
}

static fl_status read_bert_fields(const fl_json_place *p, fl_tokenizer *t)
{
    const json_t *strip = json_object_get(p->object, "strip_accents");
    const json_t *lower = json_object_get(p->object, "do_lower_case");
    FL_TRY(fl__json_bool(p, "do_lower_case", &t->lower_case));
    FL_TRY(fl__json_bool(p, "tokenize_chinese_chars", &t->chinese));
    FL_TRY(fl__json_bool(p, "strip_accents", &t->strip_accents));
    if (lower != NULL && (strip == NULL || json_is_null(strip))) {
        t->strip_accents = t->lower_case;
    }
    return FL_OK;
}

static fl_status read_bert_defaults(const fl_json_place *p, const char *texts[N_NAMED],
                                    fl_tokenizer *t)
{
    int32_t cls = -1, sep = -1;
    int found;
    t->clean_text = t->chinese = t->lower_case = t->strip_accents = true;
    FL_TRY(need_piece(p, t, UNK, texts[UNK], &t->unknown));
    FL_TRY(need_piece(p, t, CLS, texts[CLS], &cls));
    FL_TRY(need_piece(p, t, SEP, texts[SEP], &sep));
    fl__template_bert(t, cls, sep);
    t->suffix_root = fl_trie_walk(&t->vocabulary.trie, "##", 2, &found);
    t->has_suffixes = found != 0;
    return FL_OK;
}

/* add_bos_token and add_eos_token say what stands around a text, where they are given. */
static fl_status read_bpe_fields(const fl_json_place *p, const char *texts[N_NAMED],
                                 bool has_tokenizer_json, fl_tokenizer *t)
{
    bool add_bos = false, add_eos = false;
    int32_t bos = -1, eos = -1;
    bool given = json_object_get(p->object, "add_bos_token") != NULL ||
                 json_object_get(p->object, "add_eos_token") != NULL;
    FL_TRY(fl__json_bool(p, "add_prefix_space", &t->prefix_space));
    FL_TRY(fl__json_bool(p, "add_bos_token", &add_bos));
    FL_TRY(fl__json_bool(p, "add_eos_token", &add_eos));
    if (add_bos && texts[BOS] != NULL) {
        FL_TRY(need_piece(p, t, BOS, texts[BOS], &bos));
    }
    if (add_eos && texts[EOS] != NULL) {
        FL_TRY(need_piece(p, t, EOS, texts[EOS], &eos));
    }
    if (given || !has_tokenizer_json) {
        t->trim_spans = false;
        fl__template_plain(t, bos, eos);
    }
    return FL_OK;
}

fl_status fl__config_json_read(const char *path, const json_t *root, bool has_tokenizer_json,
                               fl_tokenizer *t)
{
    const fl_json_place p = {.path = path, .where = "", .object = root};
    const char *texts[N_NAMED] = {0};
    bool bert = t->kind == FL_WORDPIECE;
    for (int i = 0; i < N_NAMED; i++) {
        if (!has_tokenizer_json) {
            texts[i] = bert ? named[i].bert : named[i].gpt2;
        }
        FL_TRY(read_named(&p, i, &texts[i]));
    }
    if (bert && !has_tokenizer_json) {
        FL_TRY(read_bert_defaults(&p, texts, t));
    }
    if (!has_tokenizer_json) {
        FL_TRY(read_listed(&p, t));
    }
    for (int i = 0; i < N_NAMED; i++) {
        FL_TRY(add_named(&p, t, i, texts[i]));
    }
    return bert ? read_bert_fields(&p, t) : read_bpe_fields(&p, texts, has_tokenizer_json, t);
}
