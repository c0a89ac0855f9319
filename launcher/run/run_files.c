#include "launcher/run/run_files.h"

#include "control/agent/process/agent.h"
#include "control/events/runfiles.h"
#include "device/system/alloc.h"
#include "launcher/hf/hf_files.h"
#include "launcher/run/checks/room.h"
#include "launcher/run/costs/costs.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/model/model_config.h"
#include "launcher/run/plan/run_dir.h"
#include "launcher/run/runs/run_hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fl_status open_dir(const fl_preparation *p, const char *run_dir, fl_run_files *f)
{
    if (p->resume == NULL) {
        f->made_dir = run_dir == NULL || access(run_dir, F_OK) != 0;
        fl_run_place place = {.dir_fd = -1};
        fl_status status = fl_run_dir_open(p->job, run_dir, f->path, &place);
        f->dir_fd = place.dir_fd;
        f->alone = place.alone;
        f->made_dir = f->made_dir && status != FL_EBUSY; /* it is the other process's */
        return status;
    }
    if (!fl_resume_goes_back(p)) {
        fl_hosts_remove_key(p->resume->dir_fd); /* of a head that was killed */
    }
    snprintf(f->path, sizeof f->path, "%s", p->resume->dir);
    f->dir_fd = fcntl(p->resume->dir_fd, F_DUPFD_CLOEXEC, 0);
    return f->dir_fd >= 0 ? FL_OK : fl_fail(FL_EIO, "%s: %s", f->path, strerror(errno));
}

/* From here on the directory holds this run; the lock on one that continues is the resume's. */
static fl_status begin_dir(const fl_preparation *p, fl_run_files *f)
{
    if (p->resume != NULL) {
        return fl_resume_begin(p->resume, p);
    }
    FL_TRY(fl_run_dir_write_job(p, f->dir_fd));
    f->is_new = true;
    f->held_fd = fl_run_hold(f->dir_fd);
    fl_run_dir_release(f->dir_fd);
    return FL_OK;
}

static fl_status make_model_file(const fl_preparation *p, fl_run_files *f)
{
    if (f->alone) {
        fl_model_file_forget(f->dir_fd);
    }
    fl_status status =
        fl_model_file_create(p->model, f->config, f->dir_fd, p->resume != NULL, &f->model);
    if (status != FL_OK) {
        return fl_within(status, "%s", f->path);
    }
    const char *inputs = fl_hf_files_of_job(p->job);
    return inputs[0] != '\0' ? fl_hf_files_copy(inputs, f->model.folder_fd) : FL_OK;
}

/* A run that goes back to a snapshot may have written no checkpoint: its folder, empty, is gone. */
static const char *folder_to_continue(const fl_preparation *p)
{
    const fl_resume *r = p->resume;
    bool may_be_gone = r != NULL && (r->returns || r->begins_again);
    return r == NULL || (may_be_gone && access(r->checkpoints, F_OK) != 0) ? NULL : r->checkpoints;
}

/* job.yaml is last: without room for the model, there is no run. */
fl_status fl_run_files_open(const fl_preparation *p, const char *run_dir, fl_run_files *f)
{
    const char *continues = folder_to_continue(p);
    *f = (fl_run_files){.dir_fd = -1, .held_fd = -1, .owner_fd = -1};
    FL_TRY(open_dir(p, run_dir, f));
    FL_TRY(
        fl_checkpoint_folder_open(p->job, f->path, f->dir_fd, continues, &f->store, &f->owner_fd));
    if (p->resume == NULL) {
        fl_room_check_run(p, f->path, f->dir_fd, f->store.dir_fd);
    }
    FL_TRY(fl_checkpoint_job_text(p->job, &f->job_text));
    FL_TRY(fl_model_config_text(p->model, p->whole, p->job, &f->config));
    f->store.config = f->config;
    if (p->job->run.save_model) {
        FL_TRY(make_model_file(p, f));
    }
    if (p->hosts != NULL) {
        f->has_key = true;
        FL_TRY(fl_hosts_write_key(p->hosts, f->dir_fd));
    }
    return begin_dir(p, f);
}

void fl_run_files_close(fl_run_files *f)
{
    if (f->is_new) {
        fl_run_dir_forget_job(f->dir_fd);
    }
    if (f->held_fd >= 0) {
        close(f->held_fd);
    }
    if (f->model.model != NULL && f->model.folder_fd >= 0 &&
        faccessat(f->model.folder_fd, FL_MODEL_FILE, F_OK, 0) != 0) {
        fl_hf_files_remove(f->model.folder_fd);
    }
    fl_model_file_fini(&f->model);
    if (f->dir_fd >= 0) {
        if (f->has_key) {
            fl_hosts_remove_key(f->dir_fd);
        }
        fl_checkpoint_folder_close(f->dir_fd, &f->store, f->owner_fd);
        close(f->dir_fd);
    }
    if (f->made_dir) {
        (void)rmdir(f->path); /* it is empty if the start has failed early */
    }
    free(f->job_text);
    fl_free(f->config);
}

void fl_run_files_forget(fl_run_files *f, int n_ranks)
{
    static const char *const names[] = {"ledger.bin", FL_COSTS_RUN_FILE};
    char name[FL_AGENT_LOG_NAME_BYTES];
    for (int i = 0; f->is_new && i < FL_RUNFILES; i++) {
        (void)unlinkat(f->dir_fd, fl_runfile_name((fl_runfile)i), 0);
    }
    for (size_t i = 0; f->is_new && i < sizeof names / sizeof *names; i++) {
        (void)unlinkat(f->dir_fd, names[i], 0);
    }
    for (int rank = 0; f->is_new && rank < n_ranks; rank++) {
        fl_agent_log_name(rank, name);
        (void)unlinkat(f->dir_fd, name, 0);
    }
}
