/* One field: reads it into a job and writes it out of one. */
#include "launcher/job/field.h"
#include "launcher/job/files.h"
#include "launcher/job/list.h"
#include "launcher/job/text/number.h"
#include "launcher/job/text/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool fl__field_is_text(const fl_field *field)
{
    return field->type == FL_FIELD_TEXT || field->type == FL_FIELD_PATH ||
           field->type == FL_FIELD_LINE;
}

static void *place(const fl_field *field, fl_job *job)
{
    return (char *)job + field->offset;
}

static const void *place_const(const fl_field *field, const fl_job *job)
{
    return (const char *)job + field->offset;
}

/* Bytes that a field of this type has in fl_job. */
static size_t value_size(const fl_field *field)
{
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
    case FL_FIELD_LINE:
        return FL_TEXT_MAX;
    case FL_FIELD_FILES:
        return sizeof(fl__files);
    case FL_FIELD_SPAN:
        return sizeof(fl_span);
    case FL_FIELD_PERIOD:
        return sizeof(fl_period);
    case FL_FIELD_INTERVAL:
        return sizeof(fl_interval);
    case FL_FIELD_BOOLEAN:
        return sizeof(bool);
    case FL_FIELD_CHOICE:
        return sizeof(fl_schedule);
    case FL_FIELD_LIST:
        return fl_list_size(field);
    default:
        return sizeof(int64_t);
    }
}

static const char *choice_at(const void *context, int i)
{
    const fl_field *field = context;
    return field->n_offered > 0 && i >= field->n_offered ? NULL : field->choices[i];
}

enum { ROUNDED_MAX = 64 };

/* " (0 as a 32-bit number)" where that is the reason to refuse `text`; or "". */
static const char *rounded_text(const fl_field *field, const char *text, char out[ROUNDED_MAX])
{
    double rounded = 0;
    char number[32];
    out[0] = '\0';
    if (fl__field_rounds_out(field, text, &rounded)) {
        fl_write_number(rounded, number, sizeof number);
        snprintf(out, ROUNDED_MAX, " (%s as a 32-bit number)", number);
    }
    return out;
}

/* What other systems call a choice: by letters, gpu would be nearest to cpu. */
static const char *name_meant(const fl_field *field, const char *text)
{
    bool means_cuda = strcasecmp(text, "gpu") == 0 || strcasecmp(text, "nvidia") == 0;
    for (int i = 0; means_cuda && field->choices[i] != NULL; i++) {
        if (strcmp(field->choices[i], "cuda") == 0) {
            return field->choices[i];
        }
    }
    return fl_nearest(text, choice_at, field);
}

static fl_status refuse_value(const fl_field *field, const char *text, size_t length, bool as_text)
{
    char shown[FL_SHOWN_MAX], allowed[FL_FIELD_ALLOWED_MAX], rounded[ROUNDED_MAX] = "";
    bool whole = memchr(text, '\0', length) == NULL && text[length] == '\0';
    fl_shown(text, length, shown);
    fl_field_allowed(field, allowed);
    if (as_text) {
        return fl_fail(FL_EINVAL, "found the text %s, allowed: %s, without quotes", shown, allowed);
    }
    const char *near = NULL;
    bool has_choice = field->type == FL_FIELD_CHOICE && field->choices[1] != NULL;
    if (has_choice && whole) {
        near = name_meant(field, text);
    }
    return fl_fail(FL_EINVAL, "found %s%s, allowed: %s%s%s", shown,
                   whole ? rounded_text(field, text, rounded) : "", allowed,
                   near == NULL ? "" : "; nearest is ", near == NULL ? "" : near);
}

/* "10.0.0.1:22"; an IPv6 address has more colons. */
static bool ends_with_port(const char *text)
{
    const char *colon = strchr(text, ':');
    return colon != NULL && colon[1] != '\0' &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

static fl_status check_address(const fl_field *field, const char *text)
{
    fl_status status = fl_address_check(text, field->address);
    bool user = strchr(text, '@') != NULL, port = ends_with_port(text);
    if (status == FL_OK || (!user && !port)) {
        return status;
    }
    return fl_fail(status,
                   "%s; ssh takes its %s%s%s from its own configuration, as ~/.ssh/config "
                   "(Host%s%s)",
                   fl_errmsg(), user ? "user" : "", user && port ? " and " : "", port ? "port" : "",
                   user ? ", User" : "", port ? ", Port" : "");
}

fl_status fl__field_take(const fl_field *field, const char *text, size_t length, bool quoted,
                         fl__value *out)
{
    char copy[FL_TEXT_MAX];
    if (length >= sizeof copy || memchr(text, '\0', length) != NULL) {
        return refuse_value(field, text, length, false);
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (field->word != NULL && strcmp(copy, field->word) == 0) {
        memset(out, 0, sizeof *out);
        if (field->type == FL_FIELD_NUMBER) {
            out->number = field->word_number;
        }
        return FL_OK;
    }
    if (field->off != NULL && strcmp(copy, field->off) == 0) {
        memset(out, 0, sizeof *out);
        out->interval.ms = -1;
        return FL_OK;
    }
    if (field->address != FL_ADDRESS_NONE && length <= fl__field_longest_name(field)) {
        FL_TRY(check_address(field, copy));
    }
    if (field->type == FL_FIELD_PATH || field->type == FL_FIELD_FILES) {
        FL_TRY(fl_path_check_home(copy));
    }
    bool good = fl__field_read(field, copy, length, out);
    bool needs_plain = field->type == FL_FIELD_INTEGER || field->type == FL_FIELD_NUMBER ||
                       field->type == FL_FIELD_BOOLEAN;
    if (!good || (quoted && needs_plain)) {
        return refuse_value(field, copy, length, good);
    }
    return FL_OK;
}

static bool is_word(const fl_field *field, const char *text, size_t length)
{
    return field->word != NULL && strlen(field->word) == length &&
           memcmp(text, field->word, length) == 0;
}

fl_status fl_field_parse(const fl_field *field, const char *text, size_t length, bool quoted,
                         fl_job *job)
{
    if (field->type == FL_FIELD_FILES && !quoted && length > 0 && text[0] == '{') {
        return fl_files_parse(field, text, length, job);
    }
    if (field->type == FL_FIELD_LIST) {
        if (!is_word(field, text, length)) {
            return quoted ? refuse_value(field, text, length, false)
                          : fl_list_parse(field, text, length, job);
        }
        memset(place(field, job), 0, fl_list_size(field));
        return FL_OK;
    }
    fl__value out = {0};
    FL_TRY(fl__field_take(field, text, length, quoted, &out));
    memcpy(place(field, job), &out, value_size(field));
    return FL_OK;
}

const char *fl_field_format(const fl_field *field, const fl_job *job, char text[FL_FIELD_VALUE_MAX])
{
    fl__value v = {0};
    if (field->type == FL_FIELD_LIST) {
        return fl_list_format(field, job, text);
    }
    memcpy(&v, place_const(field, job), value_size(field));
    if (fl__field_is_text(field) || field->type == FL_FIELD_FILES) {
        v.text[FL_TEXT_MAX - 1] = '\0'; /* a program may have left no zero */
        v.files.test[FL_TEXT_MAX - 1] = '\0';
    }
    fl__field_write(field, &v, text);
    return text;
}

static bool is_valid(const fl_field *field, const fl__value *v)
{
    char text[FL_FIELD_VALUE_MAX];
    fl__value unused;
    if (field->type == FL_FIELD_CHOICE) {
        for (int i = 0; field->choices[i] != NULL; i++) {
            if (i == v->choice) {
                return true;
            }
        }
        return false;
    }
    if (field->type == FL_FIELD_FILES) {
        return fl__files_are_valid(field, &v->files);
    }
    if (fl__field_is_text(field)) {
        size_t length = strnlen(v->text, FL_TEXT_MAX);
        return length < FL_TEXT_MAX && ((field->word != NULL && length == 0) ||
                                        fl__field_read(field, v->text, length, &unused));
    }
    fl__field_write(field, v, text);
    if (field->off != NULL && strcmp(text, field->off) == 0) {
        return v->interval.ms == -1;
    }
    return (field->word != NULL && strcmp(text, field->word) == 0) ||
           fl__field_read(field, text, strlen(text), &unused);
}

fl_status fl_field_check(const fl_field *field, const fl_job *job)
{
    char text[FL_FIELD_VALUE_MAX], allowed[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    char rounded[ROUNDED_MAX] = "";
    const char *found = text;
    fl__value v = {0};
    if (field->type == FL_FIELD_LIST) {
        return fl_list_check(field, job);
    }
    memcpy(&v, place_const(field, job), value_size(field));
    if (is_valid(field, &v)) {
        return FL_OK;
    }
    if (field->type == FL_FIELD_CHOICE) {
        snprintf(text, sizeof text, "%d", v.choice);
    } else if (fl__field_is_text(field) || field->type == FL_FIELD_FILES) {
        found = fl_shown(v.text, strnlen(v.text, FL_TEXT_MAX), shown);
    } else {
        fl__field_write(field, &v, text);
        rounded_text(field, text, rounded);
    }
    return fl_fail(FL_EINVAL, "found %s%s, allowed: %s", found, rounded,
                   fl_field_allowed(field, allowed));
}
