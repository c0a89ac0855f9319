#include "control/events/json.h"

#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double EXACT_BELOW = 1e15; /* 15 digits identify a double */

void fl_json_reset(fl_json *json)
{
    json->n = 0;
    json->comma = false;
    json->broken = false;
}

void fl_json_fini(fl_json *json)
{
    fl_free(json->text);
    *json = (fl_json){0};
}

static void add_bytes(fl_json *json, const char *bytes, size_t n)
{
    if (json->broken) {
        return;
    }
    void *text = json->text;
    if (fl_alloc_room(&text, json->n, n, 1, &json->capacity) != FL_OK) {
        json->broken = true;
        return;
    }
    json->text = (char *)text;
    memcpy(json->text + json->n, bytes, n);
    json->n += n;
}

static void add_character(fl_json *json, const char **at)
{
    unsigned char c = (unsigned char)**at;
    char escape[8];
    uint32_t code;
    size_t n = fl_utf8_next(*at, strnlen(*at, 4), &code);
    if (n == 0) {
        add_bytes(json, "\\ufffd", 6);
        n = 1;
    } else if (c == '"' || c == '\\') {
        escape[0] = '\\';
        escape[1] = (char)c;
        add_bytes(json, escape, 2);
    } else if (c < 0x20 || c == 0x7f) {
        snprintf(escape, sizeof escape, "\\u%04x", c);
        add_bytes(json, escape, 6);
    } else {
        add_bytes(json, *at, n);
    }
    *at += n;
}

/* How many characters from here need no escape. */
static size_t plain_length(const char *text)
{
    size_t n = 0;
    while (text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\') {
        n++;
    }
    return n;
}

static void add_quoted(fl_json *json, const char *text)
{
    add_bytes(json, "\"", 1);
    while (*text != 0) {
        size_t n = plain_length(text);
        add_bytes(json, text, n);
        text += n;
        if (*text != 0) {
            add_character(json, &text);
        }
    }
    add_bytes(json, "\"", 1);
}

/* Put the comma and the key that precede a value. */
static void begin_value(fl_json *json, const char *key)
{
    if (json->comma) {
        add_bytes(json, ", ", 2);
    }
    json->comma = true;
    if (key != NULL) {
        add_quoted(json, key);
        add_bytes(json, ": ", 2);
    }
}

void fl_json_object(fl_json *json, const char *key)
{
    begin_value(json, key);
    add_bytes(json, "{", 1);
    json->comma = false;
}

void fl_json_array(fl_json *json, const char *key)
{
    begin_value(json, key);
    add_bytes(json, "[", 1);
    json->comma = false;
}

void fl_json_close(fl_json *json, char bracket)
{
    add_bytes(json, &bracket, 1);
    json->comma = true;
}

void fl_json_text(fl_json *json, const char *key, const char *text)
{
    begin_value(json, key);
    add_quoted(json, text);
}

void fl_json_integer(fl_json *json, const char *key, int64_t value)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value);
    begin_value(json, key);
    add_bytes(json, digits, (size_t)n);
}

void fl_json_fields(fl_json *json, const fl_json *fields)
{
    begin_value(json, NULL);
    add_bytes(json, fields->text, fields->n);
    json->broken = json->broken || fields->broken;
}

void fl_json_null(fl_json *json, const char *key)
{
    begin_value(json, key);
    add_bytes(json, "null", 4);
}

void fl_json_bool(fl_json *json, const char *key, bool value)
{
    begin_value(json, key);
    add_bytes(json, value ? "true" : "false", value ? 4 : 5);
}

const char *fl_json_decimal(double value, char *text)
{
    /* Use fewer digits than 15 if they read back exactly: %g drops zeros. */
    for (int precision = DBL_DIG; precision <= 17; precision++) {
        snprintf(text, FL_JSON_DECIMAL_MAX, "%.*g", precision, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    /* The host program may have set a locale with another decimal point. */
    for (char *c = text; *c != 0; c++) {
        if (strchr("0123456789+-e", *c) == NULL) {
            *c = '.';
        }
    }
    return text;
}

void fl_json_real(fl_json *json, const char *key, double value)
{
    char digits[FL_JSON_DECIMAL_MAX];
    const char *text = isfinite(value) ? fl_json_decimal(value, digits) : "null";
    begin_value(json, key);
    add_bytes(json, text, strlen(text));
}

void fl_json_rounded(fl_json *json, const char *key, double value, int digits)
{
    int64_t scale = 1;
    for (int i = 0; i < digits; i++) {
        scale *= 10;
    }
    double scaled = round(value * (double)scale);
    if (!(fabs(scaled) < EXACT_BELOW)) {
        fl_json_real(json, key, isfinite(value) ? scaled / (double)scale : value);
        return;
    }
    char text[FL_JSON_DECIMAL_MAX];
    int64_t units = (int64_t)fabs(scaled);
    int n = snprintf(text, sizeof text, "%s%lld.%0*lld", scaled < 0 ? "-" : "",
                     (long long)(units / scale), digits, (long long)(units % scale));
    while (text[n - 1] == '0') {
        n--;
    }
    n -= text[n - 1] == '.';
    begin_value(json, key);
    add_bytes(json, text, (size_t)n);
}

void fl_json_newline(fl_json *json)
{
    add_bytes(json, "\n", 1);
}
