/* Writes JSON: one growing line, numbers exact, text always valid UTF-8. */
#ifndef FL_CONTROL_EVENTS_JSON_H
#define FL_CONTROL_EVENTS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed one is empty. A key of NULL adds an element to an array. When memory runs out, the line
 * is marked broken and stays as it is. */
typedef struct fl_json {
    char *text;
    size_t n, capacity;
    bool comma; /* a value precedes the next one at this depth */
    bool broken;
} fl_json;

void fl_json_reset(fl_json *json);
void fl_json_fini(fl_json *json);

void fl_json_object(fl_json *json, const char *key);
void fl_json_array(fl_json *json, const char *key);
void fl_json_close(fl_json *json, char bracket); /* '}' or ']' */

void fl_json_text(fl_json *json, const char *key, const char *text);
void fl_json_integer(fl_json *json, const char *key, int64_t value);
void fl_json_null(fl_json *json, const char *key);
void fl_json_bool(fl_json *json, const char *key, bool value);

/* Add one or more fields that were written elsewhere. */
void fl_json_fields(fl_json *json, const fl_json *fields);

/* A finite value's shortest decimal that reads back as the same double, in any locale; returns text
 * [FL_JSON_DECIMAL_MAX]. */
enum { FL_JSON_DECIMAL_MAX = 40 };
const char *fl_json_decimal(double value, char *text);

/* Add the shortest decimal that reads back as the same double, in any locale; null for NaN and
 * infinities, which JSON cannot express. */
void fl_json_real(fl_json *json, const char *key, double value);

/* The same with at most `digits` after the point: for times, which need not be exact. */
void fl_json_rounded(fl_json *json, const char *key, double value, int digits);

/* End the line; json->text [json->n] is then complete. */
void fl_json_newline(fl_json *json);

#endif
