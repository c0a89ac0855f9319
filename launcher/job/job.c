/* A job file: ① bytes -> ② screened -> ③ fields -> ④ overrides -> ⑤ checks between fields. */
#include "launcher/job/job.h"
#include "device/text/shown_text.h"
#include "launcher/job/text/text.h"

#include "device/system/alloc.h"
#include "device/system/files/input_file.h"
#include "device/system/files/regular_file.h"

#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

void fl_job_defaults(fl_job *job)
{
    memset(job, 0, sizeof *job);
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        fl_status status =
            fl_field_parse(field, field->initial, strlen(field->initial), false, job);
        assert(status == FL_OK && "a default that its own field refuses");
        (void)status;
    }
}

/* origin: FL_ORIGIN_OVERRIDE or FL_ORIGIN_PROGRAM. The messages begin with the field. */
static fl_status set_field(fl_job *job, const char *path, const char *text, int origin)
{
    char shown[FL_SHOWN_MAX];
    int index = fl_schema_find(path);
    if (index < 0) {
        fl_shown(path, strlen(path), shown);
        return fl_within(fl_job_unknown_path(path), "%s%s",
                         origin == FL_ORIGIN_OVERRIDE ? "--set " : "", shown);
    }
    fl_status status = fl_field_parse(fl_schema_field(index), text, strlen(text), false, job);
    if (status != FL_OK) {
        return fl_within(status, "%s", path);
    }
    job->origins.of[index].line = origin;
    return FL_OK;
}

fl_status fl_job_set(fl_job *job, const char *path, const char *text)
{
    return set_field(job, path, text, FL_ORIGIN_PROGRAM);
}

/* One "path=value". */
static fl_status override_field(fl_job *job, const char *text)
{
    char path[FL_SHOWN_MAX], shown[FL_SHOWN_MAX];
    const char *sign = strchr(text, '=');
    if (sign == NULL || sign == text || (size_t)(sign - text) >= sizeof path) {
        const char *what = sign == NULL   ? "value"
                           : sign == text ? "path"
                                          : "path that is a field's";
        return fl_fail(FL_EINVAL, "--set %s: found no %s, allowed: PATH=VALUE",
                       fl_shown(text, strlen(text), shown), what);
    }
    memcpy(path, text, (size_t)(sign - text));
    path[sign - text] = '\0';
    fl_status status = set_field(job, path, sign + 1, FL_ORIGIN_OVERRIDE);
    if (status == FL_OK || fl_schema_find(path) < 0) {
        return status;
    }
    fl_shown(sign + 1, strlen(sign + 1), shown);
    shown[strlen(shown) - 1] = '\0'; /* without its quotes */
    return fl_within(status, "--set %s=%s", path, shown + 1);
}

fl_status fl_job_parse(const char *name, const char *text, size_t size_bytes,
                       const char *const *overrides, int n_overrides, fl_job *job)
{
    fl_job fresh;
    fl_job_defaults(&fresh);
    fl_text_shown(name, fresh.origins.file, sizeof fresh.origins.file);
    FL_TRY(fl_job_screen(fresh.origins.file, text, size_bytes)); /* ② */
    FL_TRY(fl_job_read(text, size_bytes, &fresh));               /* ③ */
    for (int i = 0; i < n_overrides; i++) {                      /* ④ */
        FL_TRY(override_field(&fresh, overrides[i]));
    }
    FL_TRY(fl_job_locate(&fresh, fl_job_check(&fresh))); /* ⑤ */
    *job = fresh;
    return FL_OK;
}

/* Whether the override names the part, or a field of it. */
static bool is_of_part(const char *override, const char *part)
{
    size_t n = strlen(part);
    return strncmp(override, part, n) == 0 && (override[n] == '=' || override[n] == '.');
}

fl_status fl_job_parse_part(const char *name, const char *text, size_t size_bytes,
                            const char *const *overrides, int n_overrides, const char *part,
                            fl_job *job)
{
    fl_job fresh = *job;
    fl_text_shown(name, fresh.origins.file, sizeof fresh.origins.file);
    FL_TRY(fl_job_screen(fresh.origins.file, text, size_bytes));
    FL_TRY(fl_job_read_only(text, size_bytes, part, &fresh));
    for (int i = 0; i < n_overrides; i++) {
        if (is_of_part(overrides[i], part)) {
            FL_TRY(override_field(&fresh, overrides[i]));
        }
    }
    FL_TRY(fl_job_locate(&fresh, fl_job_check_parts(&fresh)));
    *job = fresh;
    return FL_OK;
}

/* The first `capacity` bytes of a file that the program has written itself. */
static fl_status load_kept(const char *path, void *text, size_t capacity, size_t *length)
{
    const char *why = NULL;
    int fd = fl_regular_file_open(AT_FDCWD, path, &why);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: cannot be opened: %s", path, why);
    }
    close(fd);
    return fl_input_load(path, text, capacity, length);
}

typedef fl_status load_text(const char *path, void *text, size_t capacity, size_t *length);

static fl_status load_file(const char *path, load_text *load, void **text, size_t *length)
{
    size_t capacity = FL_JOB_FILE_MAX + 1; /* one more detects a longer file */
    FL_TRY(fl_alloc(capacity, text));
    fl_status status = load(path, *text, capacity, length); /* ① */
    if (status != FL_OK) {
        fl_free(*text);
        *text = NULL;
    }
    return status;
}

static fl_status load_job(const char *path, load_text *load, const char *const *overrides,
                          int n_overrides, fl_job *job)
{
    void *text = NULL;
    size_t length = 0;
    FL_TRY(load_file(path, load, &text, &length));
    fl_status status = fl_job_parse(path, text, length, overrides, n_overrides, job);
    fl_free(text);
    return status;
}

fl_status fl_job_load(const char *path, const char *const *overrides, int n_overrides, fl_job *job)
{
    return load_job(path, fl_input_load, overrides, n_overrides, job);
}

fl_status fl_job_load_text(const char *path, void **text, size_t *size_bytes)
{
    return load_file(path, fl_input_load, text, size_bytes);
}

fl_status fl_job_load_kept(const char *path, const char *const *overrides, int n_overrides,
                           fl_job *job)
{
    return load_job(path, load_kept, overrides, n_overrides, job);
}

double fl_job_dropout(const fl_job *job)
{
    return job->model.dropout == FL_DROPOUT_AUTO ? 0.0 : job->model.dropout;
}

int64_t fl_job_n_validation(const fl_job *job, int64_t n_used)
{
    const fl_span *span = &job->data.validation;
    return span->steps >= 0 ? span->steps : llround(span->fraction * (double)n_used);
}
