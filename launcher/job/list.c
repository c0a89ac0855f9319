/* Lists: from values to text, and checks. list_read.c reads them. */
#include "launcher/job/list.h"
#include "launcher/job/field.h"
#include "launcher/job/text/text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

size_t fl_list_size(const fl_field *field)
{
    return sizeof(int64_t) + (size_t)field->list->capacity * field->list->item_bytes;
}

const char *fl_list_keys(const fl_list *list, char text[FL_FIELD_ALLOWED_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->n_keys && used < FL_FIELD_ALLOWED_MAX; i++) {
        used += (size_t)snprintf(text + used, FL_FIELD_ALLOWED_MAX - used, "%s%s",
                                 i == 0 ? "" : ", ", list->key[i].path);
    }
    return text;
}

/* Bytes that a key has in an item. */
static size_t key_size(const fl_field *key)
{
    switch (key->type) {
    case FL_FIELD_TEXT:
        return (size_t)key->most + 1;
    case FL_FIELD_PATH:
        return FL_TEXT_MAX;
    case FL_FIELD_INTEGER:
        return key->is_int ? sizeof(int) : sizeof(int64_t);
    default: /* a number, a size */
        return sizeof(int64_t);
    }
}

void fl__list_put(const fl_field *key, void *item, const fl__value *value)
{
    int narrow = (int)value->integer;
    const void *from = key->type == FL_FIELD_INTEGER && key->is_int ? (const void *)&narrow : value;
    memcpy((char *)item + key->offset, from, key_size(key));
}

void fl__list_put_absent(const fl_field *key, void *item)
{
    fl__value value = {0};
    if (key->type == FL_FIELD_INTEGER) {
        value.integer = FL_LIST_ABSENT;
    }
    fl__list_put(key, item, &value);
}

static void get_value(const fl_field *key, const void *item, fl__value *value)
{
    *value = (fl__value){0};
    if (key->type == FL_FIELD_INTEGER) {
        value->integer = fl__list_get(key, item);
    } else {
        memcpy(value, (const char *)item + key->offset, key_size(key));
    }
    if (fl__field_is_text(key)) {
        value->text[key_size(key) - 1] = '\0'; /* a program may have left no zero */
    }
}

static bool is_absent(const fl_field *key, const fl__value *value)
{
    switch (key->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
        return value->text[0] == '\0';
    case FL_FIELD_NUMBER:
        return value->number == 0.0;
    case FL_FIELD_INTEGER:
        return value->integer == FL_LIST_ABSENT;
    default:
        return value->integer == 0;
    }
}

int64_t fl__list_get(const fl_field *key, const void *item)
{
    int64_t value;
    int narrow;
    if (key->is_int) {
        memcpy(&narrow, (const char *)item + key->offset, sizeof narrow);
        return narrow;
    }
    memcpy(&value, (const char *)item + key->offset, sizeof value);
    return value;
}

static int64_t count_of(const fl_field *field, const fl_job *job)
{
    int64_t n;
    memcpy(&n, (const char *)job + field->offset, sizeof n);
    return n;
}

static const char *item_of(const fl_field *field, const fl_job *job, int64_t i)
{
    return (const char *)job + field->offset + sizeof(int64_t) +
           (size_t)i * field->list->item_bytes;
}

/* ---- to text ---- */

/* Text that grows up to the size of its buffer. */
typedef struct growing_list {
    char *text;
    size_t used;
} growing_list;

static void add_text(growing_list *g, const char *text)
{
    size_t length = strlen(text);
    assert(g->used + length < FL_FIELD_VALUE_MAX && "FL_FIELD_VALUE_MAX holds the longest list");
    memcpy(g->text + g->used, text, length + 1);
    g->used += length;
}

static void add_value(growing_list *g, const fl_field *key, const fl__value *value)
{
    char text[FL_FIELD_VALUE_MAX];
    fl__field_write(key, value, text);
    add_text(g, text);
}

static void add_mapping(growing_list *g, const fl_list *list, const char *item)
{
    fl__value value;
    add_text(g, "{");
    for (int k = 0; k < list->n_keys; k++) {
        get_value(&list->key[k], item, &value);
        if (k >= list->n_required && is_absent(&list->key[k], &value)) {
            continue;
        }
        add_text(g, k == 0 ? "" : ", ");
        add_text(g, list->key[k].path);
        add_text(g, ": ");
        add_value(g, &list->key[k], &value);
    }
    add_text(g, "}");
}

const char *fl_list_format(const fl_field *field, const fl_job *job, char text[FL_FIELD_VALUE_MAX])
{
    const fl_list *list = field->list;
    growing_list g = {.text = text};
    int64_t n = count_of(field, job);
    n = n < list->capacity ? n : list->capacity; /* a program may have set a larger count */
    text[0] = '\0';
    if (n <= 0) {
        add_text(&g, field->word);
        return text;
    }
    for (int64_t i = 0; i < n; i++) {
        add_text(&g, i == 0 ? "[" : ", ");
        if (list->n_keys == 0) {
            fl__value value;
            get_value(list->key, item_of(field, job, i), &value);
            add_value(&g, list->key, &value);
        } else {
            add_mapping(&g, list, item_of(field, job, i));
        }
    }
    add_text(&g, "]");
    return text;
}

/* ---- checks ---- */

fl_status fl__list_check_length(const fl_field *field, int64_t n)
{
    char allowed[FL_FIELD_ALLOWED_MAX];
    if (n > field->list->capacity) {
        return fl_fail(FL_EINVAL, "found %" PRId64 " entries, allowed: at most %d", n,
                       field->list->capacity);
    }
    if (n == 0 && field->list->least > 0) {
        return fl_fail(FL_EINVAL, "found an empty list, allowed: %s",
                       fl_field_allowed(field, allowed));
    }
    return n >= field->list->least ? FL_OK
                                   : fl_fail(FL_EINVAL, "found a list of %" PRId64 ", allowed: %s",
                                             n, fl_field_allowed(field, allowed));
}

fl_status fl__list_check_rise(const fl_list *list, int64_t i, const void *before, const void *item)
{
    const fl_field *key = list->key;
    if (!list->rises || i == 0 || fl__list_get(key, item) > fl__list_get(key, before)) {
        return FL_OK;
    }
    return fl_fail(FL_EINVAL,
                   "entry %" PRId64 ", %s: found %" PRId64 ", allowed: more than the %" PRId64
                   " of the entry before",
                   i + 1, key->path, fl__list_get(key, item), fl__list_get(key, before));
}

fl_status fl__list_within(const fl_list *list, int64_t i, const fl_field *key, fl_status status)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    return list->n_keys == 0 ? fl_within(status, "entry %" PRId64, i + 1)
                             : fl_within(status, "entry %" PRId64 ", %s", i + 1, key->path);
}

/* As a message or a file has the value. */
static const char *text_of(const fl_field *key, const fl__value *value,
                           char text[FL_FIELD_VALUE_MAX])
{
    if (fl__field_is_text(key)) {
        return value->text;
    }
    fl__field_write(key, value, text);
    return text;
}

/* is_required: the list has no entry without this key. */
static fl_status check_value(const fl_field *key, bool is_required, const char *item)
{
    char allowed[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX], buffer[FL_FIELD_VALUE_MAX];
    fl__value value, unused;
    get_value(key, item, &value);
    const char *text = text_of(key, &value, buffer);
    bool is_word = key->word != NULL && strcmp(text, key->word) == 0;
    bool may_be_absent = !is_required && is_absent(key, &value);
    if (is_word || may_be_absent) {
        return FL_OK;
    }
    if (key->address != FL_ADDRESS_NONE) {
        FL_TRY(fl_address_check(text, key->address));
    }
    if (fl__field_read(key, text, strlen(text), &unused)) {
        return FL_OK;
    }
    return fl_fail(FL_EINVAL, "found %s, allowed: %s",
                   fl__field_is_text(key) ? fl_shown(text, strlen(text), shown) : text,
                   fl_field_allowed(key, allowed));
}

fl_status fl_list_check(const fl_field *field, const fl_job *job)
{
    const fl_list *list = field->list;
    int64_t n = count_of(field, job);
    int n_keys = list->n_keys == 0 ? 1 : list->n_keys;
    int n_required = list->n_keys == 0 ? 1 : list->n_required;
    if (n < 0 || n > list->capacity) {
        return fl_fail(FL_EINVAL, "found %" PRId64 " entries, allowed: at most %d", n,
                       list->capacity);
    }
    for (int64_t i = 0; i < n; i++) {
        const char *item = item_of(field, job, i);
        for (int k = 0; k < n_keys; k++) {
            FL_TRY(fl__list_within(list, i, &list->key[k],
                                   check_value(&list->key[k], k < n_required, item)));
        }
        FL_TRY(fl__list_check_rise(list, i, item - list->item_bytes, item));
    }
    return FL_OK;
}
