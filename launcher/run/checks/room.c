#include "launcher/run/checks/room.h"

#include "device/errors/log.h"
#include "device/text/size_text.h"
#include "nn/model.h"
#include "nn/optimizer.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const int64_t LOG_BYTES = INT64_C(1) << 20;     /* of one worker; most have less */
static const int64_t RECORDS_BYTES = INT64_C(4) << 20; /* of the controller, of a run of hours */

/* ---- pure ---- */

fl_room_need fl_room_of_logs(int n_workers)
{
    return (fl_room_need){.records = n_workers * LOG_BYTES};
}

/* One checkpoint more than are kept is there while the newest is written, and the best one may be
 * an older one. */
fl_room_need fl_room_of_run(const fl_job *job, int64_t n_params, int n_workers)
{
    const fl_interval *every = &job->checkpoint.every;
    bool writes = every->ms > 0 || every->steps > 0 || every->epochs > 0;
    int64_t weights = n_params * (int64_t)sizeof(float);
    int64_t one = weights * (1 + fl_optimizer_n_moments(job->train.optimizer));
    int64_t n = job->checkpoint.keep < INT64_C(1) << 20 ? job->checkpoint.keep : INT64_C(1) << 20;
    fl_room_need need = fl_room_of_logs(n_workers);
    need.records += RECORDS_BYTES;
    need.model = job->run.save_model ? weights : 0;
    need.checkpoints = writes ? (n + 2) * one : 0;
    return need;
}

bool fl_room_fits(const char *where, int64_t free_bytes, const fl_room_need *need, char *text,
                  size_t size_bytes)
{
    char left[FL_SIZE_TEXT_MAX], all[FL_SIZE_TEXT_MAX], part[3][FL_SIZE_TEXT_MAX];
    int64_t needed = need->records + need->model + need->checkpoints;
    if (free_bytes < 0 || free_bytes >= needed) {
        return true;
    }
    snprintf(text, size_bytes,
             "%s has %s free, and the run may write %s there (logs and records %s, the model %s, "
             "checkpoints %s): make room, or name another folder",
             where, fl_size_text((double)free_bytes, left), fl_size_text((double)needed, all),
             fl_size_text((double)need->records, part[0]),
             fl_size_text((double)need->model, part[1]),
             fl_size_text((double)need->checkpoints, part[2]));
    return false;
}

/* ---- this machine ---- */

int64_t fl_room_left(int folder_fd)
{
    struct statvfs fs;
    return fstatvfs(folder_fd, &fs) == 0 ? (int64_t)fs.f_bavail * (int64_t)fs.f_frsize : -1;
}

static void warn_of(const char *where, int folder_fd, const fl_room_need *need)
{
    char text[PATH_MAX + 512];
    if (!fl_room_fits(where, fl_room_left(folder_fd), need, text, sizeof text)) {
        fl_log(FL_LOG_WARN, "%s", text);
    }
}

static void check_shm(const fl_preparation *p, int n_gpus)
{
    char left[FL_SIZE_TEXT_MAX], all[FL_SIZE_TEXT_MAX];
    int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int64_t needed = n_gpus * FL_ROOM_SHM_BYTES, free_bytes = fd < 0 ? -1 : fl_room_left(fd);
    if (fd >= 0) {
        close(fd);
    }
    if (p->job->devices.kind == FL_DEVICE_CUDA && n_gpus > 1 && free_bytes >= 0 &&
        free_bytes < needed) {
        fl_log(FL_LOG_WARN,
               "/dev/shm has %s free, and NCCL may take %s there for %d GPUs: remove files from "
               "it, or start the container with --shm-size=1g",
               fl_size_text((double)free_bytes, left), fl_size_text((double)needed, all), n_gpus);
    }
}

static bool share_file_system(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev;
}

void fl_room_check_run(const fl_preparation *p, const char *path, int dir_fd, int checkpoints_fd)
{
    int n_near = p->hosts == NULL ? p->n_ranks : p->hosts->host[0].n;
    fl_room_need need = fl_room_of_run(p->job, fl_model_n_params(p->model),
                                       p->job->run.shared ? p->n_ranks : n_near);
    if (!share_file_system(dir_fd, checkpoints_fd)) {
        const fl_room_need apart = {.checkpoints = need.checkpoints};
        need.checkpoints = 0;
        warn_of("the folder of checkpoints", checkpoints_fd, &apart);
    }
    warn_of(path, dir_fd, &need);
    check_shm(p, n_near);
}

void fl_room_check_logs(const fl_preparation *p, const char *path, int dir_fd, int n_workers)
{
    const fl_room_need need = fl_room_of_logs(n_workers);
    if (path != NULL) {
        warn_of(path, dir_fd, &need);
    }
    check_shm(p, n_workers);
}
