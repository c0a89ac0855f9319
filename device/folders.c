#include "device/folders.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int fl_folders_make(const char *path, char *failed)
{
    size_t length = strlen(path);
    if (length >= PATH_MAX) {
        snprintf(failed, PATH_MAX, "%s", path);
        return ENAMETOOLONG;
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        snprintf(failed, PATH_MAX, "%.*s", (int)i, path);
        if (mkdir(failed, 0700) != 0 && errno != EEXIST) {
            return errno;
        }
    }
    return 0;
}
