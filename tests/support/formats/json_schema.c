#include "support/formats/json_schema.h"

#include <stdio.h>
#include <string.h>

enum { WHY_MAX = 256, PATH_LENGTH = 128 };

typedef struct place {
    const json_t *root;
    char path[PATH_LENGTH]; /* of the value */
    char *why;
} place;

static bool check(const place *at, const json_t *schema, const json_t *value);

static bool wrong(const place *at, const char *what, const char *more)
{
    snprintf(at->why, WHY_MAX, "%s: %s %s", at->path, what, more);
    return false;
}

static bool is_of(const json_t *value, const char *type)
{
    return (strcmp(type, "object") == 0 && json_is_object(value)) ||
           (strcmp(type, "array") == 0 && json_is_array(value)) ||
           (strcmp(type, "string") == 0 && json_is_string(value)) ||
           (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
           (strcmp(type, "number") == 0 && json_is_number(value)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
           (strcmp(type, "null") == 0 && json_is_null(value));
}

static bool check_type(const place *at, const json_t *types, const json_t *value)
{
    bool holds = json_is_string(types) && is_of(value, json_string_value(types));
    for (size_t i = 0; i < json_array_size(types); i++) {
        holds = holds || is_of(value, json_string_value(json_array_get(types, i)));
    }
    return holds || wrong(at, "another type than is allowed", "");
}

static bool check_enum(const place *at, const json_t *values, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        if (json_equal(json_array_get(values, i), value)) {
            return true;
        }
    }
    return wrong(at, "not one of the enum:", json_is_string(value) ? json_string_value(value) : "");
}

static bool check_members(const place *at, const json_t *schema, const json_t *value)
{
    const json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *member;
    if (!json_is_object(value)) {
        return true;
    }
    json_object_foreach((json_t *)value, key, member)
    {
        const json_t *of = json_object_get(properties, key);
        place inner = *at;
        snprintf(inner.path, sizeof inner.path, "%.90s.%.30s", at->path, key);
        if (of == NULL && json_is_false(json_object_get(schema, "additionalProperties"))) {
            return wrong(&inner, "not in the schema", "");
        }
        if (of != NULL && !check(&inner, of, member)) {
            return false;
        }
    }
    return true;
}

static bool check_required(const place *at, const json_t *names, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (json_object_get(value, name) == NULL) {
            return wrong(at, "missing:", name);
        }
    }
    return true;
}

static bool check_items(const place *at, const json_t *of, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        place inner = *at;
        snprintf(inner.path, sizeof inner.path, "%.100s[%zu]", at->path, i);
        if (!check(&inner, of, json_array_get(value, i))) {
            return false;
        }
    }
    return true;
}

static bool check_one_of(const place *at, const json_t *choices, const json_t *value)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(choices); i++) {
        n += check(at, json_array_get(choices, i), value);
    }
    return n == 1 || wrong(at, n == 0 ? "none of" : "more than one of", "oneOf");
}

static bool check_ref(const place *at, const char *ref, const json_t *value)
{
    static const char prefix[] = "#/$defs/";
    size_t n = sizeof prefix - 1;
    const json_t *schema = strncmp(ref, prefix, n) == 0
                               ? json_object_get(json_object_get(at->root, "$defs"), ref + n)
                               : NULL;
    return schema != NULL ? check(at, schema, value) : wrong(at, "no such definition:", ref);
}

static bool check_length(const place *at, const json_t *limit, const json_t *value, bool least)
{
    json_int_t n = (json_int_t)json_string_length(value), most = json_integer_value(limit);
    return !json_is_string(value) || (least ? n >= most : n <= most) ||
           wrong(at, "a string of another length than is allowed", "");
}

static bool check_bound(const place *at, const json_t *limit, const json_t *value, bool least)
{
    double x = json_number_value(value), bound = json_number_value(limit);
    return !json_is_number(value) || (least ? x >= bound : x <= bound) ||
           wrong(at, "out of range", "");
}

static bool check_keyword(const place *at, const json_t *schema, const char *keyword,
                          const json_t *rule, const json_t *value)
{
    static const char *const silent[] = {"description", "title", "additionalProperties"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(keyword, silent[i]) == 0) {
            return true;
        }
    }
    if (strcmp(keyword, "type") == 0) {
        return check_type(at, rule, value);
    } else if (strcmp(keyword, "enum") == 0) {
        return check_enum(at, rule, value);
    } else if (strcmp(keyword, "const") == 0) {
        return json_equal(rule, value) || wrong(at, "not the const", "");
    } else if (strcmp(keyword, "properties") == 0) {
        return check_members(at, schema, value);
    } else if (strcmp(keyword, "required") == 0) {
        return check_required(at, rule, value);
    } else if (strcmp(keyword, "items") == 0) {
        return check_items(at, rule, value);
    } else if (strcmp(keyword, "oneOf") == 0) {
        return check_one_of(at, rule, value);
    } else if (strcmp(keyword, "not") == 0) {
        return !check(at, rule, value) || wrong(at, "what must not be", "");
    } else if (strcmp(keyword, "$ref") == 0) {
        return check_ref(at, json_string_value(rule), value);
    } else if (strcmp(keyword, "minLength") == 0 || strcmp(keyword, "maxLength") == 0) {
        return check_length(at, rule, value, keyword[1] == 'i');
    } else if (strcmp(keyword, "minimum") == 0 || strcmp(keyword, "maximum") == 0) {
        return check_bound(at, rule, value, keyword[1] == 'i');
    }
    return wrong(at, "a keyword that this check does not know:", keyword);
}

static bool check(const place *at, const json_t *schema, const json_t *value)
{
    const char *keyword;
    json_t *rule;
    json_object_foreach((json_t *)schema, keyword, rule)
    {
        if (!check_keyword(at, schema, keyword, rule, value)) {
            return false;
        }
    }
    return true;
}

bool json_schema_holds(const json_t *schema, const char *name, const json_t *value, char *why)
{
    place at = {.root = schema, .path = "", .why = why};
    char ref[PATH_LENGTH];
    snprintf(ref, sizeof ref, "#/$defs/%s", name);
    why[0] = 0;
    return check_ref(&at, ref, value);
}
