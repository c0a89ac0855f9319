/* A small, strict check of a value against a JSON Schema: the keywords that
 * docs/control/schema.json uses, and a failure for any other, so that none is there in vain. */
#ifndef FL_TESTS_SUPPORT_FORMATS_JSON_SCHEMA_H
#define FL_TESTS_SUPPORT_FORMATS_JSON_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

/* Whether `value` is what the schema's definition `name` says; if not, `why` [256] has the first
 * thing that is wrong. */
bool json_schema_holds(const json_t *schema, const char *name, const json_t *value, char *why);

#endif
