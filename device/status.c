#include <frostline/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef fl_fail /* defined as macros for the analyzer alone */
#undef fl_within

enum { MESSAGE_MAX = 4096 };

static _Thread_local char message[MESSAGE_MAX];

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
    memcpy(message, fresh, sizeof message);
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
    memcpy(message, fresh, sizeof message);
    return status;
}
