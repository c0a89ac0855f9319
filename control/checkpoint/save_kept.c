#include "control/checkpoint/save_kept.h"

#include "control/checkpoint/commit.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "pipe/state/snapshot/snapshot_save.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add_file(void *context, const fl_checkpoint_file_report *report)
{
    fl_checkpoint *checkpoint = context;
    fl_checkpoint_entry *entry = &checkpoint->file[checkpoint->n_files++];
    fl_checkpoint_file_name(report->part, report->layer, entry->name);
    entry->bytes = report->bytes;
    entry->xxh64 = report->xxh64;
}

/* What an abandoned checkpoint of this step has left is in the way. */
static fl_status make_folder(int dir_fd, int64_t step, int *folder_fd)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    FL_TRY(fl_checkpoint_remove(dir_fd, step));
    fl_checkpoint_folder_name(step, name);
    *folder_fd = mkdirat(dir_fd, name, 0700) == 0
                     ? openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
                     : -1;
    return *folder_fd >= 0
               ? FL_OK
               : fl_fail(FL_EIO, "cannot make the folder %s: %s", name, strerror(errno));
}

static fl_status save_files(const fl_kept_snapshot *kept, int dir_fd)
{
    fl_checkpoint *checkpoint = kept->checkpoint;
    const fl_snapshot_view view = {.snapshot = &kept->memory, .slot = kept->slot};
    int folder_fd = -1;
    FL_TRY(make_folder(dir_fd, checkpoint->step, &folder_fd));
    checkpoint->n_files = 0;
    fl_status status = fl_snapshot_save(&view, &checkpoint->plan, checkpoint->controller.parked,
                                        folder_fd, add_file, checkpoint);
    close(folder_fd);
    return status;
}

/* The thread of the commit removes the folder if it fails. */
static fl_status commit_files(const fl_kept_snapshot *kept, const fl_checkpoint_store *store,
                              int run_fd, int64_t keep)
{
    fl_commit commit = {.store = store,
                        .model = kept->memory.model,
                        .run_fd = run_fd,
                        .checkpoint = kept->checkpoint,
                        .step = kept->checkpoint->step,
                        .keep = keep};
    FL_TRY(fl_commit_start(&commit));
    fl_commit_end(&commit);
    return commit.status == FL_OK ? FL_OK : fl_fail(commit.status, "%s", commit.why);
}

fl_status fl_kept_snapshot_save(fl_kept_snapshot *kept, const fl_checkpoint_store *store,
                                int run_fd, int64_t keep)
{
    fl_failure failure;
    fl_status status = save_files(kept, store->dir_fd);
    if (status == FL_OK) {
        status = commit_files(kept, store, run_fd, keep);
    }
    fl_failure_keep(&failure, status);
    if (status != FL_OK && fl_checkpoint_remove(store->dir_fd, kept->checkpoint->step) != FL_OK) {
        fl_log(FL_LOG_WARN, "%s", fl_errmsg());
    }
    return fl_failure_raise(&failure);
}
