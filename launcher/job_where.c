/* Where each field of the job at hand was written. */
#include "launcher/job.h"

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

fl_status fl_origins_locate(const fl_origins *origins, fl_status status)
{
    const char *message = fl_errmsg();
    char path[FL_TEXT_MAX], where[FL_TEXT_MAX + FL_ORIGIN_TEXT_MAX];
    size_t length = strcspn(message, ":");
    if (status == FL_OK || length >= sizeof path) {
        return status;
    }
    memcpy(path, message, length);
    path[length] = '\0';
    if (fl_schema_find(path) < 0) {
        return status;
    }
    return fl_fail(status, "%s%s", fl_origin_text(origins, path, where, sizeof where), message);
}

fl_status fl_job_locate(fl_status status)
{
    return fl_origins_locate(&kept, status);
}
