/* Where each field of the job at hand was written. */
#include "launcher/job/job.h"

#include <stdio.h>
#include <string.h>

/* Of the file last loaded by this thread; an empty file name: none was. */
static _Thread_local fl_origins kept;

void fl_origins_keep(const fl_origins *origins)
{
    kept = *origins;
}

fl_origins *fl_origins_get(void)
{
    return &kept;
}

const char *fl_origin_text(const fl_origins *origins, const char *path, char *text,
                           size_t size_bytes)
{
    int field = fl_schema_find(path);
    const fl_origin *origin = field < 0 ? NULL : &origins->of[field];
    text[0] = '\0';
    if (origin != NULL && origin->set[0] != '\0') {
        snprintf(text, size_bytes, "--set %s: ", origin->set);
    } else if (origin != NULL && origin->line > 0) {
        snprintf(text, size_bytes, "%s:%d:%d: ", origins->file, origin->line, origin->column);
    } else if (origins->file[0] != '\0') {
        snprintf(text, size_bytes, "%s: ", origins->file);
    }
    return text;
}

const char *fl_job_where(const char *path)
{
    static _Thread_local char text[FL_TEXT_MAX + FL_ORIGIN_TEXT_MAX];
    return fl_origin_text(&kept, path, text, sizeof text);
}

static bool is_written(const fl_origins *origins, int field)
{
    return origins->of[field].line > 0 || origins->of[field].set[0] != '\0';
}

/* The first path in the message, at *at or later, that is a field's; -1 if there is none. */
static int next_field(const char *message, size_t *at)
{
    static const char in_path[] = "abcdefghijklmnopqrstuvwxyz0123456789_.";
    while (message[*at] != '\0') {
        char path[FL_TEXT_MAX];
        size_t length = strspn(message + *at, in_path);
        if (length > 0 && length < sizeof path) {
            memcpy(path, message + *at, length);
            path[length] = '\0';
        }
        int field = length > 0 && length < sizeof path ? fl_schema_find(path) : -1;
        *at += length > 0 ? length : 1;
        if (field >= 0 && strchr(path, '.') != NULL) {
            return field;
        }
    }
    return -1;
}

fl_status fl_origins_locate(const fl_origins *origins, fl_status status)
{
    char where[FL_TEXT_MAX + FL_ORIGIN_TEXT_MAX];
    const char *message = fl_errmsg();
    size_t at = 0;
    if (status == FL_OK) {
        return FL_OK;
    }
    int first = next_field(message, &at), field = first;
    if (first < 0 || strncmp(message, fl_schema_field(first)->path, at) != 0 ||
        message[at] != ':') {
        return status;
    }
    /* What the message compares a default with is what the user wrote. */
    while (field >= 0 && !is_written(origins, field)) {
        field = next_field(message, &at);
    }
    const char *path = fl_schema_field(field < 0 ? first : field)->path;
    return fl_fail(status, "%s%s", fl_origin_text(origins, path, where, sizeof where), message);
}

fl_status fl_job_locate(fl_status status)
{
    return fl_origins_locate(&kept, status);
}
