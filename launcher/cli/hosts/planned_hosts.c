#include "launcher/cli/hosts/planned_hosts.h"

#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts/hosts.h"

static fl_status make_hosts(const char *path, fl_job *job, fl_planned_hosts *out)
{
    if (path != NULL) {
        FL_TRY(fl_cluster_file_load(path, &out->file));
    } else {
        fl_hosts_of_job(job, &out->file);
    }
    FL_TRY(fl_hosts_place(&out->file, path != NULL ? path : FL_HOSTS_OF_JOB, job, &out->hosts));
    return fl_hosts_take_job(&out->hosts, job);
}

fl_status fl_planned_hosts_make(const char *path, fl_job *job, fl_planned_hosts **out)
{
    void *made = NULL;
    *out = NULL;
    if (path == NULL && job->n_hosts == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof **out, &made));
    fl_status status = fl_job_locate(job, make_hosts(path, job, made));
    if (status != FL_OK) {
        fl_free(made);
        return status;
    }
    *out = made;
    return FL_OK;
}
