/* The post-processor of tokenizer.json: what stands around texts, and how spans are trimmed. */
#include "data/tokenizer/files/files.h"

#include <string.h>

static fl_status add_item(const fl_json_place *p, fl_template *template, fl_template_item item)
{
    if (template->n == FL_TEMPLATE_ITEMS_MAX) {
        return fl_fail(FL_EFORMAT, "%s: %s: more than %d items", p->path, p->where,
                       FL_TEMPLATE_ITEMS_MAX);
    }
    template->items[template->n++] = item;
    template->n_special += item.kind == FL_ITEM_SPECIAL;
    return FL_OK;
}

static fl_status check_id(const fl_json_place *p, const fl_tokenizer *t, const json_t *id)
{
    int64_t value = json_integer_value(id);
    if (json_is_integer(id) && value >= 0 && value < t->vocabulary.n_ids) {
        return FL_OK;
    }
    char allowed[64];
    snprintf(allowed, sizeof allowed, "an id from 0 to %d", t->vocabulary.n_ids - 1);
    return fl__json_refuse(p, "", id, allowed);
}

/* ---- TemplateProcessing ---- */

/* The ids of a special token that special_tokens explains. */
static fl_status add_special(const fl_json_place *p, const fl_tokenizer *t, const json_t *tokens,
                             const char *name, int32_t type, fl_template *template)
{
    const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");
    if (!json_is_array(ids)) {
        return fl_fail(FL_EFORMAT, "%s: %s: \"%.60s\" has no ids in post_processor.special_tokens",
                       p->path, p->where, name);
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        FL_TRY(check_id(p, t, id));
        FL_TRY(add_item(p, template,
                        (fl_template_item){.kind = FL_ITEM_SPECIAL,
                                           .id = (int32_t)json_integer_value(id),
                                           .type = type}));
    }
    return FL_OK;
}

/* {"SpecialToken": {"id": "[CLS]", "type_id": 0}} or {"Sequence": {"id": "A", "type_id": 0}} */
static fl_status read_item(const fl_json_place *p, const fl_tokenizer *t, const json_t *tokens,
                           fl_template *template)
{
    const json_t *special = json_object_get(p->object, "SpecialToken");
    const json_t *sequence = json_object_get(p->object, "Sequence");
    const fl_json_place inner = {
        .path = p->path, .where = p->where, .object = special != NULL ? special : sequence};
    const char *name = NULL;
    int64_t type = 0;
    FL_TRY(fl__json_text(&inner, "id", &name));
    FL_TRY(fl__json_count(&inner, "type_id", &type));
    if (name == NULL || type > INT32_MAX) {
        return fl__json_refuse(p, "", p->object,
                               "a SpecialToken or a Sequence with id and type_id");
    }
    if (special != NULL) {
        return add_special(p, t, tokens, name, (int32_t)type, template);
    }
    bool second = strcmp(name, "B") == 0;
    if (!second && strcmp(name, "A") != 0) {
        return fl__json_refuse(p, "Sequence.id", json_object_get(sequence, "id"), "\"A\" or \"B\"");
    }
    return add_item(
        p, template,
        (fl_template_item){.kind = second ? FL_ITEM_PAIR : FL_ITEM_TEXT, .type = (int32_t)type});
}

static fl_status read_template(const fl_json_place *p, const char *key, const fl_tokenizer *t,
                               fl_template *out)
{
    const json_t *list = json_object_get(p->object, key);
    const json_t *tokens = json_object_get(p->object, "special_tokens");
    char where[64];
    *out = (fl_template){0};
    if (!json_is_array(list)) {
        return fl__json_refuse(p, key, list, "a list of items");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(where, sizeof where, "%s.%s[%zu]", p->where, key, i);
        const fl_json_place item = {
            .path = p->path, .where = where, .object = json_array_get(list, i)};
        FL_TRY(read_item(&item, t, tokens, out));
    }
    return FL_OK;
}

/* ---- BertProcessing, RobertaProcessing ---- */

/* ["[SEP]", 102] */
static fl_status read_pair_id(const fl_json_place *p, const char *key, const fl_tokenizer *t,
                              int32_t *id)
{
    const json_t *value = json_object_get(p->object, key);
    if (json_array_size(value) != 2) {
        return fl__json_refuse(p, key, value, "a list of a text and its id");
    }
    FL_TRY(check_id(p, t, json_array_get(value, 1)));
    *id = (int32_t)json_integer_value(json_array_get(value, 1));
    return FL_OK;
}

void fl__template_bert(fl_tokenizer *t, int32_t cls, int32_t sep)
{
    const fl_template_item first = {FL_ITEM_SPECIAL, cls, 0}, text = {FL_ITEM_TEXT, 0, 0};
    const fl_template_item end = {FL_ITEM_SPECIAL, sep, 0}, pair = {FL_ITEM_PAIR, 0, 1};
    const fl_template_item pair_end = {FL_ITEM_SPECIAL, sep, 1};
    t->single = (fl_template){.n = 3, .n_special = 2, .items = {first, text, end}};
    t->pair = (fl_template){.n = 5, .n_special = 3, .items = {first, text, end, pair, pair_end}};
}

void fl__template_plain(fl_tokenizer *t, int32_t begin, int32_t end)
{
    t->single = t->pair = (fl_template){0};
    for (int32_t type = 0; type < 2; type++) {
        const fl_template_item items[] = {
            {FL_ITEM_SPECIAL, begin, type},
            {type == 0 ? FL_ITEM_TEXT : FL_ITEM_PAIR, 0, type},
            {FL_ITEM_SPECIAL, end, type},
        };
        for (int i = 0; i < 3; i++) {
            if (items[i].kind != FL_ITEM_SPECIAL || items[i].id >= 0) {
                t->pair.items[t->pair.n++] = items[i];
                t->pair.n_special += items[i].kind == FL_ITEM_SPECIAL;
            }
        }
        t->single = type == 0 ? t->pair : t->single;
    }
}

static fl_status read_bert(const fl_json_place *p, fl_tokenizer *t)
{
    int32_t cls = -1, sep = -1;
    FL_TRY(read_pair_id(p, "cls", t, &cls));
    FL_TRY(read_pair_id(p, "sep", t, &sep));
    fl__template_bert(t, cls, sep);
    return FL_OK;
}

/* Two separators between texts, and no types. */
static fl_status read_roberta(const fl_json_place *p, fl_tokenizer *t)
{
    t->trim_spans = t->trim_prefix_space = true;
    FL_TRY(read_bert(p, t));
    FL_TRY(fl__json_bool(p, "trim_offsets", &t->trim_spans));
    FL_TRY(fl__json_bool(p, "add_prefix_space", &t->trim_prefix_space));
    fl_template_item sep = t->single.items[2];
    const fl_template_item pair = {FL_ITEM_PAIR, 0, 0};
    t->pair = (fl_template){.n = 6,
                            .n_special = 4,
                            .items = {t->single.items[0], t->single.items[1], sep, sep, pair, sep}};
    return FL_OK;
}

/* ---- any of them ---- */

static fl_status read_one(const fl_json_place *p, fl_tokenizer *t)
{
    const char *type = "";
    FL_TRY(fl__json_text(p, "type", &type));
    if (strcmp(type, "TemplateProcessing") == 0) {
        FL_TRY(read_template(p, "single", t, &t->single));
        return read_template(p, "pair", t, &t->pair);
    }
    if (strcmp(type, "BertProcessing") == 0) {
        return read_bert(p, t);
    }
    if (strcmp(type, "RobertaProcessing") == 0) {
        return read_roberta(p, t);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        t->trim_spans = t->trim_prefix_space = true;
        FL_TRY(fl__json_bool(p, "trim_offsets", &t->trim_spans));
        return fl__json_bool(p, "add_prefix_space", &t->trim_prefix_space);
    }
    return fl_fail(FL_ENOTSUP,
                   "%s: %s.type: found \"%.60s\", allowed: TemplateProcessing, BertProcessing, "
                   "RobertaProcessing, ByteLevel, or a Sequence of these",
                   p->path, p->where, type);
}

fl_status fl__tokenizer_json_read_processor(const char *path, const json_t *root, fl_tokenizer *t)
{
    const json_t *object = json_object_get(root, "post_processor");
    const fl_json_place p = {.path = path, .where = "post_processor", .object = object};
    const char *type = "";
    fl__template_plain(t, -1, -1);
    if (object == NULL || json_is_null(object)) {
        return FL_OK;
    }
    if (!json_is_object(object)) {
        return fl__json_refuse(&p, "", object, "an object with a type");
    }
    FL_TRY(fl__json_text(&p, "type", &type));
    if (strcmp(type, "Sequence") != 0) {
        return read_one(&p, t);
    }
    const json_t *list = json_object_get(object, "processors");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const fl_json_place part = {
            .path = path, .where = "post_processor.processors", .object = json_array_get(list, i)};
        FL_TRY(read_one(&part, t));
    }
    return FL_OK;
}
