/* From the text of a field to its value. */
#include "device/text/plain_name.h"
#include "device/text/utf8.h"
#include "launcher/job/field.h"
#include "launcher/job/text/number.h"
#include "launcher/job/text/text.h"

#include <math.h>
#include <string.h>

/* A path may hold any character that a line of YAML can hold, so that the resolved job can store
 * it. */
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

/* "1.5GiB" in the base unit, rounded to a whole number; plain: accept a number without a unit. */
static bool read_with_unit(const char *text, const fl__unit *units, bool plain, int64_t *out)
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

/* A number that training uses in 32 bits must still be allowed after rounding: a divisor that
 * vanishes, or a share that rounds to 1, makes every weight NaN. */
static bool rounds_out(const fl_field *field, double value)
{
    return field->is_float && number_is_in(field, value) &&
           !number_is_in(field, (double)(float)value);
}

/* A decimal number, or a ratio of two, and nothing after it. */
static bool read_whole_number(const char *text, bool may_be_ratio, double *out)
{
    size_t length = 0;
    double divisor = 1;
    if (!fl_read_number(text, out, &length)) {
        return false;
    }
    if (may_be_ratio && text[length] == '/') {
        text += length + 1;
        if (!fl_read_number(text, &divisor, &length) || divisor == 0) {
            return false;
        }
        *out /= divisor;
    }
    return text[length] == '\0';
}

/* "75%", "2 epochs", "40 steps"; a plain number counts epochs. */
static bool read_period(const fl_field *field, const char *text, fl_period *out)
{
    size_t length = 0;
    double value = 0;
    if (fl_read_percent(text, &value)) {
        *out = (fl_period){.share = value, .steps = -1};
        return number_is_in(field, value) && value <= 1;
    }
    if (!fl_read_number(text, &value, &length)) {
        return false;
    }
    const char *unit = text + length + (text[length] == ' ' ? 1 : 0);
    if (strcmp(unit, "steps") == 0 || strcmp(unit, "step") == 0) {
        bool whole = value == rint(value) && fabs(value) < 0x1p53;
        *out = (fl_period){.steps = whole ? (int64_t)value : -1};
        return whole && out->steps >= field->least && out->steps <= field->most;
    }
    *out = (fl_period){.epochs = value, .steps = -1};
    bool is_epochs =
        text[length] == '\0' || strcmp(unit, "epochs") == 0 || strcmp(unit, "epoch") == 0;
    return is_epochs && number_is_in(field, value);
}

/* "10min", "500 steps", "2 epochs" */
static bool read_interval(const fl_field *field, const char *text, fl_interval *out)
{
    char number[24];
    const char *unit = strchr(text, ' ');
    int64_t n = 0;
    *out = (fl_interval){0};
    if (read_with_unit(text, fl__duration_units, false, &out->ms)) {
        return (double)out->ms >= field->low && (double)out->ms <= field->high;
    }
    if (unit == NULL || (size_t)(unit - text) >= sizeof number) {
        return false;
    }
    memcpy(number, text, (size_t)(unit - text));
    number[unit - text] = '\0';
    bool steps = strcmp(unit, " steps") == 0 || strcmp(unit, " step") == 0;
    bool epochs = strcmp(unit, " epochs") == 0 || strcmp(unit, " epoch") == 0;
    if ((!steps && !epochs) || !fl_read_integer(number, &n) || n < field->least ||
        n > field->most) {
        return false;
    }
    *out = (fl_interval){.steps = steps ? n : 0, .epochs = epochs ? n : 0};
    return true;
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

static bool read_text(const fl_field *field, const char *text, size_t length, fl__value *out)
{
    bool good = field->type == FL_FIELD_TEXT ? fl_name_is_plain(text, fl__field_longest_name(field))
                                             : is_path(text, length);
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

bool fl__field_read(const fl_field *field, const char *text, size_t length, fl__value *out)
{
    bool good = false;
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
    case FL_FIELD_LINE:
    case FL_FIELD_FILES: /* files.c reads a mapping */
        return read_text(field, text, length, out);
    case FL_FIELD_NUMBER:
        return read_whole_number(text, field->is_ratio, &out->number) &&
               number_is_in(field, out->number) && !rounds_out(field, out->number);
    case FL_FIELD_SPAN:
        return read_span(field, text, &out->span);
    case FL_FIELD_PERIOD:
        return read_period(field, text, &out->period);
    case FL_FIELD_INTERVAL:
        return read_interval(field, text, &out->interval);
    case FL_FIELD_BOOLEAN:
        return read_bool(text, &out->boolean);
    case FL_FIELD_CHOICE:
        return read_choice(field, text, &out->choice);
    case FL_FIELD_INTEGER:
        good = fl_read_integer(text, &out->integer);
        break;
    case FL_FIELD_SIZE:
        good = read_with_unit(text, fl__size_units, true, &out->integer);
        break;
    case FL_FIELD_DURATION:
        good = read_with_unit(text, fl__duration_units, false, &out->integer);
        break;
    case FL_FIELD_LIST: /* list_read.c */
        break;
    }
    return good && out->integer >= field->least && out->integer <= field->most;
}

bool fl__field_rounds_out(const fl_field *field, const char *text, double *rounded)
{
    double value = 0;
    if (field->type != FL_FIELD_NUMBER || !read_whole_number(text, field->is_ratio, &value)) {
        return false;
    }
    *rounded = (double)(float)value;
    return rounds_out(field, value);
}
