#include "device/system/program.h"

#include "device/random/random.h"
#include "device/text/shell_text.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t fl_program_build(void)
{
    struct stat file;
    if (stat("/proc/self/exe", &file) != 0) {
        return 0;
    }
    uint64_t build = fl_mix64(0, (uint64_t)file.st_size);
    build = fl_mix64(build, (uint64_t)file.st_mtim.tv_sec);
    return fl_mix64(build, (uint64_t)file.st_mtim.tv_nsec);
}

fl_status fl_program_path(char *path, size_t size_bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, size_bytes);
    if (n >= 0 && (size_t)n >= size_bytes) {
        n = -1;
        errno = ENAMETOOLONG;
    }
    if (n < 0) {
        return fl_fail(FL_EIO, "/proc/self/exe: %s", strerror(errno));
    }
    path[n] = '\0';
    return FL_OK;
}

fl_status fl_program_folder(char *path, size_t size_bytes)
{
    FL_TRY(fl_program_path(path, size_bytes));
    *strrchr(path, '/') = '\0';
    return FL_OK;
}

/* Whether a shell that has our PATH starts this file by the name `frostline`: the first one counts
 * that can be executed. */
static bool is_on_path(void)
{
    struct stat self, file;
    char path[PATH_MAX];
    const char *at = getenv("PATH");
    if (at == NULL || stat("/proc/self/exe", &self) != 0) {
        return false;
    }
    for (size_t n = 0; *at != '\0'; at += n + (at[n] == ':')) {
        n = strcspn(at, ":");
        int length = snprintf(path, sizeof path, "%.*s/frostline", (int)n, at);
        bool fits = length > 0 && (size_t)length < sizeof path;
        if (fits && stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0) {
            return at[0] == '/' && file.st_dev == self.st_dev && file.st_ino == self.st_ino;
        }
    }
    return false;
}

const char *fl_program_shown(char *shown, size_t size_bytes)
{
    char path[PATH_MAX];
    if (is_on_path() || fl_program_path(path, sizeof path) != FL_OK) {
        snprintf(shown, size_bytes, "frostline");
        return shown;
    }
    return fl_shell_shown(path, shown, size_bytes);
}
