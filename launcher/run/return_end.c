#include "launcher/run/return_end.h"

#include "control/checkpoint/save_kept.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/shell_text.h"
#include "launcher/run/model/model_config.h"
#include "launcher/run/plan/host_options.h"
#include "launcher/run/runs/checkpoint_folder.h"
#include "launcher/run/runs/run_again.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the snapshot ---- */

static fl_status open_store(const fl_preparation *p, const char *dir, int dir_fd,
                            fl_checkpoint_store *store, int *owner_fd)
{
    char path[PATH_MAX];
    bool there = snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_FOLDER, dir) < PATH_MAX &&
                 access(path, F_OK) == 0;
    return fl_checkpoint_folder_open(p->job, dir, dir_fd, there ? path : NULL, store, owner_fd);
}

static fl_status save_in(fl_run_losses *l, const fl_preparation *p, const char *dir, int dir_fd)
{
    fl_checkpoint_store store = {0};
    char *config = NULL;
    int owner_fd = -1;
    fl_status status = open_store(p, dir, dir_fd, &store, &owner_fd);
    if (status == FL_OK) {
        status = fl_model_config_text(p->model, p->dataset, p->job, &config);
    }
    if (status == FL_OK) {
        store.config = config;
        status = fl_kept_snapshot_save(&l->kept, &store, dir_fd, p->job->checkpoint.keep);
    }
    fl_checkpoint_folder_close(dir_fd, &store, owner_fd);
    fl_free(config);
    return status;
}

/* why_not [size_bytes] out: "" if it was written, or there is none. */
static void save_snapshot(fl_run_losses *l, const fl_preparation *p, const char *dir,
                          int64_t newest, char *why_not, size_t size_bytes)
{
    const fl_interval *every = &p->job->checkpoint.every;
    why_not[0] = '\0';
    if (l->kept.checkpoint == NULL || l->kept.checkpoint->step <= newest) {
        return;
    }
    if (every->ms <= 0 && every->steps <= 0 && every->epochs <= 0) {
        snprintf(why_not, size_bytes, "checkpoint.every is none");
        return;
    }
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fl_status status =
        dir_fd < 0 ? fl_fail(FL_EIO, "%s: %s", dir, strerror(errno)) : save_in(l, p, dir, dir_fd);
    if (status != FL_OK) {
        snprintf(why_not, size_bytes, "%s", fl_errmsg());
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
}

/* ---- the command ---- */

static const char *engine_text(const fl_run_losses *l)
{
    return l->hosts != NULL && l->hosts->meeting[0] != '\0' ? ", as tasks on the same hosts," : "";
}

/* A run goes on without its directory, which somebody may have removed. */
static bool has_job(const char *dir)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/job.yaml", dir);
    return access(path, F_OK) == 0;
}

static void tell_lost(const fl_run_losses *l, const char *why, const char *why_not, const char *dir,
                      const char *options)
{
    char path[PATH_MAX], run[FL_SHELL_PATH_BYTES], again[FL_SHELL_PATH_BYTES];
    char lost[FL_FAILURE_TEXT_MAX + 80] = "it has no checkpoint";
    if (why_not[0] != '\0') {
        snprintf(lost, sizeof lost, "it has no checkpoint, and its snapshot in memory is lost: %s",
                 why_not);
    }
    if (!has_job(dir)) {
        fl_log(FL_LOG_WARN,
               "%s; %s; %s/job.yaml was removed: the command that began the run begins it again",
               why, lost, fl_shell_shown(dir, run, sizeof run));
        return;
    }
    fl_log(FL_LOG_WARN, "%s; %s; `frostline run %s/job.yaml%s --run-dir %s`%s begins it again", why,
           lost, fl_shell_shown(dir, run, sizeof run), options,
           fl_shell_shown(fl_run_again_dir(dir, path), again, sizeof again), engine_text(l));
}

void fl_return_end_keep(fl_run_losses *l, const fl_preparation *p, const char *dir, const char *why)
{
    char why_not[FL_FAILURE_TEXT_MAX], options[FL_HOST_OPTIONS_BYTES], made[160] = "";
    char run[FL_SHELL_PATH_BYTES];
    int64_t before = fl_returns_checkpoint(dir, INT64_MAX);
    save_snapshot(l, p, dir, before, why_not, sizeof why_not);
    int64_t step = fl_returns_checkpoint(dir, INT64_MAX);
    fl_host_options(p, options);
    if (p->job->model.kind == FL_MODEL_PROGRAM) {
        fl_log(FL_LOG_WARN, "%s; %s%s", why,
               step < 0 ? "it has no checkpoint" : "its program can resume it from its checkpoint",
               why_not[0] == '\0' ? "" : "; its snapshot in memory is lost");
        return;
    }
    if (step < 0) {
        tell_lost(l, why, why_not, dir, options);
        return;
    }
    if (step > before) {
        snprintf(made, sizeof made, "its snapshot in memory of step %lld is a checkpoint now; ",
                 (long long)step);
    } else if (why_not[0] != '\0') {
        fl_log(FL_LOG_WARN, "the newer snapshot in memory of step %lld is lost: %s",
               (long long)l->kept.checkpoint->step, why_not);
    }
    fl_log(FL_LOG_WARN, "%s; %s`frostline run --resume %s%s`%s continues the run from step %lld",
           why, made, fl_shell_shown(dir, run, sizeof run), options, engine_text(l),
           (long long)step);
}
