#include "device/errors/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef fl_fail /* defined as macros for the analyzer alone */
#undef fl_within
#undef fl_fail_field

enum { MESSAGE_MAX = FL_MESSAGE_MAX };

static _Thread_local char message[MESSAGE_MAX];
static _Thread_local const char *fields_at_fault[FL_FAILURE_FIELDS_MAX + 1]; /* ends with NULL */

static void take_message(const char *fresh)
{
    memcpy(message, fresh, strlen(fresh) + 1);
}

static void set_fields(const char *const *fields, int n_max)
{
    int n = 0;
    for (; n < n_max && fields[n] != NULL; n++) {
        fields_at_fault[n] = fields[n];
    }
    fields_at_fault[n] = NULL;
}

const char *fl_status_text(fl_status status)
{
    switch (status) {
#define FL_STATUS_CASE(name, value, text)                                                          \
    case name:                                                                                     \
        return text;
        FL_STATUS_MAP(FL_STATUS_CASE)
#undef FL_STATUS_CASE
    }
    return "unknown status";
}

bool fl_status_is_regroup(fl_status status)
{
    return status == FL_EPEER || status == FL_EDEADLINE || status == FL_ESTALE;
}

const char *fl_errmsg(void)
{
    return message;
}

fl_status fl_fail(fl_status status, const char *format, ...)
{
    /* The arguments may point into the present message, so the new one is written elsewhere first.
     */
    char fresh[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    take_message(fresh);
    set_fields(NULL, 0);
    return status;
}

fl_status fl_fail_field(fl_status status, const char *const *fields, const char *format, ...)
{
    char fresh[MESSAGE_MAX];
    va_list args;
    int n = snprintf(fresh, sizeof fresh, "%s: ", fields[0]);
    va_start(args, format);
    if (n >= 0 && n < MESSAGE_MAX) {
        vsnprintf(fresh + n, sizeof fresh - (size_t)n, format, args);
    }
    va_end(args);
    take_message(fresh);
    set_fields(fields, FL_FAILURE_FIELDS_MAX);
    return status;
}

const char *fl_failure_field(int index)
{
    return index >= 0 && index < FL_FAILURE_FIELDS_MAX ? fields_at_fault[index] : NULL;
}

const char *fl_failure_reason(fl_status status, const char *reported)
{
    return reported[0] != '\0' ? reported : fl_status_text(status);
}

void fl_failure_keep(fl_failure *failure, fl_status status)
{
    *failure = (fl_failure){.status = status};
    if (status != FL_OK) {
        memcpy(failure->fields, fields_at_fault, sizeof failure->fields);
        snprintf(failure->text, sizeof failure->text, "%s", message);
    }
}

fl_status fl_failure_raise(const fl_failure *failure)
{
    if (failure->status == FL_OK) {
        return FL_OK;
    }
    fl_status status = fl_fail(failure->status, "%s", failure->text);
    set_fields(failure->fields, FL_FAILURE_FIELDS_MAX);
    return status;
}

fl_status fl_within(fl_status status, const char *format, ...)
{
    char fresh[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_MAX) {
        snprintf(fresh + n, sizeof fresh - (size_t)n, ": %s", message);
    }
    take_message(fresh);
    return status;
}
