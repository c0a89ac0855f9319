#include "control/checkpoint/commit.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- folders ---- */

/* Folders of checkpoints hold files alone: anything else stays, and so does its folder. The
 * manifest goes first, so that a folder that is removed halfway is no checkpoint. */
static void empty_folder(int folder_fd)
{
    (void)unlinkat(folder_fd, FL_CHECKPOINT_MANIFEST, 0);
    DIR *dir = fdopendir(folder_fd);
    const struct dirent *entry;
    if (dir == NULL) {
        close(folder_fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
}

void fl_checkpoint_remove(int dir_fd, int64_t step)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_folder_name(step, name);
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        empty_folder(fd);
    }
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        fl_log(FL_LOG_WARN, "cannot remove the folder %s of checkpoints: %s", name,
               strerror(errno));
    }
}

static fl_status list_folders(int dir_fd, fl_checkpoint_folder **folders, int *n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir_fd);
    return fl_checkpoint_list(path, folders, n);
}

void fl_checkpoint_tidy(int dir_fd, int64_t newest_step)
{
    fl_checkpoint_folder *folders = NULL;
    int n = 0;
    if (list_folders(dir_fd, &folders, &n) != FL_OK) {
        fl_log(FL_LOG_WARN, "abandoned checkpoints stay: %s", fl_errmsg());
        return;
    }
    for (int i = 0; i < n; i++) {
        if (!folders[i].whole || folders[i].step > newest_step) {
            fl_checkpoint_remove(dir_fd, folders[i].step);
        }
    }
    fl_free(folders);
}

/* ④ Folders that are newer may be in the hands of workers. */
static void prune_folders(const fl_commit *commit)
{
    fl_checkpoint_folder *folders = NULL;
    int n = 0;
    int64_t n_kept = 0;
    if (list_folders(commit->store->dir_fd, &folders, &n) != FL_OK) {
        fl_log(FL_LOG_WARN, "old checkpoints stay: %s", fl_errmsg());
        return;
    }
    for (int i = 0; i < n; i++) {
        bool old = folders[i].step < commit->step;
        n_kept += folders[i].whole && folders[i].step <= commit->step;
        if (old && (!folders[i].whole || n_kept > commit->keep)) {
            fl_checkpoint_remove(commit->store->dir_fd, folders[i].step);
        }
    }
    fl_free(folders);
}

/* ---- the commit ---- */

/* ① A file that the run could not write is reported by control/events/record.h. */
static fl_status sync_records(int run_fd)
{
    static const char *const names[] = {"steps.jsonl", "events.jsonl", "ledger.bin"};
    fl_status status = FL_OK;
    for (int i = 0; status == FL_OK && i < 3; i++) {
        int fd = openat(run_fd, names[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && fdatasync(fd) != 0) {
            status = fl_fail(FL_EIO, "%s: %s", names[i], strerror(errno));
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    return status;
}

/* ② */
static fl_status write_last_files(const fl_commit *commit)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_folder_name(commit->step, name);
    int fd = openat(commit->store->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
    }
    fl_status status = fl_checkpoint_write_index(commit->checkpoint, commit->model, fd);
    if (status == FL_OK && commit->store->config != NULL) {
        status = fl_checkpoint_write_config(commit->checkpoint, commit->store->config, fd);
    }
    if (status == FL_OK) {
        status = fl_checkpoint_write(commit->checkpoint, fd);
    }
    close(fd);
    return status;
}

void fl_checkpoint_announce(const fl_checkpoint_store *store, const fl_checkpoint *checkpoint)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    for (int layer = 0; layer < checkpoint->model.n_layers; layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            const fl_checkpoint_entry *entry = fl_checkpoint_find(
                checkpoint, fl_checkpoint_file_name((fl_checkpoint_part)part, layer, name));
            fl_checkpoint_kept_file *kept =
                fl_checkpoint_kept(store, (fl_checkpoint_part)part, layer);
            atomic_store(&kept->xxh64, entry == NULL ? 0 : entry->xxh64);
            atomic_store(&kept->bytes, entry == NULL ? 0 : entry->bytes);
        }
    }
    atomic_store(store->kept_step, checkpoint->step);
}

static fl_status commit_folder(const fl_commit *commit)
{
    FL_TRY(sync_records(commit->run_fd));
    FL_TRY(write_last_files(commit));
    fl_checkpoint_announce(commit->store, commit->checkpoint); /* ③ */
    prune_folders(commit);
    return FL_OK;
}

static void *run_thread(void *context)
{
    fl_commit *commit = context;
    int64_t begun_us = fl_now_us();
    commit->status = commit->checkpoint == NULL ? FL_OK : commit_folder(commit);
    if (commit->status != FL_OK) {
        snprintf(commit->why, sizeof commit->why, "%s", fl_errmsg());
    }
    if (commit->checkpoint == NULL || commit->status != FL_OK) {
        fl_checkpoint_remove(commit->store->dir_fd, commit->step);
    }
    commit->took_us = fl_now_us() - begun_us;
    atomic_store(&commit->done, true);
    return NULL;
}

fl_status fl_commit_start(fl_commit *commit)
{
    atomic_store(&commit->done, false);
    int error = pthread_create(&commit->thread, NULL, run_thread, commit);
    if (error != 0) {
        return fl_fail(FL_ENOMEM, "no thread for a checkpoint: %s", strerror(error));
    }
    commit->running = true;
    return FL_OK;
}

bool fl_commit_is_done(const fl_commit *commit)
{
    return atomic_load(&commit->done);
}

void fl_commit_end(fl_commit *commit)
{
    if (commit->running) {
        pthread_join(commit->thread, NULL);
        commit->running = false;
    }
}
