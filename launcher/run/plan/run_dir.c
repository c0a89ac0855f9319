#include "launcher/run/plan/run_dir.h"

#include "control/state/hosts/run_proof.h"
#include "device/errors/failure.h"
#include "device/errors/io_status.h"
#include "device/system/files/folders.h"
#include "device/system/files/regular_file.h"
#include "device/text/shown_text.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"
#include "launcher/run/plan/host_options.h"
#include "launcher/run/runs/run_again.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOB_NAME "job.yaml"
#define PART_NAME JOB_NAME ".part"

/* given: by --run-dir; otherwise the path comes from the job's run.dir. */
static fl_status fail_dir(bool given, const char *what, const char *path)
{
    fl_status status = fl_io_status(errno);
    return given ? fl_fail(status, "--run-dir: %s%s: %s", what, path, strerror(errno))
                 : fl_fail_field(status, FL_FIELDS("run.dir"), "%s%s: %s", what, path,
                                 strerror(errno));
}

static fl_status make_folders(bool given, const char *path)
{
    char failed[PATH_MAX];
    errno = fl_folders_make(path, failed);
    return errno == 0 ? FL_OK : fail_dir(given, "cannot make ", failed);
}

/* What doctors that were killed have left. path: of a directory that was made just now: the file
 * system has the time. */
static void sweep_runs(const char *runs, const char *path)
{
    struct stat now;
    int fd = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && stat(path, &now) == 0) {
        fl_run_proof_sweep_old(fd, now.st_mtime);
        (void)fl_run_proof_take_made(fd);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* runs/<name>-<date>-<time>, with a number appended when two runs start in the same second. */
static fl_status fresh_name(const fl_job *job, char *path, size_t size_bytes)
{
    char when[32];
    struct tm local;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    FL_TRY(make_folders(false, job->run.dir));
    for (int i = 1; i < 1000; i++) {
        int n = i == 1
                    ? snprintf(path, size_bytes, "%s/%s-%s", job->run.dir, job->name, when)
                    : snprintf(path, size_bytes, "%s/%s-%s-%d", job->run.dir, job->name, when, i);
        if (n < 0 || (size_t)n >= size_bytes) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS("run.dir"),
                                 "the path is longer than %zu bytes", size_bytes);
        }
        if (mkdir(path, 0700) == 0) {
            sweep_runs(job->run.dir, path);
            return FL_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return fail_dir(false, "cannot make ", path);
}

/* The directory that the user names must not hold a run. */
static fl_status check_given(const char *path, int dir_fd)
{
    char shown[FL_SHOWN_PATH_BYTES];
    pid_t holder;
    fl_text_shown(path, shown, sizeof shown);
    if (faccessat(dir_fd, JOB_NAME, F_OK, 0) != 0) {
        return FL_OK;
    }
    if (fl__run_is_held_in(dir_fd, &holder)) {
        return fl_fail(FL_EBUSY, "--run-dir: another process has the run in %s", shown);
    }
    if (fl_run_again_is_due(dir_fd)) {
        return fl_within(fl_run_fail_untrained(path, path), "--run-dir");
    }
    return fl_fail(FL_EINVAL, "--run-dir: %s already holds a run; name another directory", shown);
}

/* Of two starts in one directory, one goes on. A file system that has no such locks refuses none:
 * then only job.yaml tells them apart. */
static fl_status lock_place(const char *path, fl_run_place *place)
{
    place->alone = flock(place->dir_fd, LOCK_EX | LOCK_NB) == 0;
    return place->alone || errno != EWOULDBLOCK
               ? FL_OK
               : fl_fail(FL_EBUSY, "--run-dir: another process begins a run in %s", path);
}

void fl_run_dir_release(int dir_fd)
{
    (void)flock(dir_fd, LOCK_UN);
}

fl_status fl_run_dir_open(const fl_job *job, const char *wanted, char *path, fl_run_place *out)
{
    char name[PATH_MAX];
    bool given = wanted != NULL;
    if (given) {
        snprintf(name, sizeof name, "%s", wanted);
        FL_TRY(make_folders(true, name));
    } else {
        FL_TRY(fresh_name(job, name, sizeof name));
    }
    if (realpath(name, path) == NULL) {
        return fail_dir(given, "", name);
    }
    out->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->dir_fd < 0) {
        return fail_dir(given, "", path);
    }
    fl_status status = lock_place(path, out);
    if (status == FL_OK && given) {
        status = check_given(path, out->dir_fd);
    }
    if (status != FL_OK) {
        close(out->dir_fd);
        out->dir_fd = -1;
    }
    return status;
}

/* A program's model and data set are in no field of the job. */
static void describe_program(const fl_preparation *p, FILE *file)
{
    const fl_dataset *d = p->dataset;
    fprintf(
        file,
        "# A program gave the model and the data set to fl_run; to train them again, start that\n"
        "# program again.\n"
        "# model: %s, %d layers in %d blocks, %lld parameters\n"
        "# data: %s, %lld samples to train on, %lld to test on\n",
        fl_model_name(p->model), fl_model_n_layers(p->model), fl_model_n_blocks(p->model),
        (long long)fl_model_n_params(p->model), d->ops->kind,
        (long long)d->ops->count(d->self, FL_TRAIN),
        (long long)(d->ops->count(d->self, FL_TEST) - p->n_validation));
}

/* For the command that begins the run again, if it is lost before it trains. */
static void describe_hosts(const fl_preparation *p, FILE *file)
{
    fl_run_again_hosts hosts;
    if (fl_host_options_find(p, &hosts)) {
        fl_run_again_note(file, &hosts);
    } else if (p->hosts != NULL && p->hosts->meeting[0] != '\0') {
        fl_run_again_note_tasks(file);
    }
}

/* fd: of the file `name`, or -1 and errno. It is closed. */
static fl_status write_job(const fl_preparation *p, int fd, const char *name)
{
    const fl_job *job = p->job;
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        return fl_fail(fl_io_status(errno), "%s: %s", name, strerror(errno));
    }
    describe_hosts(p, file);
    if (job->model.kind == FL_MODEL_PROGRAM) {
        describe_program(p, file);
    }
    errno = 0;
    bool good = fl_job_write(job, file) == FL_OK && fsync(fd) == 0;
    int error = errno;
    if (fclose(file) != 0 && good) {
        good = false;
        error = errno;
    }
    return good ? FL_OK : fl_fail(fl_io_status(error), "%s: %s", name, strerror(error));
}

fl_status fl_run_dir_write_job(const fl_preparation *p, int dir_fd)
{
    int fd = openat(dir_fd, JOB_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    fl_status status = write_job(p, fd, JOB_NAME);
    if (status != FL_OK && fd >= 0) {
        (void)unlinkat(dir_fd, JOB_NAME, 0);
    }
    return status;
}

void fl_run_dir_forget_job(int dir_fd)
{
    if (faccessat(dir_fd, "events.jsonl", F_OK, 0) != 0) {
        (void)unlinkat(dir_fd, JOB_NAME, 0);
    }
}

/* It is locked before it gets its name: no other process can take the run in between. */
static fl_status lock_job(int dir_fd, int *held_fd)
{
    int fd = openat(dir_fd, PART_NAME, O_RDWR | O_CLOEXEC);
    if (fd < 0 || !fl_run_lock(fd)) {
        fl_status status = fl_fail(FL_EIO, PART_NAME ": %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *held_fd = fd;
    return FL_OK;
}

fl_status fl_run_dir_prepare_job(const fl_preparation *p, int dir_fd, int *held_fd)
{
    fl_status status = write_job(p, fl_regular_file_replace(dir_fd, PART_NAME, 0600), PART_NAME);
    if (status == FL_OK) {
        status = lock_job(dir_fd, held_fd);
    }
    if (status != FL_OK) {
        fl_run_dir_drop_job(dir_fd);
    }
    return status;
}

fl_status fl_run_dir_replace_job(int dir_fd)
{
    return renameat(dir_fd, PART_NAME, dir_fd, JOB_NAME) == 0 && fsync(dir_fd) == 0
               ? FL_OK
               : fl_fail(fl_io_status(errno), JOB_NAME ": %s", strerror(errno));
}

void fl_run_dir_drop_job(int dir_fd)
{
    (void)unlinkat(dir_fd, PART_NAME, 0);
}
