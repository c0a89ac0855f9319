#include "launcher/run/runs/run_hold.h"

#include "control/socket/ctl_names.h"
#include "device/errors/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HELD_FILE "job.yaml" /* written before events.jsonl */

/* ---- the controller answers ---- */

/* A socket's path is limited to 107 bytes; a run directory's path may be longer. */
static bool takes_connections(const char *path, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir, name);
    /* A full queue of connections is a sign of life, too. */
    bool live = fd >= 0 &&
                (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN);
    if (fd >= 0) {
        close(fd);
    }
    if (dir >= 0) {
        close(dir);
    }
    return live;
}

bool fl_run_is_live(const char *path)
{
    return takes_connections(path, FL_CTL_SOCKET);
}

/* The controller opens the socket of events first, and closes both. */
bool fl_run_is_unreachable(const char *path)
{
    return takes_connections(path, FL_CTL_EVENTS_SOCKET) && !fl_run_is_live(path);
}

/* ---- a process has the run ---- */

/* A lock of the process, not of the descriptor: workers do not inherit it, and it goes with the
 * controller however that dies. */
bool fl_run_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &whole) == 0;
}

int fl_run_hold(int dir_fd)
{
    int fd = openat(dir_fd, HELD_FILE, O_RDWR | O_CLOEXEC);
    if (fd < 0 || !fl_run_lock(fd)) {
        fl_log(FL_LOG_DEBUG, "cannot lock " HELD_FILE ": %s", strerror(errno));
    }
    return fd;
}

/* Whether the open file still has the name: another process may have replaced it. */
static bool is_current(int dir_fd, int fd)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && fstatat(dir_fd, HELD_FILE, &there, 0) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

fl_status fl_run_take(int dir_fd, int *held_fd)
{
    int fd = openat(dir_fd, HELD_FILE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fl_fail(FL_EIO, HELD_FILE ": %s", strerror(errno));
    }
    if (fl_run_lock(fd) && is_current(dir_fd, fd)) {
        *held_fd = fd;
        return FL_OK;
    }
    close(fd);
    return fl_fail(FL_EBUSY, HELD_FILE " is locked: another process trains or resumes this run");
}

/* Whether this process has job.yaml open, as the one that holds the run: to open and to close it
 * would release the lock. */
static bool is_own(int dir)
{
    struct stat there, mine;
    DIR *all = fstatat(dir, HELD_FILE, &there, 0) == 0 ? opendir("/proc/self/fd") : NULL;
    const struct dirent *entry;
    bool own = false;
    while (all != NULL && !own && (entry = readdir(all)) != NULL) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        own = *end == '\0' && fstat((int)fd, &mine) == 0 && mine.st_dev == there.st_dev &&
              mine.st_ino == there.st_ino;
    }
    if (all != NULL) {
        closedir(all);
    }
    return own;
}

/* *holder: the process, 0 if that is in another name space or on another host. */
bool fl__run_is_held_in(int dir, pid_t *holder)
{
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (is_own(dir)) {
        *holder = getpid();
        return true;
    }
    int fd = openat(dir, HELD_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool held = fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    *holder = held && whole.l_pid > 0 ? whole.l_pid : 0;
    if (fd >= 0) {
        close(fd);
    }
    return held;
}

bool fl_run_is_held(const char *path)
{
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    pid_t holder;
    bool held = dir >= 0 && fl__run_is_held_in(dir, &holder);
    if (dir >= 0) {
        close(dir);
    }
    return held;
}

/* /proc may be of another name space than this process. */
static bool proc_is_own(void)
{
    char link[32];
    ssize_t n = readlink("/proc/self", link, sizeof link - 1);
    link[n < 0 ? 0 : n] = '\0';
    return strtol(link, NULL, 10) == getpid();
}

/* "NSpid:\t4711\t8": from the outermost name space that can be seen to its own. */
pid_t fl__run_own_pid(pid_t pid)
{
    char path[64], line[256];
    long own = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *file = pid > 0 && proc_is_own() ? fopen(path, "re") : NULL;
    while (file != NULL && own == 0 && fgets(line, sizeof line, file) != NULL) {
        const char *last = strncmp(line, "NSpid:", 6) == 0 ? strrchr(line, '\t') : NULL;
        own = last == NULL ? 0 : strtol(last, NULL, 10);
    }
    if (file != NULL) {
        fclose(file);
    }
    return (pid_t)own;
}
