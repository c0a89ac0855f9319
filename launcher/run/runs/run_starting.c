#include "launcher/run/runs/run_starting.h"

#include "control/events/begun.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"

#include <stdio.h>

void fl_run_starting_read(const char *path, int dir, fl_run_entry *entry)
{
    char file[PATH_MAX + 16];
    int64_t begun_ms = fl_begun_read(dir);
    fl_job *job = NULL;
    if (begun_ms == 0 || fl_alloc(sizeof *job, (void **)&job) != FL_OK) {
        return;
    }
    snprintf(file, sizeof file, "%s/job.yaml", path);
    fl_begun_text(begun_ms, entry->started);
    if (fl_job_load_kept(file, NULL, 0, job) == FL_OK) {
        snprintf(entry->job, sizeof entry->job, "%s", job->name);
    }
    fl_free(job);
}
