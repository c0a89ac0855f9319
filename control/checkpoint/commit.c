#include "control/checkpoint/commit.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/files/regular_file.h"
#include "pipe/state/weights/model_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- folders ---- */

/* A name that a run gives to files of a checkpoint. */
static bool is_own_name(const char *name)
{
    static const char *const names[] = {FL_CHECKPOINT_MANIFEST, FL_CHECKPOINT_MANIFEST ".part",
                                        FL_CHECKPOINT_INDEX, FL_MODEL_CONFIG_FILE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    const char *end = strrchr(name, '.');
    return end != NULL && strcmp(end, ".safetensors") == 0 &&
           (strncmp(name, "weights-", 8) == 0 || strncmp(name, "moments-", 8) == 0);
}

/* Removes the files of a checkpoint. The manifest goes first, so that a folder that is removed
 * halfway is no checkpoint. Anything else stays: left [size_bytes] has the name of one such thing.
 */
static void empty_folder(int folder_fd, char *left, size_t size_bytes)
{
    (void)unlinkat(folder_fd, FL_CHECKPOINT_MANIFEST, 0);
    DIR *dir = fdopendir(folder_fd);
    const struct dirent *entry;
    if (dir == NULL) {
        close(folder_fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        bool is_folder_itself = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (!is_folder_itself && (!is_own_name(name) || unlinkat(dirfd(dir), name, 0) != 0)) {
            snprintf(left, size_bytes, "%s", name);
        }
    }
    closedir(dir);
}

fl_status fl_checkpoint_remove(int dir_fd, int64_t step)
{
    char name[FL_CHECKPOINT_NAME_MAX], left[256] = "";
    fl_checkpoint_folder_name(step, name);
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        bool is_foreign = errno == ENOTDIR || errno == ELOOP;
        return errno == ENOENT ? FL_OK
               : is_foreign ? fl_fail(FL_EFAILED, "%s is not a folder of this run: it stays", name)
                            : fl_fail(FL_EFAILED, "%s stays: %s", name, strerror(errno));
    }
    empty_folder(fd, left, sizeof left);
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        return FL_OK;
    }
    return left[0] == '\0'
               ? fl_fail(FL_EFAILED, "%s: %s", name, strerror(errno))
               : fl_fail(FL_EFAILED, "%s: %s is no file of a checkpoint: it stays", name, left);
}

static void remove_or_warn(int dir_fd, int64_t step)
{
    if (fl_checkpoint_remove(dir_fd, step) != FL_OK) {
        fl_log(FL_LOG_WARN, "a checkpoint could not be removed: %s", fl_errmsg());
    }
}

/* What stays of a folder that was no checkpoint any more was named before. */
static void remove_listed(int dir_fd, const fl_checkpoint_folder *folder)
{
    if (folder->whole) {
        remove_or_warn(dir_fd, folder->step);
    } else {
        fl_status status = fl_checkpoint_remove(dir_fd, folder->step);
        (void)status;
    }
}

static fl_status list_folders(int dir_fd, fl_checkpoint_folder **folders, int *n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir_fd);
    return fl_checkpoint_list(path, folders, n);
}

int64_t fl_checkpoint_newest(int dir_fd)
{
    return fl_checkpoint_newest_until(dir_fd, INT64_MAX);
}

int64_t fl_checkpoint_newest_until(int dir_fd, int64_t most)
{
    fl_checkpoint_folder *folders = NULL;
    int n = 0;
    int64_t step = -1;
    if (list_folders(dir_fd, &folders, &n) != FL_OK) {
        return -1;
    }
    for (int i = 0; step < 0 && i < n; i++) {
        step = folders[i].whole && folders[i].step <= most ? folders[i].step : -1;
    }
    fl_free(folders);
    return step;
}

/* ---- the best one ---- */

static bool is_whole(int dir_fd, int64_t step)
{
    char name[FL_CHECKPOINT_NAME_MAX], manifest[2 * FL_CHECKPOINT_NAME_MAX];
    snprintf(manifest, sizeof manifest, "%s/" FL_CHECKPOINT_MANIFEST,
             fl_checkpoint_folder_name(step, name));
    return faccessat(dir_fd, manifest, F_OK, 0) == 0;
}

int64_t fl_checkpoint_best(int dir_fd)
{
    char target[FL_CHECKPOINT_NAME_MAX];
    ssize_t n = readlinkat(dir_fd, FL_CHECKPOINT_BEST, target, sizeof target - 1);
    if (n <= 0) {
        return -1;
    }
    target[n] = '\0';
    int64_t step = fl_checkpoint_folder_step(target);
    return step >= 0 && is_whole(dir_fd, step) ? step : -1;
}

/* ④ Where the best checkpoint could not be written, or not yet, the link is on the best one that
 * could. */
static void point_to_best(const fl_commit *commit)
{
    static const char part[] = FL_CHECKPOINT_BEST ".part";
    char name[FL_CHECKPOINT_NAME_MAX];
    int dir_fd = commit->store->dir_fd;
    int64_t step = commit->best_step;
    if (step > 0 && !is_whole(dir_fd, step)) {
        step = commit->best_asked;
    }
    if (step <= 0 || !is_whole(dir_fd, step) || fl_checkpoint_best(dir_fd) == step) {
        return;
    }
    (void)unlinkat(dir_fd, part, 0);
    if (symlinkat(fl_checkpoint_folder_name(step, name), dir_fd, part) != 0 ||
        renameat(dir_fd, part, dir_fd, FL_CHECKPOINT_BEST) != 0) {
        fl_log(FL_LOG_WARN, "the link to the best checkpoint, %s: %s", name, strerror(errno));
    }
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
            remove_listed(dir_fd, &folders[i]);
        }
    }
    fl_free(folders);
    if (fl_checkpoint_best(dir_fd) < 0) {
        (void)unlinkat(dir_fd, FL_CHECKPOINT_BEST, 0);
    }
}

/* ⑤ Folders that are newer may be in the hands of workers. */
static void prune_folders(const fl_commit *commit)
{
    fl_checkpoint_folder *folders = NULL;
    int n = 0;
    int64_t n_kept = 0, best = fl_checkpoint_best(commit->store->dir_fd);
    if (list_folders(commit->store->dir_fd, &folders, &n) != FL_OK) {
        fl_log(FL_LOG_WARN, "old checkpoints stay: %s", fl_errmsg());
        return;
    }
    for (int i = 0; i < n; i++) {
        bool old = folders[i].step < commit->step && folders[i].step != best;
        n_kept += folders[i].whole && folders[i].step <= commit->step;
        if (old && (!folders[i].whole || n_kept > commit->keep)) {
            remove_listed(commit->store->dir_fd, &folders[i]);
        }
    }
    fl_free(folders);
}

/* ---- the commit ---- */

/* ① A file that the run could not write is reported by control/events/log/record.h. */
static fl_status sync_records(int run_fd)
{
    static const char *const names[] = {"steps.jsonl", "events.jsonl", "ledger.bin"};
    fl_status status = FL_OK;
    for (int i = 0; status == FL_OK && i < 3; i++) {
        const char *why = NULL;
        int fd = fl_regular_file_open(run_fd, names[i], &why);
        bool is_gone = fd < 0 && errno == ENOENT;
        if (fd < 0 && !is_gone) {
            status = fl_fail(FL_EIO, "%s: %s", names[i], why);
        } else if (fd >= 0 && fdatasync(fd) != 0) {
            status = fl_fail(FL_EIO, "%s: %s", names[i], strerror(errno));
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    return status;
}

/* A worker of another host may have written its file into another folder of this path. Opening the
 * file makes a client of NFS ask the server for its size. */
static fl_status check_file(const fl_checkpoint_entry *entry, const char *writer,
                            const char *folder, int folder_fd)
{
    struct stat st = {0};
    int fd = openat(folder_fd, entry->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool is_there = fd >= 0 && fstat(fd, &st) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (!is_there) {
        return fl_fail(FL_EIO, "%s/%s, which %s has written: %s", folder, entry->name, writer,
                       strerror(error));
    }
    return st.st_size == entry->bytes
               ? FL_OK
               : fl_fail(FL_EIO, "%s/%s: found %lld bytes, %s has written %lld", folder,
                         entry->name, (long long)st.st_size, writer, (long long)entry->bytes);
}

static fl_status check_files(fl_commit *commit, const char *folder, int folder_fd)
{
    fl_status status = FL_OK;
    for (int i = 0; i < commit->checkpoint->n_files && status == FL_OK; i++) {
        char writer[32] = "a worker";
        if (commit->writer[i] > 0) {
            snprintf(writer, sizeof writer, "worker %d", commit->writer[i] - 1);
        }
        status = check_file(&commit->checkpoint->file[i], writer, folder, folder_fd);
        commit->lost_writer = status == FL_OK ? 0 : commit->writer[i];
    }
    return status;
}

/* ② */
static fl_status write_last_files(fl_commit *commit)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_folder_name(commit->step, name);
    int fd = openat(commit->store->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
    }
    fl_status status = check_files(commit, name, fd);
    if (status == FL_OK && !commit->renews) {
        status = fl_checkpoint_write_index(commit->checkpoint, commit->model, fd);
    }
    if (status == FL_OK && !commit->renews && commit->store->config != NULL) {
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

/* After this, what the commit has borrowed may be gone. */
static fl_status check_wanted(const fl_commit *commit)
{
    return atomic_load(&commit->abandoned) ? fl_fail(FL_ESTOPPED, "the run has ended") : FL_OK;
}

static fl_status commit_folder(fl_commit *commit)
{
    FL_TRY(sync_records(commit->run_fd));
    FL_TRY(check_wanted(commit));
    FL_TRY(write_last_files(commit));
    FL_TRY(check_wanted(commit));
    fl_checkpoint_announce(commit->store, commit->checkpoint); /* ③ */
    point_to_best(commit);                                     /* ④ */
    prune_folders(commit);                                     /* ⑤ */
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
    bool is_wanted = !atomic_load(&commit->abandoned);
    if (is_wanted && !commit->renews && (commit->checkpoint == NULL || commit->status != FL_OK)) {
        remove_or_warn(commit->store->dir_fd, commit->step);
    }
    commit->best_step_found = is_wanted ? fl_checkpoint_best(commit->store->dir_fd) : -1;
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

bool fl_commit_wait(fl_commit *commit, int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    commit->running = commit->running && pthread_timedjoin_np(commit->thread, NULL, &until) != 0;
    return !commit->running;
}

void fl_commit_abandon(fl_commit *commit)
{
    atomic_store(&commit->abandoned, true);
    pthread_detach(commit->thread);
}

void fl_commit_end(fl_commit *commit)
{
    if (commit->running) {
        pthread_join(commit->thread, NULL);
        commit->running = false;
    }
}
