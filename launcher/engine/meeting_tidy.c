#include "launcher/engine/meeting_tidy.h"

#include "device/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fl_meeting_hold(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= PATH_MAX) {
        return -1;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && fcntl(fd, F_SETLK, &whole) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_ours(const char *name)
{
    static const char *const names[] = {"join", "over", "keys", "locks", FL_MEETING_HEAD};
    size_t n = strcspn(name, ".");
    bool part = name[n] == '\0' || strcmp(name + n, ".part") == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (part && strlen(names[i]) == n && strncmp(names[i], name, n) == 0) {
            return true;
        }
    }
    return part && (strncmp(name, "task-", 5) == 0 || strncmp(name, FL_MEETING_LEFT, 5) == 0 ||
                    strncmp(name, FL_MEETING_LOCK, 5) == 0);
}

void fl_meeting_clear(const char *dir)
{
    DIR *folder = opendir(dir);
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        if (is_ours(e->d_name) || strcmp(e->d_name, "hosts.key.part") == 0) {
            (void)unlinkat(dirfd(folder), e->d_name, 0); /* another task may have been faster */
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    (void)rmdir(dir);
}

bool fl_meeting_is_held(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%.4000s/%.64s", dir, name);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno != ENOENT;
    }
    bool lives = fcntl(fd, F_GETLK, &whole) != 0 || whole.l_type != F_UNLCK;
    close(fd);
    return lives;
}

void fl_meeting_tidy(const char *parent, const char *own)
{
    struct stat self, info;
    char dir[PATH_MAX];
    DIR *folder = stat(own, &self) != 0 ? NULL : opendir(parent);
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        bool fits = strncmp(e->d_name, FL_MEETING_FOLDER, strlen(FL_MEETING_FOLDER)) == 0 &&
                    snprintf(dir, sizeof dir, "%s/%s", parent, e->d_name) < PATH_MAX;
        if (fits && lstat(dir, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
            self.st_mtime - info.st_mtime > FL_MEETING_STALE_S &&
            !fl_meeting_is_held(dir, FL_MEETING_HEAD)) {
            fl_log(FL_LOG_DEBUG, "removes %s, which a start has left that was killed", dir);
            fl_meeting_clear(dir);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}
