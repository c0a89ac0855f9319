#include "launcher/run/runs/run_starting.h"

#include "device/system/alloc.h"
#include "launcher/job/job.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static void put_time(const struct stat *info, fl_run_entry *entry)
{
    char day[24];
    struct tm utc;
    gmtime_r(&info->st_mtim.tv_sec, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(entry->started, sizeof entry->started, "%s.%03ldZ", day,
             info->st_mtim.tv_nsec / 1000000);
}

void fl_run_starting_read(const char *path, fl_run_entry *entry)
{
    char file[PATH_MAX + 16];
    struct stat info;
    fl_job *job = NULL;
    snprintf(file, sizeof file, "%s/job.yaml", path);
    if (stat(file, &info) != 0 || fl_alloc(sizeof *job, (void **)&job) != FL_OK) {
        return;
    }
    put_time(&info, entry);
    if (fl_job_load_kept(file, NULL, 0, job) == FL_OK) {
        snprintf(entry->job, sizeof entry->job, "%s", job->name);
    }
    fl_free(job);
}
