/* From a field's value to its text, and the description of its allowed values. */
#include "device/text/plain_name.h"
#include "launcher/job/field.h"
#include "launcher/job/list.h"
#include "launcher/job/text/number.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

const fl__unit fl__size_units[] = {
    {"B", 1},
    {"KiB", 1024},
    {"MiB", 1024.0 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {NULL, 0},
};
const fl__unit fl__duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {NULL, 0},
};

/* Write value in the largest unit that leaves no fraction. */
static void write_with_unit(int64_t value, const fl__unit *units, int n_units, char *text,
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
    write_with_unit(value, fl__size_units, 5, text, size_bytes);
}

static void write_duration(int64_t value, char *text, size_t size_bytes)
{
    write_with_unit(value, fl__duration_units, 2, text,
                    size_bytes); /* "90s" and "60s" look alike */
}

/* A path that YAML could read as another type is written in single quotes. */
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

static void write_files(const fl_field *field, const fl__files *files,
                        char text[FL_FIELD_VALUE_MAX])
{
    char train[FL_FIELD_VALUE_MAX], test[FL_FIELD_VALUE_MAX];
    write_path(field, files->train, train);
    if (files->test[0] == '\0') {
        memcpy(text, train, strlen(train) + 1);
        return;
    }
    write_path(field, files->test, test);
    snprintf(text, FL_FIELD_VALUE_MAX, "{train: %s, test: %s}", train, test);
}

static void write_span(const fl_span *span, char text[FL_FIELD_VALUE_MAX])
{
    if (span->steps >= 0) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%" PRId64, span->steps);
        return;
    }
    fl_write_percent(span->fraction, text, FL_FIELD_VALUE_MAX);
}

static void write_period(const fl_period *period, char text[FL_FIELD_VALUE_MAX])
{
    char number[32];
    if (period->steps >= 0) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%" PRId64 " step%s", period->steps,
                 period->steps == 1 ? "" : "s");
        return;
    }
    if (period->share > 0) {
        fl_write_percent(period->share, text, FL_FIELD_VALUE_MAX);
        return;
    }
    snprintf(text, FL_FIELD_VALUE_MAX, "%s epoch%s",
             fl_write_number(period->epochs, number, sizeof number),
             period->epochs == 1 ? "" : "s");
}

static void write_interval(const fl_field *field, const fl_interval *interval,
                           char text[FL_FIELD_VALUE_MAX])
{
    bool steps = interval->steps != 0;
    int64_t n = steps ? interval->steps : interval->epochs;
    if (field->off != NULL && interval->ms < 0) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", field->off);
        return;
    }
    if (interval->ms != 0) {
        write_with_unit(interval->ms, fl__duration_units, 4, text, FL_FIELD_VALUE_MAX);
        return;
    }
    snprintf(text, FL_FIELD_VALUE_MAX, "%" PRId64 " %s%s", n, steps ? "step" : "epoch",
             n == 1 ? "" : "s");
}

/* A number whose decimal fraction is long may be a simple ratio. */
static void write_ratio(double value, char text[FL_FIELD_VALUE_MAX])
{
    enum { LONG = 8, DIVISOR_MAX = 12 };
    fl_write_number(value, text, FL_FIELD_VALUE_MAX);
    for (int divisor = 3; strlen(text) > LONG && divisor <= DIVISOR_MAX; divisor++) {
        double dividend = rint(value * divisor);
        if (dividend > 0 && dividend / divisor == value) {
            snprintf(text, FL_FIELD_VALUE_MAX, "%.0f/%d", dividend, divisor);
        }
    }
}

/* The value that stands for the field's word. */
static bool is_of_word(const fl_field *field, const fl__value *v)
{
    switch (field->type) {
    case FL_FIELD_NUMBER:
        return v->number == field->word_number;
    case FL_FIELD_SPAN:
        return v->span.fraction == 0 && v->span.steps == 0;
    case FL_FIELD_PERIOD:
        return v->period.epochs == 0 && v->period.share == 0 && v->period.steps == 0;
    case FL_FIELD_INTERVAL:
        return v->interval.ms == 0 && v->interval.steps == 0 && v->interval.epochs == 0;
    default:
        return v->integer == 0;
    }
}

void fl__field_write(const fl_field *field, const fl__value *v, char text[FL_FIELD_VALUE_MAX])
{
    if (field->word != NULL && !fl__field_is_text(field) && is_of_word(field, v)) {
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", field->word);
        return;
    }
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
    case FL_FIELD_LINE:
        write_path(field, v->text, text);
        break;
    case FL_FIELD_FILES:
        write_files(field, &v->files, text);
        break;
    case FL_FIELD_INTEGER:
        snprintf(text, FL_FIELD_VALUE_MAX, "%" PRId64, v->integer);
        break;
    case FL_FIELD_NUMBER:
        if (field->is_ratio) {
            write_ratio(v->number, text);
        } else {
            fl_write_number(v->number, text, FL_FIELD_VALUE_MAX);
        }
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
    case FL_FIELD_PERIOD:
        write_period(&v->period, text);
        break;
    case FL_FIELD_INTERVAL:
        write_interval(field, &v->interval, text);
        break;
    case FL_FIELD_BOOLEAN:
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", v->boolean ? "true" : "false");
        break;
    case FL_FIELD_CHOICE:
        snprintf(text, FL_FIELD_VALUE_MAX, "%s", field->choices[v->choice]);
        break;
    case FL_FIELD_LIST: /* list.c */
        break;
    }
}

static int allowed_choices(const fl_field *field, char *text, size_t size_bytes)
{
    int used = 0;
    int n = field->n_offered;
    while (field->n_offered == 0 && field->choices[n] != NULL) {
        n++;
    }
    for (int i = 0; i < n && used < (int)size_bytes; i++) {
        const char *before = i == 0 ? "" : i + 1 == n ? " or " : ", ";
        used += snprintf(text + used, size_bytes - (size_t)used, "%s%s", before, field->choices[i]);
    }
    return used;
}

/* "above 0 and up to 100" */
static void allowed_range(const fl_field *field, char *text, size_t size_bytes)
{
    static const char *const to[2][2] = {{"to", "to less than"}, {"and up to", "and less than"}};
    char low[32], high[32];
    fl_write_number(field->low, low, sizeof low);
    fl_write_number(field->high, high, sizeof high);
    snprintf(text, size_bytes, "%s %s %s %s", field->above_low ? "above" : "from", low,
             to[field->above_low][field->below_high], high);
}

static void allowed_period(const fl_field *field, char *text, size_t size_bytes)
{
    char range[80];
    allowed_range(field, range, sizeof range);
    snprintf(text, size_bytes,
             "a share of the run up to 100%%, epochs %s or steps from %" PRId64 " to %" PRId64
             ", such as 75%%, 2 epochs or 40 steps",
             range, field->least, field->most);
}

static void allowed_interval(const fl_field *field, char *text, size_t size_bytes)
{
    char least[32], most[32];
    write_with_unit((int64_t)field->low, fl__duration_units, 4, least, sizeof least);
    write_with_unit((int64_t)field->high, fl__duration_units, 4, most, sizeof most);
    snprintf(text, size_bytes,
             "a duration from %s to %s, or %" PRId64 " to %" PRId64
             " steps or epochs, such as 10min, 500 steps or 2 epochs",
             least, most, field->least, field->most);
}

static void allowed_list(const fl_list *list, char *text, size_t size_bytes)
{
    char items[FL_FIELD_ALLOWED_MAX], length[32];
    if (list->least == 0) {
        snprintf(length, sizeof length, "at most %d", list->capacity);
    } else {
        snprintf(length, sizeof length, "%d to %d", list->least, list->capacity);
    }
    if (list->n_keys == 0) {
        snprintf(text, size_bytes, "a list of %s, each %s", length,
                 fl_field_allowed(list->key, items));
        return;
    }
    snprintf(text, size_bytes, "a list of %s mappings with %s%s%s", length,
             fl_list_keys(list, items), list->rises ? "; rising " : "",
             list->rises ? list->key[0].path : "");
}

const char *fl_field_allowed(const fl_field *field, char text[FL_FIELD_ALLOWED_MAX])
{
    size_t used = 0;
    if (field->word != NULL) {
        used =
            (size_t)snprintf(text, FL_FIELD_ALLOWED_MAX, "%s%s%s, or ", field->word,
                             field->off == NULL ? "" : ", ", field->off == NULL ? "" : field->off);
    }
    char *rest = text + used;
    size_t left = FL_FIELD_ALLOWED_MAX - used;
    char least[32], most[32], range[80];
    switch (field->type) {
    case FL_FIELD_TEXT:
        snprintf(rest, left, "1 to %zu " FL_PLAIN_NAME_RULE, fl__field_longest_name(field));
        if (field->address != FL_ADDRESS_NONE) {
            snprintf(rest, left, "%s, at most %zu characters", field->unit,
                     fl__field_longest_name(field));
        }
        break;
    case FL_FIELD_PATH:
        snprintf(rest, left, "a path of 1 to %d bytes", FL_TEXT_MAX - 1);
        break;
    case FL_FIELD_FILES:
        snprintf(rest, left, "a path of 1 to %d bytes, or {train: PATH, test: PATH}",
                 FL_TEXT_MAX - 1);
        break;
    case FL_FIELD_LINE:
        snprintf(rest, left, "a text of 1 to %d bytes in one line", FL_TEXT_MAX - 1);
        break;
    case FL_FIELD_INTEGER:
        snprintf(rest, left, "an integer from %" PRId64 " to %" PRId64 "%s%s%s", field->least,
                 field->most, field->unit == NULL ? "" : " (",
                 field->unit == NULL ? "" : field->unit, field->unit == NULL ? "" : ")");
        break;
    case FL_FIELD_NUMBER:
        allowed_range(field, range, sizeof range);
        snprintf(rest, left, "a number %s%s", range, field->is_ratio ? ", also as 1/3" : "");
        break;
    case FL_FIELD_SIZE:
        write_size(field->least, least, sizeof least);
        write_size(field->most, most, sizeof most);
        snprintf(rest, left, "a size from %s to %s, in bytes or with KiB, MiB, GiB or TiB", least,
                 most);
        break;
    case FL_FIELD_DURATION:
        write_with_unit(field->least, fl__duration_units, 4, least, sizeof least);
        write_with_unit(field->most, fl__duration_units, 4, most, sizeof most);
        snprintf(rest, left, "a duration from %s to %s, with ms, s, min or h", least, most);
        break;
    case FL_FIELD_SPAN:
        if (field->unit == NULL) {
            snprintf(rest, left, "a share of the run from 0%% to 100%%, or a number of steps");
        } else {
            snprintf(rest, left, "a share such as 10%%, or a number of %s from %" PRId64,
                     field->unit, field->least);
        }
        break;
    case FL_FIELD_PERIOD:
        allowed_period(field, rest, left);
        break;
    case FL_FIELD_INTERVAL:
        allowed_interval(field, rest, left);
        break;
    case FL_FIELD_BOOLEAN:
        snprintf(rest, left, "true or false");
        break;
    case FL_FIELD_CHOICE:
        allowed_choices(field, rest, left);
        break;
    case FL_FIELD_LIST:
        allowed_list(field->list, rest, left);
        break;
    }
    return text;
}
