#include "launcher/run/plan/resume.h"

#include "control/checkpoint/commit.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/shell_text.h"
#include "device/text/shown_text.h"
#include "launcher/job/job.h"
#include "launcher/run/plan/run_dir.h"
#include "launcher/run/runs/run_ending.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/runs.h"
#include "pipe/state/weights/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

fl_status fl_resume_within(const char *path, fl_status status)
{
    char shown[FL_SHOWN_PATH_BYTES];
    return fl_within(status, "--resume: %s", fl_text_shown(path, shown, sizeof shown));
}

/* ---- ① ---- */

static fl_status refuse_ending(const char *run_dir, const fl_run_ending *e)
{
    char since[48] = "";
    if (e->since_s >= 0) {
        snprintf(since, sizeof since, " for %ld s", e->since_s);
    }
    if (e->holder == 0) {
        return fl_resume_within(
            run_dir, fl_fail(FL_EBUSY,
                             "a process in another container or on another host has been "
                             "ending the run%s; start again when it has ended",
                             since));
    }
    return fl_resume_within(
        run_dir, fl_fail(FL_EBUSY,
                         "process %ld has been ending the run%s; start again when it has "
                         "ended; `kill %ld` ends it at once, without its last checkpoint",
                         (long)e->holder, since, (long)e->holder));
}

static fl_status check_over(const char *run_dir, fl_run_state *ended)
{
    char run[FL_SHELL_PATH_BYTES];
    fl_run_entry *entry = NULL;
    const fl_run_ending ending = fl_run_ending_look(run_dir);
    if (ending.ends) {
        return refuse_ending(run_dir, &ending);
    }
    FL_TRY(fl_alloc(sizeof *entry, (void **)&entry));
    fl_status status = fl_run_look(run_dir, entry);
    *ended = entry->state;
    if (status == FL_OK && entry->untrained) {
        status = fl_run_fail_untrained(entry->path, run_dir);
    }
    fl_free(entry);
    if (status != FL_OK) {
        return fl_fail(status, "--resume: %s", fl_errmsg());
    }
    return !fl_run_state_lives(*ended)
               ? FL_OK
               : fl_resume_within(run_dir,
                                  fl_fail(FL_EBUSY, "the run %s; `frostline ctl %s stop` ends it",
                                          *ended == FL_RUN_LIVE       ? "still trains"
                                          : *ended == FL_RUN_STARTING ? "is starting"
                                                                      : "goes back after a loss",
                                          fl_shell_shown(run_dir, run, sizeof run)));
}

static fl_status read_job(fl_resume *r)
{
    struct stat what;
    snprintf(r->job_path, sizeof r->job_path, "%s/job.yaml", r->dir);
    if (fstat(r->held_fd, &what) != 0 || !S_ISREG(what.st_mode)) {
        char shown[FL_SHOWN_PATH_BYTES];
        return fl_fail(FL_EINVAL, "--resume: %s is not a regular file",
                       fl_text_shown(r->job_path, shown, sizeof shown));
    }
    FL_TRY(fl_alloc(FL_JOB_FILE_MAX + 2, (void **)&r->job_text));
    ssize_t n = pread(r->held_fd, r->job_text, FL_JOB_FILE_MAX + 1, 0);
    if (n < 0) {
        return fl_resume_within(r->job_path, fl_fail(FL_EIO, "%s", strerror(errno)));
    }
    r->job_text[n] = '\0';
    r->job_bytes = (size_t)n;
    return fl_resume_load_job(r, NULL, 0, &r->before);
}

static void init_resume(fl_resume *r, int held_fd)
{
    *r = (fl_resume){.is_open = true,
                     .wanted = -1,
                     .dir_fd = -1,
                     .held_fd = held_fd,
                     .next_fd = -1,
                     .folder_fd = -1};
}

static fl_status open_dir(const char *run_dir, fl_resume *r)
{
    if (realpath(run_dir, r->dir) == NULL) {
        return fl_resume_within(run_dir, fl_fail(FL_EIO, "%s", strerror(errno)));
    }
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->dir_fd < 0 || faccessat(r->dir_fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        return fl_resume_within(run_dir, fl_fail(FL_EIO, "%s", strerror(errno)));
    }
    return FL_OK;
}

static fl_status read_folder(fl_resume *r)
{
    FL_TRY(read_job(r));
    snprintf(r->checkpoints, sizeof r->checkpoints, "%.4000s/" FL_CHECKPOINT_FOLDER, r->dir);
    return fl_alloc(sizeof *r->checkpoint, (void **)&r->checkpoint);
}

fl_status fl_resume_open(const char *run_dir, fl_resume *r)
{
    init_resume(r, -1);
    FL_TRY(check_over(run_dir, &r->ended));
    FL_TRY(open_dir(run_dir, r));
    fl_status status = fl_run_take(r->dir_fd, &r->held_fd);
    if (status != FL_OK) {
        char shown[FL_SHOWN_PATH_BYTES];
        return fl_fail(status, "--resume: %s/%s", fl_text_shown(run_dir, shown, sizeof shown),
                       fl_errmsg());
    }
    return read_folder(r);
}

/* Opening and closing job.yaml to look at it would release the lock. */
fl_status fl_resume_open_held(const char *run_dir, int held_fd, fl_resume *r)
{
    init_resume(r, held_fd);
    r->ended = FL_RUN_FAILED;
    FL_TRY(open_dir(run_dir, r));
    return read_folder(r);
}

void fl_resume_close(fl_resume *r)
{
    int *fds[] = {&r->folder_fd, &r->next_fd, &r->held_fd, &r->dir_fd};
    if (!r->is_open) {
        return;
    }
    if (r->next_fd >= 0) {
        fl_run_dir_drop_job(r->dir_fd);
    }
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
    }
    if (r->checkpoint != NULL) {
        fl_checkpoint_fini(r->checkpoint);
    }
    fl_free(r->checkpoint);
    fl_free(r->refused);
    fl_free(r->job_text);
    r->is_open = false;
}

/* ---- ② ---- */

fl_status fl_resume_load_job(const fl_resume *r, const char *const *overrides, int n, fl_job *job)
{
    return fl_job_parse(r->job_path, r->job_text, r->job_bytes, overrides, n, job);
}

fl_status fl_resume_check_job(fl_resume *r, const fl_job *now)
{
    FL_TRY(fl_job_check_resume(&r->before, now, r->job_path));
    return fl_job_list_changes(&r->before, now, r->changed, &r->n_changed);
}

fl_status fl_resume_check_program(fl_resume *r, fl_job *now)
{
    const fl_job *before = &r->before;
    if (before->model.kind != FL_MODEL_PROGRAM) {
        return fl_resume_within(
            r->dir, fl_fail(FL_EINVAL, "a run of `frostline run`; it continues with `frostline run "
                                       "--resume`"));
    }
    fl_job own = *now;
    now->model = before->model;
    snprintf(now->model.init, sizeof now->model.init, "%s", own.model.init);
    snprintf(now->model.init_allow, sizeof now->model.init_allow, "%s", own.model.init_allow);
    now->data.crop = before->data.crop;
    snprintf(now->data.path, sizeof now->data.path, "%s", before->data.path);
    return fl_resume_check_job(r, now);
}

bool fl_resume_has_state(const fl_preparation *p)
{
    return p->resume != NULL && !p->resume->begins_again;
}

bool fl_resume_goes_back(const fl_preparation *p)
{
    return p->resume != NULL && p->resume->why != NULL;
}

/* ---- ⑤ ---- */

static fl_status within_dir(const fl_resume *r, fl_status status)
{
    return status == FL_OK ? FL_OK : fl_resume_within(r->dir, status);
}

fl_status fl_resume_begin(fl_resume *r, const fl_preparation *p)
{
    fl_run_dir_drop_job(r->dir_fd); /* of a start that was killed */
    return r->n_changed == 0 ? FL_OK
                             : within_dir(r, fl_run_dir_prepare_job(p, r->dir_fd, &r->next_fd));
}

/* ---- ⑥ ---- */

/* Newer ones, which the run will write again, and those that were never finished. What is no file
 * of a checkpoint stays; a run that goes back again and again names it once. */
static void remove_others(const fl_resume *r)
{
    fl_checkpoint_folder *all = NULL;
    int n = 0, dir_fd = open(r->checkpoints, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        if (errno != ENOENT) { /* a snapshot may be all that there is */
            fl_log(FL_LOG_WARN, "%s: %s", r->checkpoints, strerror(errno));
        }
        return;
    }
    if (fl_checkpoint_list(r->checkpoints, &all, &n) != FL_OK) {
        fl_log(FL_LOG_WARN, "%s", fl_errmsg());
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        bool removed = !all[i].whole || all[i].step > r->checkpoint->step;
        bool named = r->tidied && !all[i].whole;
        if (removed && fl_checkpoint_remove(dir_fd, all[i].step) != FL_OK && !named) {
            fl_log(FL_LOG_WARN, "%s/%s", r->checkpoints, fl_errmsg());
        }
    }
    fl_free(all);
    close(dir_fd);
}

fl_status fl_resume_drop_newer(fl_resume *r)
{
    int64_t last_step = r->begins_again ? -1 : r->checkpoint->step;
    remove_others(r); /* before a worker may write one of their names */
    return within_dir(r, fl_runfiles_cut_hashes(r->dir_fd, last_step));
}

/* ---- ⑦ ---- */

/* A process that opened the old file before finds that it has another name's file, and ends. */
static void replace_job(fl_resume *r)
{
    if (r->next_fd < 0) {
        return;
    }
    if (fl_run_dir_replace_job(r->dir_fd) != FL_OK) {
        fl_log(FL_LOG_WARN, "--resume: %s: the file keeps its old values: %s", r->dir, fl_errmsg());
        return;
    }
    close(r->held_fd);
    r->held_fd = r->next_fd;
    r->next_fd = -1;
}

/* The weights that the run had left are not those of its last step any more. Whatever happens from
 * here on, the newest checkpoint has them. */
static void remove_model(const fl_resume *r)
{
    if (unlinkat(r->dir_fd, FL_MODEL_FOLDER "/" FL_MODEL_FILE, 0) != 0 && errno != ENOENT) {
        fl_log(FL_LOG_WARN,
               "--resume: cannot remove %s/" FL_MODEL_FOLDER "/" FL_MODEL_FILE
               ", which the run left before: %s",
               r->dir, strerror(errno));
    }
}

void fl_resume_take_over(fl_resume *r)
{
    replace_job(r);
    remove_model(r);
}
