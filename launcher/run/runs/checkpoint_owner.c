#include "launcher/run/runs/checkpoint_owner.h"

#include "control/checkpoint/manifest/manifest.h"
#include "device/errors/io_status.h"
#include "device/system/alloc.h"
#include "launcher/run/runs/run_hold.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWNER_FILE "owner"

/* ---- what is there ---- */

static fl_status count_checkpoints(int folder_fd, int *n)
{
    char path[64];
    fl_checkpoint_folder *folders = NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", folder_fd);
    fl_status status = fl_checkpoint_list(path, &folders, n);
    fl_free(folders);
    return status;
}

/* "" if the file has no path. */
static void read_owner(int fd, char owner[PATH_MAX])
{
    ssize_t n = pread(fd, owner, PATH_MAX - 1, 0);
    owner[n < 0 ? 0 : n] = '\0';
    owner[strcspn(owner, "\n")] = '\0';
}

static const char *shown_owner(const char *owner)
{
    return owner[0] == '\0' ? "(its name is unknown)" : owner;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether another run directory is there and uses this folder. A run directory that was moved has
 * left its old path. */
static bool is_used_by_another(int folder_fd, const char *owner, const char *run_dir)
{
    struct stat folder, used, there, here;
    char path[PATH_MAX + sizeof FL_CHECKPOINT_FOLDER + 1];
    snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_FOLDER, owner);
    return owner[0] == '/' && stat(path, &used) == 0 && fstat(folder_fd, &folder) == 0 &&
           is_same(&used, &folder) && stat(owner, &there) == 0 && stat(run_dir, &here) == 0 &&
           !is_same(&there, &here);
}

static fl_status fail_file(const char *folder, int error)
{
    return fl_fail(fl_io_status(error), "%s/" OWNER_FILE ": %s", folder, strerror(error));
}

static fl_status refuse_used(const char *folder, const char *owner)
{
    return fl_fail(FL_EINVAL, "%s has the checkpoints of the run %s", folder, shown_owner(owner));
}

/* ---- the lock ---- */

static bool is_current(int folder_fd, int fd)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 &&
           fstatat(folder_fd, OWNER_FILE, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           is_same(&mine, &there);
}

/* A file system without locks does not keep two runs from starting at the same moment. */
static bool is_locked_elsewhere(int fd)
{
    return !fl_run_lock(fd) && (errno == EACCES || errno == EAGAIN);
}

/* A run that ends without a checkpoint removes the file: it may be gone before it is locked. */
static fl_status lock_file(int folder_fd, const char *folder, int *out)
{
    char owner[PATH_MAX];
    for (;;) {
        struct stat what;
        int fd = openat(folder_fd, OWNER_FILE,
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
        if (fd < 0) {
            return fail_file(folder, errno);
        }
        if (fstat(fd, &what) != 0 || !S_ISREG(what.st_mode)) {
            close(fd);
            return fl_fail(FL_EIO, "%s/" OWNER_FILE ": not a regular file", folder);
        }
        if (is_locked_elsewhere(fd)) {
            read_owner(fd, owner);
            close(fd);
            return fl_fail(FL_EINVAL, "%s is in use by the run %s", folder, shown_owner(owner));
        }
        if (is_current(folder_fd, fd)) {
            *out = fd;
            return FL_OK;
        }
        close(fd);
    }
}

/* ---- the whole ---- */

static fl_status write_owner(int fd, const char *folder, const char *run_dir)
{
    char owner[PATH_MAX], text[PATH_MAX + 2];
    read_owner(fd, owner);
    if (strcmp(owner, run_dir) == 0) {
        return FL_OK;
    }
    int n = snprintf(text, sizeof text, "%s\n", run_dir);
    return ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) == n ? FL_OK
                                                                        : fail_file(folder, errno);
}

static fl_status check_taken(int fd, int folder_fd, const char *folder, const char *run_dir,
                             bool is_new)
{
    char owner[PATH_MAX];
    int n = 0;
    FL_TRY(count_checkpoints(folder_fd, &n));
    read_owner(fd, owner);
    bool refused = is_new ? n > 0 : is_used_by_another(folder_fd, owner, run_dir);
    return refused ? refuse_used(folder, owner) : FL_OK;
}

/* The file was not there before. */
static void forget_empty(int folder_fd, int fd)
{
    struct stat what;
    if (fstat(fd, &what) == 0 && what.st_size == 0) {
        (void)unlinkat(folder_fd, OWNER_FILE, 0);
    }
}

fl_status fl_checkpoint_owner_take(int folder_fd, const char *folder, const char *run_dir,
                                   bool is_new, int *held_fd)
{
    int fd = -1;
    FL_TRY(lock_file(folder_fd, folder, &fd));
    fl_status status = check_taken(fd, folder_fd, folder, run_dir, is_new);
    if (status == FL_OK) {
        status = write_owner(fd, folder, run_dir);
    }
    if (status != FL_OK) {
        forget_empty(folder_fd, fd);
        close(fd);
        return status;
    }
    *held_fd = fd;
    return FL_OK;
}

fl_status fl_checkpoint_owner_check(int folder_fd, const char *folder, const char *run_dir)
{
    char owner[PATH_MAX] = "";
    int fd = openat(folder_fd, OWNER_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) {
        return FL_OK;
    }
    read_owner(fd, owner);
    close(fd);
    return is_used_by_another(folder_fd, owner, run_dir) ? refuse_used(folder, owner) : FL_OK;
}

bool fl_checkpoint_owner_forget(int folder_fd)
{
    int n = 0;
    return count_checkpoints(folder_fd, &n) == FL_OK && n == 0 &&
           (unlinkat(folder_fd, OWNER_FILE, 0) == 0 || errno == ENOENT);
}
