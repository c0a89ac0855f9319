#include "launcher/engine/meeting_tidy.h"

#include "device/errors/log.h"
#include "launcher/engine/meeting.h"
#include "launcher/engine/meeting_files.h"
#include "launcher/engine/meeting_life.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TIMES = 20 };

static bool is_ours(const char *name)
{
    static const char *const names[] = {FL__MEETING_JOIN, FL__MEETING_OVER,  FL__MEETING_LOCKS,
                                        FL_MEETING_KEYS,  FL__MEETING_START, FL_MEETING_HEAD};
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

static void remove_files(const char *dir)
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
}

/* A task that leaves may write its last word meanwhile. */
void fl_meeting_clear(const char *dir)
{
    for (int i = 0; i < TIMES; i++) {
        remove_files(dir);
        if (rmdir(dir) == 0 || (errno != ENOTEMPTY && errno != EEXIST)) {
            return;
        }
    }
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
            self.st_mtime - info.st_mtime > FL_MEETING_STALE_S && !fl_meeting_may_have_head(dir)) {
            fl_log(FL_LOG_DEBUG, "removes %s, which a start has left that was killed", dir);
            fl_meeting_clear(dir);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}
