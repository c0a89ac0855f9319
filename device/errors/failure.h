/* Failures that are about fields of the job, and failures that are kept for later.
 *
 * A folder below launcher/ knows a field by its path and no files. It records the field beside the
 * message; launcher/ puts the place where the field was written before it (fl_job_locate). */
#ifndef FL_DEVICE_ERRORS_FAILURE_H
#define FL_DEVICE_ERRORS_FAILURE_H

#include <frostline/status.h>

enum {
    FL_MESSAGE_MAX = 16 * 1024, /* bytes of a message; a list of tensors may be as long */
    FL_FAILURE_FIELDS_MAX = 4,
    FL_FAILURE_TEXT_MAX = 1024
};

/* Paths of fields ("pipe.k"), all constants: the one at fault, then those that it was compared
 * with. */
#define FL_FIELDS(...) ((const char *const[]){__VA_ARGS__, (const char *)0})

/* As fl_fail, with the path of the first field and ": " before the message. */
fl_status fl_fail_field(fl_status status, const char *const *fields, const char *format, ...)
    FL_PRINTF(3, 4) FL_MUST_CHECK;

#ifdef __clang_analyzer__ /* cannot see from outside that it gives back its first argument */
#define fl_fail_field(status, ...) ((void)(fl_fail_field)(status, __VA_ARGS__), (status))
#endif

/* The fields of this thread's last failure: the index-th, NULL after the last one. fl_within keeps
 * them, fl_fail drops them. */
const char *fl_failure_field(int index);

/* The message of a failure that another process has reported; its kind, if there is no message. */
const char *fl_failure_reason(fl_status status, const char *reported);

/* A failure of this thread that must outlive another one. */
typedef struct fl_failure {
    fl_status status;
    const char *fields[FL_FAILURE_FIELDS_MAX];
    char text[FL_FAILURE_TEXT_MAX];
} fl_failure;

/* status: what the failed call returned; FL_OK keeps nothing, and raising it gives FL_OK. */
void fl_failure_keep(fl_failure *failure, fl_status status);
fl_status fl_failure_raise(const fl_failure *failure) FL_MUST_CHECK;

#endif
