#include "launcher/doctor/hosts/runs_folder.h"

#include "control/state/hosts/run_proof.h"
#include "device/system/files/folders.h"
#include "launcher/doctor/checks/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 5 };

/* Where the folder, or the nearest one above it that exists, leads; "": nowhere. */
static void find_real(const char *path, char real[PATH_MAX])
{
    char found[PATH_MAX];
    fl_doctor_find_existing(path, found);
    if (realpath(found, real) == NULL) {
        real[0] = '\0';
    }
}

/* Of "/a/b", 2. */
static int count_levels(const char *real)
{
    int n = 0;
    for (const char *c = real; *c != '\0'; c++) {
        n += c[0] == '/' && c[1] != '\0';
    }
    return n;
}

/* The innermost n folders, where they are empty. Returns 0, or the errno of the first one. */
static int remove_levels(const char *real, int n)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", real);
    for (int i = 0; i < n && path[0] != '\0'; i++) {
        if (rmdir(path) != 0) {
            return i == 0 ? errno : 0;
        }
        *strrchr(path, '/') = '\0';
    }
    return 0;
}

/* *n_made: how many levels of it, also on failure. */
static fl_status make_folder(fl_runs_folder *f, int *n_made)
{
    char failed[PATH_MAX], before[PATH_MAX];
    find_real(f->path, before);
    int error = fl_folders_make(f->path, failed);
    find_real(f->path, f->real);
    *n_made = before[0] == '\0' ? 0 : count_levels(f->real) - count_levels(before);
    if (error != 0) {
        return fl_fail(FL_EIO, "cannot make %.300s: %s", failed, strerror(error));
    }
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    error = f->dir_fd < 0 ? errno : *n_made > 0 ? fl_run_proof_note_made(f->dir_fd, *n_made) : 0;
    return error == 0 ? FL_OK : fl_fail(FL_EIO, "%.300s: %s", f->path, strerror(error));
}

fl_status fl_runs_folder_open(const char *path, fl_runs_folder *out)
{
    int n_made;
    *out = (fl_runs_folder){.dir_fd = -1};
    snprintf(out->path, sizeof out->path, "%s", path);
    fl_status status = make_folder(out, &n_made);
    if (status != FL_OK) {
        (void)remove_levels(out->real, n_made);
        fl_runs_folder_close(out);
    }
    return status;
}

bool fl_runs_folder_is_gone(const fl_runs_folder *f)
{
    struct stat s;
    return f->dir_fd >= 0 && fstat(f->dir_fd, &s) == 0 && s.st_nlink == 0;
}

/* Another doctor may write its files in between: then the folder is its to remove. */
void fl_runs_folder_close(fl_runs_folder *f)
{
    for (int i = 0; i < TRIES && f->dir_fd >= 0; i++) {
        int n_made = fl_run_proof_take_made(f->dir_fd);
        if (n_made == 0 || remove_levels(f->real, n_made) != ENOTEMPTY) {
            break;
        }
        (void)fl_run_proof_note_made(f->dir_fd, n_made);
    }
    if (f->dir_fd >= 0) {
        close(f->dir_fd);
        f->dir_fd = -1;
    }
}
