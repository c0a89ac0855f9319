#include "device/system/files/folders.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The XDG base directory specification ignores relative paths. */
bool fl_folders_cache(char *path)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (cache != NULL && cache[0] == '/') {
        n = snprintf(path, PATH_MAX, "%s/frostline", cache);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(path, PATH_MAX, "%s/.cache/frostline", home);
    }
    return n > 0 && n < PATH_MAX;
}
