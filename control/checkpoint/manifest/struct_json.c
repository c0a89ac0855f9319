#include "control/checkpoint/manifest/struct_json.h"

#include "device/system/alloc.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WHERE_MAX = 4096 + 256, FOUND_MAX = 80, HASH_DIGITS = 16 };

static int64_t integer_of(const fl_member *m, const void *at)
{
    int number = 0;
    uint32_t generation = 0;
    int64_t wide = 0;
    switch (m->type) {
    case FL_MEMBER_INT:
        memcpy(&number, at, sizeof number);
        return number;
    case FL_MEMBER_UINT32:
        memcpy(&generation, at, sizeof generation);
        return generation;
    default:
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
}

static int64_t n_items(const fl_member *m, const void *base)
{
    return m->count == NULL ? (int64_t)m->capacity : m->count(base);
}

/* ---- writing ---- */

static json_t *write_real(const void *at)
{
    double value;
    memcpy(&value, at, sizeof value);
    if (isnan(value)) {
        return json_string("nan");
    }
    return isinf(value) ? json_string(value > 0 ? "inf" : "-inf") : json_real(value);
}

static json_t *write_hash(const void *at)
{
    uint64_t hash;
    char text[HASH_DIGITS + 1];
    memcpy(&hash, at, sizeof hash);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_string(text);
}

static json_t *write_value(const fl_member *m, const void *base);

static json_t *write_array(const fl_member *m, const void *base)
{
    json_t *array = json_array();
    const char *at = (const char *)base + m->offset;
    for (int64_t i = 0; array != NULL && i < n_items(m, base); i++) {
        const char *item = at + (size_t)i * m->item_bytes;
        if (json_array_append_new(array, write_value(m->of, item)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *write_value(const fl_member *m, const void *base)
{
    const char *at = (const char *)base + m->offset;
    const char *string;
    bool truth;
    switch (m->type) {
    case FL_MEMBER_INT:
    case FL_MEMBER_UINT32:
    case FL_MEMBER_INT64:
        return json_integer(integer_of(m, at));
    case FL_MEMBER_HASH:
        return write_hash(at);
    case FL_MEMBER_REAL:
        return write_real(at);
    case FL_MEMBER_BOOL:
        memcpy(&truth, at, sizeof truth);
        return json_boolean(truth);
    case FL_MEMBER_TEXT:
        return json_string(at);
    case FL_MEMBER_STRING:
        memcpy(&string, at, sizeof string);
        return json_string(string == NULL ? "" : string);
    case FL_MEMBER_OBJECT:
        return fl_struct_json_write(m->of, at);
    case FL_MEMBER_ARRAY:
        return write_array(m, base);
    }
    return NULL;
}

json_t *fl_struct_json_write(const fl_member *members, const void *from)
{
    json_t *object = json_object();
    for (const fl_member *m = members; object != NULL && m->name != NULL; m++) {
        if (json_object_set_new(object, m->name, write_value(m, from)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* ---- reading ---- */

/* The value as a message shows it. */
static const char *shown(const json_t *value, char text[FOUND_MAX])
{
    if (value == NULL) {
        return "nothing";
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        snprintf(text, FOUND_MAX, "\"%.60s\"", json_string_value(value));
        return text;
    case JSON_INTEGER:
        snprintf(text, FOUND_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return text;
    case JSON_REAL:
        snprintf(text, FOUND_MAX, "%.17g", json_real_value(value));
        return text;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

static fl_status refuse_value(const char *where, const json_t *value, const char *allowed)
{
    char found[FOUND_MAX];
    return fl_fail(FL_EFORMAT, "%s: found %s, allowed: %s", where, shown(value, found), allowed);
}

/* A type's own range bounds a member that has no narrower one. */
static fl_status read_integer(const json_t *value, const fl_member *m, const char *where, void *at)
{
    char allowed[80];
    bool free = m->least == 0 && m->most == 0;
    int64_t least = !free                        ? m->least
                    : m->type == FL_MEMBER_INT   ? INT_MIN
                    : m->type == FL_MEMBER_INT64 ? INT64_MIN
                                                 : 0;
    int64_t most = !free                        ? m->most
                   : m->type == FL_MEMBER_INT   ? INT_MAX
                   : m->type == FL_MEMBER_INT64 ? INT64_MAX
                                                : UINT32_MAX;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most) {
        snprintf(allowed, sizeof allowed, "an integer from %" PRId64 " to %" PRId64, least, most);
        return refuse_value(where, value, allowed);
    }
    int64_t wide = json_integer_value(value);
    int number = (int)wide;
    uint32_t generation = (uint32_t)wide;
    if (m->type == FL_MEMBER_INT) {
        memcpy(at, &number, sizeof number);
    } else if (m->type == FL_MEMBER_UINT32) {
        memcpy(at, &generation, sizeof generation);
    } else {
        memcpy(at, &wide, sizeof wide);
    }
    return FL_OK;
}

static fl_status read_real(const json_t *value, const char *where, void *at)
{
    static const char *const names[] = {"nan", "inf", "-inf"};
    const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    const char *text = json_string_value(value);
    for (int i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            memcpy(at, &values[i], sizeof values[i]);
            return FL_OK;
        }
    }
    if (!json_is_real(value)) {
        return refuse_value(where, value, "a number with a point, \"nan\", \"inf\" or \"-inf\"");
    }
    double real = json_real_value(value);
    memcpy(at, &real, sizeof real);
    return FL_OK;
}

static fl_status read_hash(const json_t *value, const char *where, void *at)
{
    static const char digits[] = "0123456789abcdef";
    const char *text = json_string_value(value);
    uint64_t hash = 0;
    if (text == NULL || strlen(text) != HASH_DIGITS || strspn(text, digits) != HASH_DIGITS) {
        return refuse_value(where, value, "16 hexadecimal digits");
    }
    for (; *text != '\0'; text++) {
        hash = hash * 16 + (uint64_t)(strchr(digits, *text) - digits);
    }
    memcpy(at, &hash, sizeof hash);
    return FL_OK;
}

static fl_status read_bool(const json_t *value, const char *where, void *at)
{
    bool truth = json_is_true(value);
    if (!json_is_boolean(value)) {
        return refuse_value(where, value, "true or false");
    }
    memcpy(at, &truth, sizeof truth);
    return FL_OK;
}

static fl_status read_text(const json_t *value, const fl_member *m, const char *where, char *at)
{
    char allowed[48], *string = NULL;
    size_t n = json_string_length(value);
    bool owned = m->type == FL_MEMBER_STRING;
    if (!json_is_string(value) || strlen(json_string_value(value)) != n ||
        (!owned && n >= m->capacity)) {
        snprintf(allowed, sizeof allowed, owned ? "a text" : "a text of at most %zu bytes",
                 m->capacity - 1);
        return refuse_value(where, value, allowed);
    }
    if (!owned) {
        memcpy(at, json_string_value(value), n + 1);
        return FL_OK;
    }
    FL_TRY(fl_strdup(json_string_value(value), &string));
    memcpy(at, &string, sizeof string);
    return FL_OK;
}

static fl_status read_value(const json_t *value, const fl_member *m, const char *where, void *base);

static fl_status read_array(const json_t *value, const fl_member *m, const char *where, void *base)
{
    char allowed[64], item[WHERE_MAX];
    char *at = (char *)base + m->offset;
    int64_t n = n_items(m, base);
    if (n < 0 || n > (int64_t)m->capacity) {
        return fl_fail(FL_EFORMAT, "%s: would have %" PRId64 " items, allowed: 0 to %zu", where, n,
                       m->capacity);
    }
    if (!json_is_array(value) || (int64_t)json_array_size(value) != n) {
        snprintf(allowed, sizeof allowed, "an array of %" PRId64 " items", n);
        return refuse_value(where, value, allowed);
    }
    for (int64_t i = 0; i < n; i++) {
        snprintf(item, sizeof item, "%.4200s[%" PRId64 "]", where, i);
        FL_TRY(read_value(json_array_get(value, (size_t)i), m->of, item,
                          at + (size_t)i * m->item_bytes));
    }
    return FL_OK;
}

static fl_status read_value(const json_t *value, const fl_member *m, const char *where, void *base)
{
    char *at = (char *)base + m->offset;
    switch (m->type) {
    case FL_MEMBER_INT:
    case FL_MEMBER_UINT32:
    case FL_MEMBER_INT64:
        return read_integer(value, m, where, at);
    case FL_MEMBER_HASH:
        return read_hash(value, where, at);
    case FL_MEMBER_REAL:
        return read_real(value, where, at);
    case FL_MEMBER_BOOL:
        return read_bool(value, where, at);
    case FL_MEMBER_TEXT:
    case FL_MEMBER_STRING:
        return read_text(value, m, where, at);
    case FL_MEMBER_OBJECT:
        return fl_struct_json_read(value, m->of, where, at);
    case FL_MEMBER_ARRAY:
        return read_array(value, m, where, base);
    }
    return FL_OK;
}

static bool is_member(const fl_member *members, const char *name)
{
    for (const fl_member *m = members; m->name != NULL; m++) {
        if (strcmp(m->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static fl_status check_known(const json_t *object, const fl_member *members, const char *where)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!is_member(members, name)) {
            return fl_fail(FL_EFORMAT, "%sthe member \"%.60s\" is unknown", where, name);
        }
    }
    return FL_OK;
}

fl_status fl_struct_json_read(const json_t *object, const fl_member *members, const char *where,
                              void *to)
{
    char inner[WHERE_MAX];
    if (!json_is_object(object)) {
        return refuse_value(where, object, "an object");
    }
    FL_TRY(check_known(object, members, where));
    for (const fl_member *m = members; m->name != NULL; m++) {
        size_t n = strlen(where);
        bool begins = n == 0 || where[n - 1] == ' ';
        snprintf(inner, sizeof inner, "%.4200s%s%s", where, begins ? "" : ".", m->name);
        FL_TRY(read_value(json_object_get(object, m->name), m, inner, to));
    }
    return FL_OK;
}

void fl_struct_json_free_strings(const fl_member *members, void *of)
{
    for (const fl_member *m = members; m->name != NULL; m++) {
        char *at = (char *)of + m->offset, *string = NULL;
        if (m->type == FL_MEMBER_OBJECT) {
            fl_struct_json_free_strings(m->of, at);
        } else if (m->type == FL_MEMBER_STRING) {
            memcpy(&string, at, sizeof string);
            fl_free(string);
            string = NULL;
            memcpy(at, &string, sizeof string);
        }
    }
}
