/* Write JSON: one growing line, numbers exact, text always valid UTF-8. */
#ifndef FL_CONTROL_EVENTS_JSON_H
#define FL_CONTROL_EVENTS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is empty. A key of NULL stands for an element of an array. When memory runs out the line
 * is marked broken and nothing more is added to it. */
typedef struct fl_json {
    char *text;
    size_t n, capacity;
    bool comma; /* something stands before the next value at this depth */
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

/* Fields that were written elsewhere, one or more. */
void fl_json_fields(fl_json *json, const fl_json *fields);

/* A finite value's shortest decimal that reads back as the same double, whatever the locale;
 * returns text [FL_JSON_DECIMAL_MAX]. */
enum { FL_JSON_DECIMAL_MAX = 40 };
const char *fl_json_decimal(double value, char *text);

/* The shortest decimal that reads back as the same double, whatever the locale; null for NaN and
 * infinities, which JSON has not. */
void fl_json_real(fl_json *json, const char *key, double value);

/* The same with at most `digits` after the point: for times, which nobody needs exact. */
void fl_json_rounded(fl_json *json, const char *key, double value, int digits);

/* End the line; json->text [json->n] is then complete. */
void fl_json_newline(fl_json *json);

#endif
