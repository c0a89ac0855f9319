/* One field: what may stand in it, from text to value, from value to text. */
#include "launcher/number.h"
#include "launcher/schema.h"
#include "launcher/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { NAME_LONGEST = 64 };

/* Units in rising order; the first is what the value counts. */
typedef struct unit {
    const char *name;
    double scale;
} unit;

static const unit size_units[] = {
    {"B", 1},
    {"KiB", 1024},
    {"MiB", 1024.0 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {NULL, 0},
};
static const unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {NULL, 0},
};

static void *place(const fl_field *field, fl_job *job)
{
    return (char *)job + field->offset;
}

static const void *place_const(const fl_field *field, const fl_job *job)
{
    return (const char *)job + field->offset;
}

/* value in the largest of the units that leaves no fraction. */
static void write_with_unit(int64_t value, const unit *units, int n_units, char *text,
                            size_t size_bytes)
{
    int best = 0;
    for (int i = 1; i < n_units && value != 0; i++) {
        if (value % (int64_t)units[i].scale == 0) {
            best = i;
        }
    }
    snprintf(text, size_bytes, "%" PRId64 "%s", value / (int64_t)units[best].scale,
             units[best].name);
}

static void write_size(int64_t value, char *text, size_t size_bytes)
{
    write_with_unit(value, size_units, 5, text, size_bytes);
}

static void write_duration(int64_t value, char *text, size_t size_bytes)
{
    write_with_unit(value, duration_units, 2, text, size_bytes); /* "90s" and "60s" look alike */
}

/* ---- what is allowed ---- */

static int allowed_choices(const fl_field *field, char *text, size_t size_bytes)
{
    int used = 0;
    for (int i = 0; field->choices[i] != NULL && used < (int)size_bytes; i++) {
        const char *before = i == 0 ? "" : field->choices[i + 1] == NULL ? " or " : ", ";
        used += snprintf(text + used, size_bytes - (size_t)used, "%s%s", before, field->choices[i]);
    }
    return used;
}

static void allowed_number(const fl_field *field, char *text, size_t size_bytes)
{
    char low[32], high[32];
    fl_write_number(field->low, low, sizeof low);
    fl_write_number(field->high, high, sizeof high);
    snprintf(text, size_bytes, "a number %s %s %s %s", field->above_low ? "above" : "from", low,
             field->below_high  ? "to less than"
             : field->above_low ? "and up to"
                                : "to",
             high);
}

const char *fl_field_allowed(const fl_field *field, char text[FL_FIELD_ALLOWED_MAX])
{
    size_t used = 0;
    if (field->word != NULL) {
        used = (size_t)snprintf(text, FL_FIELD_ALLOWED_MAX, "%s, or ", field->word);
    }
    char *rest = text + used;
    size_t left = FL_FIELD_ALLOWED_MAX - used;
    char least[32], most[32];
    switch (field->type) {
    case FL_FIELD_TEXT:
        snprintf(rest, left, "1 to %d letters, digits, '_', '-' and '.', the first not '-' or '.'",
                 NAME_LONGEST);
        break;
    case FL_FIELD_PATH:
        snprintf(rest, left, "a path of 1 to %d bytes", FL_TEXT_MAX - 1);
        break;
    case FL_FIELD_INTEGER:
        snprintf(rest, left, "an integer from %" PRId64 " to %" PRId64 "%s%s%s", field->least,
                 field->most, field->unit == NULL ? "" : " (",
                 field->unit == NULL ? "" : field->unit, field->unit == NULL ? "" : ")");
        break;
    case FL_FIELD_NUMBER:
        allowed_number(field, rest, left);
        break;
    case FL_FIELD_SIZE:
        write_size(field->least, least, sizeof least);
        write_size(field->most, most, sizeof most);
        snprintf(rest, left, "a size from %s to %s, in bytes or with KiB, MiB, GiB or TiB", least,
                 most);
        break;
    case FL_FIELD_DURATION:
        write_with_unit(field->least, duration_units, 4, least, sizeof least);
        write_with_unit(field->most, duration_units, 4, most, sizeof most);
        snprintf(rest, left, "a duration from %s to %s, with ms, s, min or h", least, most);
        break;
    case FL_FIELD_SPAN:
        snprintf(rest, left, "a share of the run from 0%% to 100%%, or a number of steps");
        break;
    case FL_FIELD_BOOLEAN:
        snprintf(rest, left, "true or false");
        break;
    case FL_FIELD_CHOICE:
        allowed_choices(field, rest, left);
        break;
    }
    return text;
}

/* ---- from text ---- */

static bool is_name(const char *text)
{
    size_t length = strlen(text);
    return length >= 1 && length <= NAME_LONGEST && text[0] != '-' && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
               length;
}

/* A path may hold any character that a line of YAML can, so that the resolved job can hold it. */
static bool is_path(const char *text, size_t length)
{
    if (length == 0 || length >= FL_TEXT_MAX) {
        return false;
    }
    for (size_t i = 0, size; i < length; i += size) {
        uint32_t code = 0;
        size = fl_utf8_next(text + i, length - i, &code);
        bool breaks_line = code < 0x20 || code == 0x85 || code == 0x2028 || code == 0x2029;
        if (size == 0 || breaks_line || !fl_char_is_printable(code)) {
            return false;
        }
    }
    return true;
}

/* "1.5GiB" in the first unit, rounded to a whole one; plain: a number without a unit counts it. */
static bool read_with_unit(const char *text, const unit *units, bool plain, int64_t *out)
{
    double value = 0;
    size_t length = 0;
    if (!fl_read_number(text, &value, &length)) {
        return false;
    }
    const char *name = text + length + (text[length] == ' ' ? 1 : 0);
    double scale = plain && text[length] == '\0' ? 1 : 0;
    for (int i = 0; units[i].name != NULL; i++) {
        scale = strcmp(name, units[i].name) == 0 ? units[i].scale : scale;
    }
    double whole = rint(value * scale);
    if (scale == 0 || !(fabs(whole) < 0x1p62)) {
        return false;
    }
    *out = (int64_t)whole;
    return true;
}

static bool read_span(const fl_field *field, const char *text, fl_span *out)
{
    if (fl_read_integer(text, &out->steps)) {
        out->fraction = 0;
        return out->steps >= field->least && out->steps <= field->most;
    }
    out->steps = -1;
    return fl_read_percent(text, &out->fraction) && out->fraction >= 0 && out->fraction <= 1;
}

static bool number_is_in(const fl_field *field, double value)
{
    return (field->above_low ? value > field->low : value >= field->low) &&
           (field->below_high ? value < field->high : value <= field->high);
}

/* A decimal number and nothing after it. */
static bool read_whole_number(const char *text, double *out)
{
    size_t length = 0;
    return fl_read_number(text, out, &length) && text[length] == '\0';
}

static bool read_choice(const fl_field *field, const char *text, int *out)
{
    for (int i = 0; field->choices[i] != NULL; i++) {
        if (strcmp(text, field->choices[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* What a value may be before it is stored. */
typedef union value {
    int64_t integer;
    double number;
    fl_span span;
    bool boolean;
    int choice;
    char text[FL_TEXT_MAX];
} value;

static bool read_text(const fl_field *field, const char *text, size_t length, value *out)
{
    bool good = field->type == FL_FIELD_TEXT ? is_name(text) : is_path(text, length);
    if (good) {
        memset(out->text, 0, sizeof out->text);
        memcpy(out->text, text, length);
    }
    return good;
}

static bool read_bool(const char *text, bool *out)
{
    *out = strcmp(text, "true") == 0;
    return *out || strcmp(text, "false") == 0;
}

/* Fill *out from text (ended by a zero, of this length); false if the field does not allow it. */
static bool read_value(const fl_field *field, const char *text, size_t length, value *out)
{
    bool good = false;
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
        return read_text(field, text, length, out);
    case FL_FIELD_NUMBER:
        return read_whole_number(text, &out->number) && number_is_in(field, out->number);
    case FL_FIELD_SPAN:
        return read_span(field, text, &out->span);
    case FL_FIELD_BOOLEAN:
        return read_bool(text, &out->boolean);
    case FL_FIELD_CHOICE:
        return read_choice(field, text, &out->choice);
    case FL_FIELD_INTEGER:
        good = fl_read_integer(text, &out->integer);
        break;
    case FL_FIELD_SIZE:
        good = read_with_unit(text, size_units, true, &out->integer);
        break;
    case FL_FIELD_DURATION:
        good = read_with_unit(text, duration_units, false, &out->integer);
        break;
    }
    return good && out->integer >= field->least && out->integer <= field->most;
}

/* Bytes that a field of this type has in fl_job. */
static size_t value_size(const fl_field *field)
{
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
        return FL_TEXT_MAX;
    case FL_FIELD_SPAN:
        return sizeof(fl_span);
    case FL_FIELD_BOOLEAN:
        return sizeof(bool);
    case FL_FIELD_CHOICE:
        return sizeof(fl_schedule);
    default:
        return sizeof(int64_t);
    }
}

static const char *choice_at(const void *context, int i)
{
    return ((const fl_field *)context)->choices[i];
}

static fl_status refuse(const fl_field *field, const char *text, size_t length, bool as_text)
{
    char shown[FL_SHOWN_MAX], allowed[FL_FIELD_ALLOWED_MAX];
    fl_shown(text, length, shown);
    fl_field_allowed(field, allowed);
    if (as_text) {
        return fl_fail(FL_EINVAL, "found the text %s, allowed: %s, without quotes", shown, allowed);
    }
    const char *near = NULL;
    bool has_choice = field->type == FL_FIELD_CHOICE && field->choices[1] != NULL;
    if (has_choice && memchr(text, '\0', length) == NULL && text[length] == '\0') {
        near = fl_nearest(text, choice_at, field);
    }
    return fl_fail(FL_EINVAL, "found %s, allowed: %s%s%s", shown, allowed,
                   near == NULL ? "" : "; nearest is ", near == NULL ? "" : near);
}

fl_status fl_field_parse(const fl_field *field, const char *text, size_t length, bool quoted,
                         fl_job *job)
{
    char copy[FL_TEXT_MAX];
    if (length >= sizeof copy || memchr(text, '\0', length) != NULL) {
        return refuse(field, text, length, false);
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (field->word != NULL && strcmp(copy, field->word) == 0) {
        memset(place(field, job), 0, value_size(field));
        return FL_OK;
    }
    value out = {0};
    bool good = read_value(field, copy, length, &out);
    bool needs_plain = field->type == FL_FIELD_INTEGER || field->type == FL_FIELD_NUMBER ||
                       field->type == FL_FIELD_BOOLEAN;
    if (!good || (quoted && needs_plain)) {
        return refuse(field, copy, length, good);
    }
    memcpy(place(field, job), &out, value_size(field));
    return FL_OK;
}

/* ---- to text ---- */

/* A path that YAML could take for something else stands in single quotes. */
static void write_path(const fl_field *field, const char *path, char text[FL_FIELD_VALUE_MAX])
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    if (path[0] == '\0' && field->word != NULL) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", field->word);
        return;
    }
    if (path[0] != '\0' && path[0] != '-' && path[strspn(path, plain)] == '\0' &&
        strcasecmp(path, "null") != 0) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", path);
        return;
    }
    size_t used = 0;
    text[used++] = '\'';
    for (const char *c = path; *c != '\0'; c++) {
        text[used++] = *c;
        if (*c == '\'') {
            text[used++] = '\'';
        }
    }
    text[used++] = '\'';
    text[used] = '\0';
}

static void write_span(const fl_span *span, char text[FL_FIELD_VALUE_MAX])
{
    if (span->steps >= 0) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%" PRId64, span->steps);
        return;
    }
    fl_write_percent(span->fraction, text, FL_FIELD_VALUE_MAX);
}

static void write_value(const fl_field *field, const value *v, char text[FL_FIELD_VALUE_MAX])
{
    bool is_text = field->type == FL_FIELD_TEXT || field->type == FL_FIELD_PATH;
    if (field->word != NULL && !is_text && v->integer == 0) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", field->word);
        return;
    }
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
        write_path(field, v->text, text);
        break;
    case FL_FIELD_INTEGER:
        snprintf(text, FL_FIELD_VALUE_MAX, "%" PRId64, v->integer);
        break;
    case FL_FIELD_NUMBER:
        fl_write_number(v->number, text, FL_FIELD_VALUE_MAX);
        break;
    case FL_FIELD_SIZE:
        write_size(v->integer, text, FL_FIELD_VALUE_MAX);
        break;
    case FL_FIELD_DURATION:
        write_duration(v->integer, text, FL_FIELD_VALUE_MAX);
        break;
    case FL_FIELD_SPAN:
        write_span(&v->span, text);
        break;
    case FL_FIELD_BOOLEAN:
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", v->boolean ? "true" : "false");
        break;
    case FL_FIELD_CHOICE:
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", field->choices[v->choice]);
        break;
    }
}

const char *fl_field_format(const fl_field *field, const fl_job *job, char text[FL_FIELD_VALUE_MAX])
{
    value v = {0};
    memcpy(&v, place_const(field, job), value_size(field));
    write_value(field, &v, text);
    return text;
}

static bool is_valid(const fl_field *field, const value *v)
{
    char text[FL_FIELD_VALUE_MAX];
    value unused;
    if (field->type == FL_FIELD_CHOICE) {
        for (int i = 0; field->choices[i] != NULL; i++) {
            if (i == v->choice) {
                return true;
            }
        }
        return false;
    }
    if (field->type == FL_FIELD_TEXT || field->type == FL_FIELD_PATH) {
        size_t length = strnlen(v->text, FL_TEXT_MAX);
        return length < FL_TEXT_MAX &&
               ((field->word != NULL && length == 0) || read_text(field, v->text, length, &unused));
    }
    write_value(field, v, text);
    return (field->word != NULL && strcmp(text, field->word) == 0) ||
           read_value(field, text, strlen(text), &unused);
}

fl_status fl_field_check(const fl_field *field, const fl_job *job)
{
    char text[FL_FIELD_VALUE_MAX], allowed[FL_FIELD_ALLOWED_MAX];
    value v = {0};
    memcpy(&v, place_const(field, job), value_size(field));
    if (is_valid(field, &v)) {
        return FL_OK;
    }
    if (field->type == FL_FIELD_CHOICE) {
        snprintf(text, sizeof text, "%d", v.choice);
    } else {
        write_value(field, &v, text);
    }
    return fl_fail(FL_EINVAL, "found %s, allowed: %s", text, fl_field_allowed(field, allowed));
}
