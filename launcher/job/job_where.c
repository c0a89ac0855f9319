/* Where the fields of a job were written. */
#include "launcher/job/job.h"

#include "device/errors/failure.h"

#include <stdio.h>
#include <string.h>

const char *fl_job_place(const fl_job *job, const char *path, char text[FL_PLACE_MAX])
{
    const fl_job_origins *origins = &job->origins;
    int field = fl_schema_find(path), line = field < 0 ? 0 : origins->of[field].line;
    text[0] = '\0';
    if (line == FL_ORIGIN_OVERRIDE) {
        char value[FL_FIELD_VALUE_MAX];
        fl_field_format(fl_schema_field(field), job, value);
        snprintf(text, FL_PLACE_MAX, "--set %s=%.*s: ", path, FL_TEXT_MAX, value);
    } else if (line > 0) {
        snprintf(text, FL_PLACE_MAX, "%s:%d:%d: ", origins->file, line, origins->of[field].column);
    } else if (line != FL_ORIGIN_PROGRAM && origins->file[0] != '\0') {
        snprintf(text, FL_PLACE_MAX, "%s: ", origins->file);
    }
    return text;
}

static int origin_of(const fl_job *job, const char *path)
{
    int field = fl_schema_find(path);
    return field < 0 ? FL_ORIGIN_DEFAULT : job->origins.of[field].line;
}

/* The field of the failure that was set last: by --set or a program, which come after the file;
 * else the first in the file. NULL: the failure concerns no field. */
static const char *set_last(const fl_job *job)
{
    const char *in_file = NULL;
    for (int i = 0; fl_failure_field(i) != NULL; i++) {
        const char *field = fl_failure_field(i);
        int line = origin_of(job, field);
        if (line == FL_ORIGIN_OVERRIDE || line == FL_ORIGIN_PROGRAM) {
            return field;
        }
        in_file = in_file == NULL && line != FL_ORIGIN_DEFAULT ? field : in_file;
    }
    return in_file == NULL ? fl_failure_field(0) : in_file;
}

fl_status fl_job_locate(const fl_job *job, fl_status status)
{
    const char *field = set_last(job);
    char place[FL_PLACE_MAX];
    if (status == FL_OK || field == NULL) {
        return status;
    }
    return fl_fail(status, "%s%s", fl_job_place(job, field, place), fl_errmsg());
}

fl_status fl_job_locate_quoted(const fl_job *job, const char *quoted, fl_status status)
{
    char path[FL_TEXT_MAX], place[FL_PLACE_MAX];
    const char *end = strstr(quoted, ": ");
    size_t n = end == NULL ? 0 : (size_t)(end - quoted);
    if (status == FL_OK || n == 0 || n >= sizeof path) {
        return status;
    }
    snprintf(path, sizeof path, "%.*s", (int)n, quoted);
    return fl_schema_find(path) < 0
               ? status
               : fl_fail(status, "%s%s", fl_job_place(job, path, place), fl_errmsg());
}

const char *fl_job_entry_place(const fl_job *job, int64_t entry, char text[FL_PLACE_MAX])
{
    const fl_job_place_at *at = &job->origins.script[entry];
    if (origin_of(job, "elastic.script") <= 0 || at->line == 0) {
        return fl_job_place(job, "elastic.script", text);
    }
    snprintf(text, FL_PLACE_MAX, "%s:%d:%d: ", job->origins.file, at->line, at->column);
    return text;
}

fl_status fl_job_refuse_entry(const fl_job *job, int64_t entry, const char *other)
{
    const fl_job_place_at *at = &job->origins.script[entry];
    bool in_file = origin_of(job, "elastic.script") > 0 && at->line > 0 &&
                   (other == NULL || origin_of(job, other) >= FL_ORIGIN_DEFAULT);
    return in_file
               ? fl_within(FL_EINVAL, "%s:%d:%d: elastic.script", job->origins.file, at->line,
                           at->column)
               : fl_fail_field(FL_EINVAL, FL_FIELDS("elastic.script", other), "%s", fl_errmsg());
}

bool fl_job_host_place(const fl_job *job, int64_t host, int *line, int *column)
{
    const fl_job_origins *origins = &job->origins;
    bool in_file = origins->of[fl_schema_find("hosts")].line > 0 && host < FL_JOB_HOSTS_MAX &&
                   origins->host[host].line > 0;
    *line = in_file ? origins->host[host].line : 0;
    *column = in_file ? origins->host[host].column : 0;
    return in_file;
}

fl_status fl_job_refuse_host(const fl_job *job, int64_t host)
{
    int line, column;
    return fl_job_host_place(job, host, &line, &column)
               ? fl_within(FL_EINVAL, "%s:%d:%d: hosts", job->origins.file, line, column)
               : fl_fail_field(FL_EINVAL, FL_FIELDS("hosts"), "%s", fl_errmsg());
}
