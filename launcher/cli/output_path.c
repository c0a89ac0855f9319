#include "launcher/cli/output_path.h"

#include "device/errors/failure.h"

#include <string.h>
#include <sys/stat.h>

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

fl_status fl_output_path_check(const char *name, const char *path)
{
    struct stat what;
    if (strcmp(path, "-") == 0) {
        return fl_fail(FL_EINVAL, "%s: found -; allowed: the path of a file (./- for that name)",
                       name);
    }
    if (lstat(path, &what) != 0 || S_ISREG(what.st_mode)) {
        return FL_OK; /* opening reports any other problem */
    }
    return fl_fail(FL_EINVAL,
                   "%s: %s is %s, which is left as it is; allowed: a regular file, or a new name",
                   name, path, kind_of(what.st_mode));
}
