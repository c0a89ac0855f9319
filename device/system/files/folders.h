/* Folders of the file system. */
#ifndef FL_DEVICE_SYSTEM_FILES_FOLDERS_H
#define FL_DEVICE_SYSTEM_FILES_FOLDERS_H

#include <stdbool.h>

/* Make the folder `path` and those above it where they are missing, with mode 0700.
 * failed    [PATH_MAX] out: the path of the first folder that cannot be made
 * Returns   0, or the errno of that failure */
int fl_folders_make(const char *path, char *failed);

/* Where this user's programs keep what they can compute again: $XDG_CACHE_HOME/frostline, or
 * ~/.cache/frostline. The folder may be missing.
 * path      [PATH_MAX] out
 * Returns   false where the environment names no absolute path, or one that is too long */
bool fl_folders_cache(char *path);

#endif
