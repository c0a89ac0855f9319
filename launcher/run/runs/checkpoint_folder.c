#include "launcher/run/runs/checkpoint_folder.h"

#include "control/checkpoint/manifest/manifest.h"
#include "device/errors/failure.h"
#include "device/errors/io_status.h"
#include "device/system/files/folders.h"
#include "launcher/job/schema/schema.h"
#include "launcher/run/runs/checkpoint_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fl_status fail_dir(const char *what, const char *path)
{
    return fl_fail_field(fl_io_status(errno), FL_FIELDS("checkpoint.dir"), "%s%s: %s", what, path,
                         strerror(errno));
}

/* ---- the paths ---- */

/* Where the job puts the folder. */
static fl_status folder_path(const fl_job *job, const char *run_dir, char path[PATH_MAX])
{
    const char *slash = strrchr(run_dir, '/'), *name = slash == NULL ? run_dir : slash + 1;
    bool elsewhere = job->checkpoint.dir[0] != '\0';
    int n = elsewhere ? snprintf(path, PATH_MAX, "%s/%s", job->checkpoint.dir, name)
                      : snprintf(path, PATH_MAX, "%s/" FL_CHECKPOINT_FOLDER, run_dir);
    return n < PATH_MAX ? FL_OK
                        : fl_fail_field(FL_EINVAL, FL_FIELDS("checkpoint.dir"),
                                        "the path is longer than %d bytes", PATH_MAX - 1);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

void fl_checkpoint_folder_missing(const char *run_dir, char target[PATH_MAX])
{
    char link[PATH_MAX];
    struct stat there;
    ssize_t n = -1;
    if (snprintf(link, sizeof link, "%s/" FL_CHECKPOINT_FOLDER, run_dir) < PATH_MAX &&
        stat(link, &there) != 0) {
        n = readlink(link, target, PATH_MAX - 1);
    }
    target[n < 0 ? 0 : n] = '\0';
}

/* ---- a new run ---- */

static fl_status refuse_folder(const fl_job *job, fl_status status)
{
    if (status != FL_EINVAL) {
        return status;
    }
    return job->checkpoint.dir[0] == '\0'
               ? fl_fail(status, "--run-dir: %s; name another directory", fl_errmsg())
               : fl_fail_field(status, FL_FIELDS("checkpoint.dir"),
                               "%s; name another folder, or another run directory", fl_errmsg());
}

/* The link to a folder elsewhere. */
static fl_status link_folder(const char *path, int dir_fd)
{
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL) {
        return fail_dir("", path);
    }
    return symlinkat(whole, dir_fd, FL_CHECKPOINT_FOLDER) == 0
               ? FL_OK
               : fail_dir("cannot make the link to ", whole);
}

static fl_status open_new(const fl_job *job, const char *run_dir, int dir_fd, int *owner_fd)
{
    char path[PATH_MAX], failed[PATH_MAX];
    bool elsewhere = job->checkpoint.dir[0] != '\0';
    FL_TRY(folder_path(job, run_dir, path));
    bool made = access(path, F_OK) != 0;
    errno = fl_folders_make(path, failed);
    if (errno != 0) {
        return fail_dir("cannot make ", failed);
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail_dir("", path);
    }
    fl_status status =
        refuse_folder(job, fl_checkpoint_owner_take(fd, path, run_dir, true, owner_fd));
    if (status == FL_OK && elsewhere) {
        status = link_folder(path, dir_fd);
        if (status != FL_OK) {
            (void)fl_checkpoint_owner_forget(fd);
        }
    }
    close(fd);
    if (status != FL_OK && made) {
        (void)rmdir(path);
    }
    return status;
}

/* ---- a run that continues ---- */

/* Unless the link in the run directory leads there. */
static fl_status change_link(const char *path, int folder_fd, int dir_fd)
{
    static const char part[] = FL_CHECKPOINT_FOLDER ".part";
    struct stat wanted, there;
    char whole[PATH_MAX];
    if (fstat(folder_fd, &wanted) == 0 && fstatat(dir_fd, FL_CHECKPOINT_FOLDER, &there, 0) == 0 &&
        is_same(&wanted, &there)) {
        return FL_OK;
    }
    (void)unlinkat(dir_fd, part, 0);
    return realpath(path, whole) != NULL && symlinkat(whole, dir_fd, part) == 0 &&
                   renameat(dir_fd, part, dir_fd, FL_CHECKPOINT_FOLDER) == 0
               ? FL_OK
               : fail_dir("cannot make the link to ", path);
}

static fl_status open_old(const char *path, const char *run_dir, int dir_fd, int *owner_fd)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fl_fail(FL_EIO, "--resume: %s: %s", path, strerror(errno));
    }
    fl_status status = fl_checkpoint_owner_take(fd, path, run_dir, false, owner_fd);
    if (status != FL_OK) {
        status = fl_fail(status, "--resume: %s", fl_errmsg());
    }
    if (status == FL_OK) {
        status = change_link(path, fd, dir_fd);
    }
    close(fd);
    return status;
}

static fl_status check_owner(const char *path, const char *run_dir)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return FL_OK; /* there is nothing to continue from */
    }
    fl_status status = fl_checkpoint_owner_check(fd, path, run_dir);
    close(fd);
    return status;
}

fl_status fl_checkpoint_folder_find(const fl_job *before, const fl_job *now, const char *run_dir,
                                    char path[PATH_MAX])
{
    char named[PATH_MAX], whole[PATH_MAX];
    struct stat present, wanted;
    snprintf(path, PATH_MAX, "%.*s/" FL_CHECKPOINT_FOLDER,
             (int)(PATH_MAX - sizeof FL_CHECKPOINT_FOLDER - 1), run_dir);
    if (strcmp(before->checkpoint.dir, now->checkpoint.dir) == 0) {
        return check_owner(path, run_dir);
    }
    FL_TRY(folder_path(now, run_dir, named));
    bool found = stat(path, &present) == 0 && realpath(path, whole) != NULL;
    bool moved = stat(named, &wanted) == 0;
    if (found && !(moved && is_same(&present, &wanted))) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("checkpoint.dir"),
                             "the run's checkpoints are in %s: to continue it with checkpoints "
                             "elsewhere, move that folder to %s first",
                             whole, named);
    }
    if (!moved) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("checkpoint.dir"),
                             "%s: no such folder: allowed is the place to which the run's "
                             "checkpoints were moved",
                             named);
    }
    snprintf(path, PATH_MAX, "%s", named);
    return check_owner(path, run_dir);
}

/* ---- both ---- */

fl_status fl_checkpoint_folder_open(const fl_job *job, const char *run_dir, int dir_fd,
                                    const char *continues, fl_checkpoint_store *out, int *owner_fd)
{
    FL_TRY(continues == NULL ? open_new(job, run_dir, dir_fd, owner_fd)
                             : open_old(continues, run_dir, dir_fd, owner_fd));
    return fl_checkpoint_store_open(dir_fd, FL_CHECKPOINT_FOLDER, out);
}

/* Neither removes anything that is not empty. */
static void remove_folder(int dir_fd)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir_fd, FL_CHECKPOINT_FOLDER, target, sizeof target - 1);
    if (n < 0) {
        (void)unlinkat(dir_fd, FL_CHECKPOINT_FOLDER, AT_REMOVEDIR);
        return;
    }
    target[n] = '\0';
    if (unlinkat(dir_fd, target, AT_REMOVEDIR) == 0) {
        (void)unlinkat(dir_fd, FL_CHECKPOINT_FOLDER, 0);
    }
}

void fl_checkpoint_folder_close(int dir_fd, fl_checkpoint_store *store, int owner_fd)
{
    if (store->kept_step != NULL && fl_checkpoint_owner_forget(store->dir_fd)) {
        remove_folder(dir_fd);
    }
    if (owner_fd >= 0) {
        close(owner_fd);
    }
    fl_checkpoint_store_close(store);
}

/* ---- the job ---- */

fl_status fl_checkpoint_job_text(const fl_job *job, char **text)
{
    size_t n = 0;
    FILE *stream = open_memstream(text, &n);
    if (stream == NULL) {
        return fl_fail(FL_ENOMEM, "no memory for the job's text");
    }
    fl_status status = fl_job_write(job, stream);
    return fclose(stream) == 0 ? status : fl_fail(FL_ENOMEM, "no memory for the job's text");
}
