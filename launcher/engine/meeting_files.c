#include "launcher/engine/meeting_files.h"

#include "device/errors/io_status.h"
#include "launcher/engine/meeting_tidy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100 };

/* ---- names ---- */

void fl__meeting_name_task(int rank, char name[FL__MEETING_NAME])
{
    snprintf(name, FL__MEETING_NAME, "task-%d", rank);
}

void fl__meeting_name_left(int rank, char name[FL__MEETING_NAME])
{
    snprintf(name, FL__MEETING_NAME, FL_MEETING_LEFT "%d", rank);
}

void fl__meeting_name_lock(int rank, char name[FL__MEETING_NAME])
{
    if (rank == 0) {
        snprintf(name, FL__MEETING_NAME, FL_MEETING_HEAD);
    } else {
        snprintf(name, FL__MEETING_NAME, FL_MEETING_LOCK "%d", rank);
    }
}

static void join_path(const char *dir, const char *name, char path[FL__MEETING_PATH])
{
    snprintf(path, FL__MEETING_PATH, "%s/%s", dir, name);
}

/* ---- files ---- */

fl_status fl__meeting_write(const char *dir, const char *name, const char *text)
{
    char path[FL__MEETING_PATH], part[FL__MEETING_PATH + 8];
    join_path(dir, name, path);
    snprintf(part, sizeof part, "%s.part", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    bool good = fd >= 0 && write(fd, text, n) == (ssize_t)n;
    int error = good ? 0 : errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && rename(part, path) == 0) {
        return FL_OK;
    }
    error = good ? errno : error;
    (void)unlink(part);
    return fl_fail(fl_io_status(error), "cannot write %s: %s", path, strerror(error));
}

bool fl__meeting_read(const char *dir, const char *name, char text[FL__MEETING_TEXT])
{
    char path[FL__MEETING_PATH];
    join_path(dir, name, path);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FL__MEETING_TEXT - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

bool fl__meeting_has(const char *dir, const char *name)
{
    char path[FL__MEETING_PATH];
    join_path(dir, name, path);
    return access(path, F_OK) == 0;
}

bool fl__meeting_is_gone(const char *dir)
{
    return access(dir, F_OK) != 0 && errno == ENOENT;
}

void fl__meeting_remove(const char *dir, const char *name)
{
    char path[FL__MEETING_PATH];
    join_path(dir, name, path);
    (void)unlink(path);
}

void fl__meeting_nap(void)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    (void)nanosleep(&pause, NULL);
}
