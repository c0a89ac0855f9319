#include "launcher/run/checkpoint_folder.h"

#include "control/checkpoint/manifest.h"
#include "device/failure.h"
#include "device/folders.h"
#include "launcher/job/schema.h"

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
    return fl_fail_field(FL_EIO, FL_FIELDS("checkpoint.dir"), "%s%s: %s", what, path,
                         strerror(errno));
}

/* Make the run's folder elsewhere, and the link to it. */
static fl_status link_folder(const fl_job *job, const char *run_dir, int dir_fd)
{
    const char *slash = strrchr(run_dir, '/');
    char path[2 * PATH_MAX], whole[PATH_MAX], failed[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", job->checkpoint.dir, slash == NULL ? run_dir : slash + 1);
    if (strlen(path) >= PATH_MAX) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("checkpoint.dir"),
                             "the path is longer than %d bytes", PATH_MAX - 1);
    }
    errno = fl_folders_make(path, failed);
    if (errno != 0) {
        return fail_dir("cannot make ", failed);
    }
    if (realpath(path, whole) == NULL) {
        return fail_dir("", path);
    }
    return symlinkat(whole, dir_fd, FL_CHECKPOINT_FOLDER) == 0
               ? FL_OK
               : fail_dir("cannot make the link to ", whole);
}

fl_status fl_checkpoint_folder_open(const fl_job *job, const char *run_dir, int dir_fd,
                                    fl_checkpoint_store *out)
{
    struct stat st;
    bool there = fstatat(dir_fd, FL_CHECKPOINT_FOLDER, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && job->checkpoint.dir[0] != '\0') {
        FL_TRY(link_folder(job, run_dir, dir_fd));
    }
    return fl_checkpoint_store_open(dir_fd, FL_CHECKPOINT_FOLDER, out);
}

void fl_checkpoint_folder_close(int dir_fd, fl_checkpoint_store *store)
{
    if (store->kept_step != NULL) {
        (void)unlinkat(dir_fd, FL_CHECKPOINT_FOLDER, AT_REMOVEDIR); /* unless there is more in it */
    }
    fl_checkpoint_store_close(store);
}

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
