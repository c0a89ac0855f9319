#include "launcher/run/runs/run_checkpoints.h"

#include "control/checkpoint/commit.h"
#include "device/system/alloc.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds since "2026-01-31T09:30:00.000Z"; NAN: no such text. */
static double age_of(const char *written)
{
    struct tm utc = {0};
    struct timespec now;
    int ms = 0;
    char end = 0;
    int n = sscanf(written, "%4d-%2d-%2dT%2d:%2d:%2d.%3d%c", &utc.tm_year, &utc.tm_mon,
                   &utc.tm_mday, &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &ms, &end);
    if (n != 8 || end != 'Z' || clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return (double)NAN;
    }
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    return (double)(now.tv_sec - timegm(&utc)) + (double)now.tv_nsec * 1e-9 - ms * 1e-3;
}

/* The newest comes first. */
static void add_checkpoint(fl_run_checkpoints *out, const fl_checkpoint *c, const char *folder)
{
    if (out->n++ == 0) {
        out->step = c->step;
        out->age_s = age_of(c->written);
        snprintf(out->path, sizeof out->path, "%s", folder);
        snprintf(out->written, sizeof out->written, "%s", c->written);
    }
}

static fl_status look_at(const char *run, const fl_checkpoint_folder *all, int n,
                         fl_run_checkpoints *out)
{
    char folder[PATH_MAX];
    fl_checkpoint *c = NULL;
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    for (int i = 0; i < n; i++) {
        if (!all[i].whole || snprintf(folder, sizeof folder, "%s/" FL_CHECKPOINT_FOLDER "/%s", run,
                                      all[i].name) >= PATH_MAX) {
            continue;
        }
        if (fl_checkpoint_read(folder, c) == FL_OK) {
            add_checkpoint(out, c, folder);
        }
        fl_checkpoint_fini(c);
    }
    fl_free(c);
    return FL_OK;
}

static int64_t best_of(const char *checkpoints)
{
    int dir_fd = open(checkpoints, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int64_t step = dir_fd < 0 ? -1 : fl_checkpoint_best(dir_fd);
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    return step;
}

fl_status fl_run_checkpoints_look(const char *run, fl_run_checkpoints *out)
{
    char checkpoints[PATH_MAX];
    fl_checkpoint_folder *all = NULL;
    int n = 0;
    *out = (fl_run_checkpoints){.step = -1, .best_step = -1, .age_s = (double)NAN};
    if (snprintf(checkpoints, sizeof checkpoints, "%s/" FL_CHECKPOINT_FOLDER, run) >= PATH_MAX) {
        return FL_OK;
    }
    FL_TRY(fl_checkpoint_list(checkpoints, &all, &n));
    out->best_step = best_of(checkpoints);
    fl_status status = n == 0 ? FL_OK : look_at(run, all, n, out);
    fl_free(all);
    return status;
}
