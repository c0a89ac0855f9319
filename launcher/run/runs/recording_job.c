#include "launcher/run/runs/recording_job.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Fields that may differ: where files are, who may watch the run, and what decided in the recorded
 * run. */
bool fl_recording_may_differ(const char *path)
{
    static const char *const prefixes[] = {
        "name",       "run.",         "control.",     "trace.",     "fault.",
        "freeze.",    "elastic.",     "pipe.profile", "pipe.tune",  "train.hash_weights",
        "data.path",  "cache.memory", "cache.disk",   "cache.path", "cache.stores",
        "checkpoint."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (strncmp(path, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static fl_status compare_jobs(const char *run_dir, const fl_job *here, const fl_job *there)
{
    static char a[FL_FIELD_VALUE_MAX], b[FL_FIELD_VALUE_MAX];
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        if (fl_recording_may_differ(field->path)) {
            continue;
        }
        fl_field_format(field, here, a);
        fl_field_format(field, there, b);
        if (strcmp(a, b) != 0) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS(field->path),
                                 "found %s; %s ran with %s, and a replay needs the same job", a,
                                 run_dir, b);
        }
    }
    return FL_OK;
}

fl_status fl_recording_check_job_file(const char *run_dir)
{
    char path[PATH_MAX];
    struct stat what;
    snprintf(path, sizeof path, "%s/job.yaml", run_dir);
    return stat(path, &what) != 0 || S_ISREG(what.st_mode)
               ? FL_OK
               : fl_fail(FL_EINVAL, "--replay: %s is not a regular file", path);
}

fl_status fl_recording_check_job(const char *run_dir, const fl_job *job)
{
    char path[PATH_MAX];
    fl_job *there = NULL;
    snprintf(path, sizeof path, "%s/job.yaml", run_dir);
    FL_TRY(fl_recording_check_job_file(run_dir));
    FL_TRY(fl_alloc(sizeof *there, (void **)&there));
    fl_status status = fl_job_load_kept(path, NULL, 0, there);
    if (status == FL_OK) {
        status = compare_jobs(run_dir, job, there);
    }
    fl_free(there);
    return status;
}
