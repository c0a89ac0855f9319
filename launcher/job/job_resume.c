/* Compares the job of an interrupted run with the one that it shall continue with. */
#include "launcher/job/job.h"

#include "device/system/alloc.h"

#include <stdio.h>
#include <string.h>

/* The values of one field in both jobs. Each is long enough for the longest script. */
typedef struct two_values {
    char before[FL_FIELD_VALUE_MAX], now[FL_FIELD_VALUE_MAX];
} two_values;

static bool differs(const fl_field *field, const fl_job *before, const fl_job *now,
                    two_values *values)
{
    fl_field_format(field, before, values->before);
    fl_field_format(field, now, values->now);
    return strcmp(values->before, values->now) != 0;
}

static size_t add_change(char *text, size_t n, size_t size_bytes, const fl_field *field,
                         const two_values *values)
{
    enum { SHOWN = 120 };
    if (n < size_bytes) {
        n += (size_t)snprintf(text + n, size_bytes - n, "\n  %s: found %.*s, the run has %.*s",
                              field->path, SHOWN, values->now, SHOWN, values->before);
    }
    return n;
}

fl_status fl_job_check_resume(const fl_job *before, const fl_job *now, const char *name)
{
    char changes[3072] = "";
    two_values *values = NULL;
    size_t n = 0;
    FL_TRY(fl_alloc(sizeof *values, (void **)&values));
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        if (!fl_field_may_change(field) && differs(field, before, now, values)) {
            n = add_change(changes, n, sizeof changes, field, values);
        }
    }
    fl_free(values);
    return n == 0 ? FL_OK
                  : fl_fail(FL_EINVAL,
                            "--resume: %s: fields that a run keeps are different:%s\n"
                            "a new run may start from the weights of this one (model.init)",
                            name, changes);
}

fl_status fl_job_list_changes(const fl_job *before, const fl_job *now,
                              const char *changed[FL_SCHEMA_MAX], int *n)
{
    two_values *values = NULL;
    *n = 0;
    FL_TRY(fl_alloc(sizeof *values, (void **)&values));
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        if (differs(field, before, now, values)) {
            changed[(*n)++] = field->path;
        }
    }
    fl_free(values);
    return FL_OK;
}
